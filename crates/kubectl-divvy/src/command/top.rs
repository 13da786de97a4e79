//! `kubectl divvy top`: nodes, cards, pods and the queue, live.

mod screen;
mod usage;

use std::time::Duration;

use anyhow::Context;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::cluster::Source;
use crate::ending::Ending;
use crate::output;
use screen::Screen;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds between two looks at the cluster
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one screen and leave
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let used = look(source).await;
    let screen = Screen::of(&source.view().await?, used)?;
    // Without a terminal there is nothing to watch.
    if args.once || source.snapshot.is_some() || !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        output::show(&still(&screen)?)?;
        return Ok(Ending::Yes);
    }
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let ended = live(&mut terminal, screen, source, Duration::from_secs(args.interval)).await;
    ratatui::restore();
    ended.map(|()| Ending::Yes)
}

/// What is used now; nothing is known of a cluster in a file.
async fn look(source: &Source) -> usage::All {
    match source.client().await {
        Ok(client) => usage::ask(&client).await,
        Err(_) => usage::All::default(),
    }
}

async fn live(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    source: &Source,
    interval: Duration,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        let mut due = tokio::time::Instant::now() + interval;
        while tokio::time::Instant::now() < due {
            if !tokio::task::spawn_blocking(|| event::poll(Duration::from_millis(100))).await?? {
                continue;
            }
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
                    KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
                    KeyCode::PageDown => screen.scroll(10),
                    KeyCode::PageUp => screen.scroll(-10),
                    KeyCode::Tab => screen.turn(),
                    KeyCode::Char('r') => due = tokio::time::Instant::now(),
                    _ => {}
                },
                Event::Resize(..) => {}
                _ => continue,
            }
            terminal.draw(|frame| screen.draw(frame))?;
        }
        match source.view().await {
            Ok(view) => screen.update(&view, look(source).await)?,
            // The last look stays, with a note: a moment's silence of the API server is no reason to leave.
            Err(error) => screen.note(&format!("{error:#}")),
        }
    }
}

/// One screen as text, as tall as it needs to be.
fn still(screen: &Screen) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(120, screen.height()))?;
    terminal.draw(|frame| screen.draw(frame))?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}
