//! Supervised tasks: one owner, one end.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

/// How long tasks have to finish what they hold once the process was asked to stop. Below the 30 s Kubernetes gives a pod.
const GRACE: Duration = Duration::from_secs(10);

/// Tells tasks that the process wants to end. Cheap to clone; every task that waits for something waits for this too.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Resolves when the process was asked to end.
    pub async fn requested(&self) {
        let mut seen = self.0.clone();
        // A dropped sender means the owner is gone: that is an end too.
        let _ = seen.wait_for(|stop| *stop).await;
    }

    /// Was the process asked to end?
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }
}

/// All tasks of a process.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
    stop: watch::Sender<bool>,
}

impl Default for Tasks {
    fn default() -> Tasks {
        Tasks::new()
    }
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Tasks {
        Tasks { set: JoinSet::new(), names: HashMap::new(), stop: watch::Sender::new(false) }
    }

    /// What tasks wait on to learn that they should end.
    pub fn stop(&self) -> Stop {
        Stop(self.stop.subscribe())
    }

    /// Starts a task. It must run until [`Stop`] is requested: returning earlier, even with `Ok`, ends the process.
    pub fn add(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Runs until SIGTERM, SIGINT or the first task's end. A signal is a good end; a task's end before it is not.
    pub async fn run(self) -> anyhow::Result<()> {
        let signal = signal()?;
        self.run_until(signal).await
    }

    /// The same, with something to do at a signal while every task still works.
    pub async fn run_with_farewell(self, farewell: impl Future<Output = ()>) -> anyhow::Result<()> {
        let signal = signal()?;
        let end = async {
            let why = signal.await;
            farewell.await;
            why
        };
        self.run_until(end).await
    }

    /// Runs until `end` resolves or the first task ends: what [`Tasks::run`] does, for processes that host several services.
    pub async fn run_until(mut self, end: impl Future<Output = &'static str>) -> anyhow::Result<()> {
        let first = tokio::select! {
            why = end => {
                tracing::info!(why, "stopping");
                None
            }
            ended = self.set.join_next_with_id() => ended,
        };
        let mut outcome = match first {
            None => Ok(()),
            Some(ended) => self.ended(ended, true),
        };
        let _ = self.stop.send(true);
        let deadline = tokio::time::sleep(GRACE);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                ended = self.set.join_next_with_id() => match ended {
                    None => break,
                    Some(ended) => outcome = outcome.and(self.ended(ended, false)),
                },
                () = &mut deadline => {
                    tracing::warn!(left = self.set.len(), "tasks did not end in time; aborting them");
                    break;
                }
            }
        }
        self.set.shutdown().await;
        outcome
    }

    fn ended(
        &self,
        ended: Result<(Id, anyhow::Result<()>), tokio::task::JoinError>,
        early: bool,
    ) -> anyhow::Result<()> {
        let name = |id: Id| self.names.get(&id).copied().unwrap_or("unnamed");
        match ended {
            Ok((id, Ok(()))) if early => Err(anyhow!("task {} ended although nobody asked it to", name(id))),
            Ok((_, Ok(()))) => Ok(()),
            Ok((id, Err(error))) => Err(error).with_context(|| format!("task {} failed", name(id))),
            Err(error) if error.is_panic() => Err(anyhow!("task {} panicked: {error}", name(error.id()))),
            Err(_) => Ok(()),
        }
    }
}

/// Resolves at SIGTERM or SIGINT.
fn signal() -> anyhow::Result<impl Future<Output = &'static str>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("could not listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_task_to_end_ends_the_process_with_its_name() {
        let mut tasks = Tasks::new();
        let stop = tasks.stop();
        tasks.add("steady", async move {
            stop.requested().await;
            Ok(())
        });
        tasks.add("lease", async { Ok(()) });
        let error = tasks.run_until(std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "task lease ended although nobody asked it to");
    }

    #[tokio::test]
    async fn a_panic_is_a_reason_not_a_silence() {
        let mut tasks = Tasks::new();
        tasks.add("watch", async { panic!("broken invariant") });
        let error = tasks.run_until(std::future::pending()).await.unwrap_err();
        assert!(error.to_string().starts_with("task watch panicked"), "{error}");
    }

    #[tokio::test]
    async fn an_error_keeps_its_cause() {
        let mut tasks = Tasks::new();
        tasks.add("http", async { Err(anyhow!("address in use")) });
        let error = tasks.run_until(std::future::pending()).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "task http failed: address in use");
    }

    #[tokio::test]
    async fn a_signal_lets_tasks_finish_and_is_a_good_end() {
        let mut tasks = Tasks::new();
        let stop = tasks.stop();
        let (done, finished) = tokio::sync::oneshot::channel();
        tasks.add("worker", async move {
            stop.requested().await;
            let _ = done.send(());
            Ok(())
        });
        tasks.run_until(async { "test" }).await.unwrap();
        finished.await.unwrap();
    }
}
