//! Talking to a cluster as its users do, and waiting for what should come true.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// kubectl with a kubeconfig, and a namespace if one was chosen.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: Option<String>,
}

impl Kubectl {
    pub(crate) fn new(program: &Path, kubeconfig: PathBuf) -> Self {
        Self { program: program.into(), kubeconfig, namespace: None }
    }

    /// The same in a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self.clone() }
    }

    /// The same as another user: impersonation, for tests of who may do what.
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.into(), ..self.clone() }
    }

    /// The kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubectl command, ready to be run.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Runs it, whatever comes of it.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        self.command(words).output().context("could not run kubectl")
    }

    /// Runs it; what it said, or an error with what it complained of.
    pub fn say(&self, words: &[&str]) -> anyhow::Result<String> {
        told(words, self.run(words)?)
    }

    /// Feeds `input` to it.
    pub fn feed(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut pipe = child.stdin.take().context("no standard input")?;
        let input = input.to_owned();
        // From a thread: a large manifest and a talkative kubectl would otherwise wait for each other.
        let feeder = thread::spawn(move || pipe.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        let fed = feeder.join();
        let said = told(words, output)?;
        ensure!(matches!(fed, Ok(Ok(()))), "kubectl {} did not read all of its input", words.join(" "));
        Ok(said)
    }

    /// Applies a manifest (YAML or JSON).
    pub fn apply(&self, manifest: &str) -> anyhow::Result<String> {
        self.feed(&["apply", "-f", "-"], manifest)
    }

    /// Creates from a manifest; unlike apply it adds no annotation and fails on what is there.
    pub fn create(&self, manifest: &str) -> anyhow::Result<String> {
        let once = || self.feed(&["create", "-f", "-"], manifest);
        // On a busy machine it may not get the API's schema in its time. It then has created nothing and says what to do.
        match once() {
            Err(error) if error.to_string().contains("Please retry") => once(),
            answer => answer,
        }
    }

    /// An object, as it is now.
    pub fn get(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.say(&["get", kind, name, "--output=json"])?)?)
    }

    /// All objects of a kind, as they are now.
    pub fn list(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let mut list: Value = serde_json::from_str(&self.say(&["get", kind, "--output=json"])?)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("kubectl get {kind} gave no list but {other}"),
        }
    }

    /// Watches one object until `holds` of it, and returns it as it was then. It need not exist yet.
    pub fn wait(
        &self,
        kind: &str,
        name: &str,
        patience: Duration,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let deadline = Instant::now() + patience;
        let mut last = Value::Null;
        let selector = format!("--field-selector=metadata.name={name}");
        while Instant::now() < deadline {
            let watch = Watch::start(self.command(&["get", kind, &selector, "--watch", "--output=json"]))?;
            loop {
                match watch.objects.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(object) if holds(&object) => return Ok(object),
                    Ok(object) => last = object,
                    Err(RecvTimeoutError::Timeout) => break,
                    // The API server went away or closed the watch: ask again.
                    Err(RecvTimeoutError::Disconnected) => {
                        thread::sleep(Duration::from_millis(100));
                        break;
                    }
                }
            }
        }
        let seen = if last.is_null() { "it was never seen".into() } else { format!("last seen as {}", brief(&last)) };
        bail!("{kind} {name} did not become what the test waits for within {patience:?}: {seen}\n{}", self.story())
    }

    /// Waits until an object is gone.
    pub fn wait_gone(&self, kind: &str, name: &str, patience: Duration) -> anyhow::Result<()> {
        let timeout = format!("--timeout={}s", patience.as_secs().max(1));
        self.say(&["wait", "--for=delete", &format!("{kind}/{name}"), &timeout]).map(drop)
    }

    /// Waits for a pod to be in a phase.
    pub fn wait_phase(&self, pod: &str, phase: &str, patience: Duration) -> anyhow::Result<Value> {
        self.wait("pod", pod, patience, |seen| seen["status"]["phase"] == phase)
    }

    /// Pods and events, for the report of a failure.
    pub fn story(&self) -> String {
        let all = if self.namespace.is_some() { "--show-kind" } else { "--all-namespaces" };
        let pods = self.run(&["get", "pods", "--output=wide", all]);
        let events = self.run(&["get", "events", "--sort-by=.lastTimestamp", all]);
        let text = |said: anyhow::Result<Output>| match said {
            Ok(said) => format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr)),
            Err(error) => error.to_string(),
        };
        format!("--- pods\n{}--- events\n{}", text(pods), text(events))
    }
}

/// A kubectl that watches, and the objects it prints as they come.
struct Watch {
    child: Child,
    objects: Receiver<Value>,
}

impl Watch {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let out = child.stdout.take().context("no standard output")?;
        let (send, objects) = channel();
        thread::spawn(move || {
            for object in
                serde_json::Deserializer::from_reader(BufReader::new(out)).into_iter::<Value>().map_while(Result::ok)
            {
                if send.send(object).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, objects })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn told(words: &[&str], output: Output) -> anyhow::Result<String> {
    if !output.status.success() {
        bail!("kubectl {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An object without what no reader of a failure wants.
fn brief(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    serde_json::to_string_pretty(&object).unwrap_or_default()
}

/// Asks again and again until there is an answer, with the last refusal in the error when the time is over.
pub fn eventually<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("{what}: not within {patience:?}")));
            }
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}
