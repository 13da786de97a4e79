//! `divvy demo`: a cluster in this process, on a machine with neither a cluster nor a GPU.
//!
//! A day of made-up teams runs on simulated nodes, faster than real time; webhook, scheduler, budgets and limiter are the real ones.
//! Beside it two real processes are held to their parts of one simulated card by the real library and arbiter.

mod clock;
mod day;
mod own_page;
mod proof;
mod summary;
mod wishes;

use std::net::SocketAddr;
use std::time::Duration;

use divvy_dashboard::{Access, Shared, routes};
use divvy_embedded::{Options, Simulation};
use divvy_service::{Tasks, http};
use tokio::sync::mpsc;

use clock::Clock;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Where the dashboard is served
    #[arg(long, default_value = "127.0.0.1:8088")]
    listen: SocketAddr,
    /// Simulated nodes
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    nodes: u32,
    /// Simulated seconds per second
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    speed: u32,
    /// The same seed gives the same day
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// No dashboard: run, print a summary, leave
    #[arg(long)]
    headless: bool,
    /// How long to run (`90s`, `10m`); without it until stopped, or a minute where headless
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Option<Duration>,
    /// Leave out the two real processes
    #[arg(long)]
    no_enforcement: bool,
}

/// `90s`, `10m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a length of time such as 90s, 10m or 1h");
    let (number, factor) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        _ => (text, 1),
    };
    let seconds = number.parse::<u64>().ok().filter(|n| *n > 0 && *n < 1_000_000).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds * factor))
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let options = Options { nodes: args.nodes as usize, seed: args.seed, ..Options::default() };
    let simulation = Simulation::new(options);
    let shared = Shared::default();
    let mut tasks = Tasks::new();
    let stop = tasks.stop();
    let (wish, wishes) = mpsc::channel(16);
    let clock = Clock::new(options.begin, args.speed);
    let proof = (!args.no_enforcement).then(proof::Proof::default);
    if args.headless {
        println!("divvy demo: {} nodes, {} × real time", args.nodes, args.speed);
    } else {
        let listener = http::bind(args.listen)?;
        let address = listener.local_addr()?;
        let routes = routes::routes(shared.clone(), Access::Open, false).merge(wishes::routes(wish.clone()));
        let routes = routes.layer(axum::middleware::from_fn(own_page::alone));
        tasks.add("dashboard", http::serve(listener, routes, None, stop.clone()));
        println!("{}", summary::greeting(address, &args));
    }
    let (done, finished) = tokio::sync::oneshot::channel();
    let day = day::Day { simulation, shared, clock, wishes, proof: proof.clone(), stop: stop.clone() };
    tasks.add("day", async move {
        // A wish can come for as long as the day lasts.
        let _wish = wish;
        let simulation = tokio::task::spawn_blocking(move || day.run()).await?;
        let _ = done.send(simulation);
        Ok(())
    });
    if let Some(proof) = proof.clone() {
        let (stop, quiet) = (stop.clone(), !args.headless);
        tasks.add("enforcement", async move {
            tokio::task::spawn_blocking(move || proof.run(&stop, quiet)).await?;
            Ok(())
        });
    }
    let lasts = args.lasts.or(args.headless.then_some(Duration::from_secs(60)));
    let shown = proof.clone();
    match lasts {
        None => tasks.run().await?,
        Some(lasts) => {
            let end = async move {
                tokio::time::sleep(lasts).await;
                // On a fresh checkout the parts of the enforcement are still being built.
                if let Some(proof) = shown {
                    if let Some(state) = proof.unseen() {
                        eprintln!(
                            "the time is up; waiting for the enforcement ({state}; some minutes on a fresh checkout)"
                        );
                    }
                    proof.watched().await;
                }
                "it is time"
            };
            tasks.run_until(end).await?;
        }
    }
    let simulation = finished.await?;
    println!("{}", summary::closing(&simulation, proof.as_ref().map(proof::Proof::view)));
    anyhow::ensure!(simulation.summary().overcommitted == 0, "a card was promised beyond what it has: this is a bug");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_others_refused() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("45"), Ok(Duration::from_secs(45)));
        for text in ["", "s", "0s", "-3s", "1.5m", "1d"] {
            assert!(duration(text).unwrap_err().contains("is not a length of time"), "{text:?}");
        }
    }
}
