//! What the tests about budgets have in common.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_core::keys;
use divvy_e2e::{Kubectl, Options, eventually};
use serde_json::Value;

use crate::ground::Ground;

/// What anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster with Divvy in it, whose budget controller has a clock that can be moved.
pub(crate) struct Town {
    pub(crate) ground: Ground,
    clock: PathBuf,
    pub(crate) port: u16,
}

impl Town {
    /// Starts one.
    pub(crate) fn start(name: &str) -> Town {
        let clock = std::env::temp_dir().join(format!("divvy-clock-{name}-{}", std::process::id()));
        std::fs::write(&clock, "0").unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let flags = ["--budget-clock", &clock.display().to_string(), "--budget-listen", &format!("127.0.0.1:{port}")]
            .map(str::to_owned);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ground = Ground::start(Options::control_plane(), "controller", &flags);
        Town { ground, clock, port }
    }

    /// Moves the budget controller's clock so many milliseconds ahead of the machine's.
    pub(crate) fn move_clock(&self, millis: i64) {
        move_clock(&self.clock, millis);
    }
}

/// Writes a clock's file in one step.
pub(crate) fn move_clock(clock: &Path, millis: i64) {
    let beside = clock.with_extension("next");
    std::fs::write(&beside, millis.to_string()).unwrap();
    std::fs::rename(&beside, clock).unwrap();
}

/// A budget once this holds of its status.
pub(crate) fn budget(space: &Kubectl, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    space.wait("gpubudget", name, PATIENCE, |object| holds(&object["status"])).unwrap()["status"].clone()
}

/// A pod once it is in this class.
pub(crate) fn wait_class(space: &Kubectl, pod: &str, class: &str) -> Value {
    space.wait("pod", pod, PATIENCE, |pod| pod["metadata"]["annotations"][keys::CLASS_NOW] == class).unwrap()
}

/// Waits until a pod would be let in with this class: admission hears of balances a moment after everybody else.
pub(crate) fn wait_admitted(space: &Kubectl, pod: &Value, class: &str) {
    eventually(&format!("a pod is let in as {class}"), PATIENCE, || {
        let said = space.feed(&["create", "--dry-run=server", "--output=json", "-f", "-"], &pod.to_string())?;
        let seen: Value = serde_json::from_str(&said)?;
        anyhow::ensure!(seen["metadata"]["annotations"][keys::CLASS_NOW] == class, "{said}");
        Ok(())
    })
    .unwrap();
}

/// What `kubectl get` prints, once it contains all of these.
pub(crate) fn shows(space: &Kubectl, words: &[&str], parts: &[&str]) -> String {
    eventually(&format!("kubectl {} shows {parts:?}", words.join(" ")), PATIENCE, || {
        let said = space.say(words)?;
        for part in parts {
            anyhow::ensure!(said.contains(part), "{part:?} is not in:\n{said}");
        }
        Ok(said)
    })
    .unwrap()
}
