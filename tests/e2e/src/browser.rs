//! A real Chromium without a window, told what to do through its debugging pipe, to look at the dashboard with.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::packages;

/// A file that must be there and the Debian package that brings it.
const NEEDED: &[(&str, &str)] =
    &[("/usr/bin/chromium", "chromium"), ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core")];
/// How long the browser may take to answer. Machines that run tests are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A page in a browser of its own; both end with it.
#[derive(Debug)]
pub struct Page {
    _folder: TempDir,
    child: std::process::Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    asked: u64,
    /// What went wrong on the page, in the browser's words.
    errors: Vec<String>,
    /// What it asked for.
    requests: Vec<String>,
}

impl Page {
    /// Starts a browser and opens an address in it.
    pub fn open(address: &str) -> anyhow::Result<Page> {
        packages::install_missing(NEEDED)?;
        let folder = tempfile::tempdir()?;
        let (to, from) = (pipe(&folder, "to")?, pipe(&folder, "from")?);
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
        ];
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 3<\"$TO\" 4>\"$FROM\"", "sh", "/usr/bin/chromium"])
            .args(flags)
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .env("TO", &to)
            .env("FROM", &from)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("chromium.log"))?);
        // Opened for both ways, a named pipe waits for nobody.
        let open = |path: &PathBuf| File::options().read(true).write(true).open(path);
        let (to, listening) = (open(&to)?, open(&from)?);
        let child = command.spawn().context("chromium does not start")?;
        let (tell, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(listening).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let (errors, requests) = (Vec::new(), Vec::new());
        let mut page = Page { _folder: folder, child, to, from, session: None, asked: 0, errors, requests };
        let target = page.ask("Target.createTarget", json!({"url": "about:blank"}))?;
        let attached = page.ask("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}))?;
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        ensure!(page.session.is_some(), "chromium gave no session: {attached}");
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.ask(&format!("{domain}.enable"), json!({}))?;
        }
        page.size(1400, 900)?;
        page.ask("Page.navigate", json!({"url": address}))?;
        Ok(page)
    }

    /// Asks the browser for something and waits for its answer.
    fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes())?;
        self.to.write_all(&[0])?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(message) = self.from.recv_timeout(left) else { bail!("chromium does not answer {method}") };
            if message["id"] == self.asked {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.errors.push(params["exceptionDetails"].to_string()),
            "Log.entryAdded" if params["entry"]["level"] == "error" => self.errors.push(params["entry"].to_string()),
            "Runtime.consoleAPICalled" if params["type"] == "error" => self.errors.push(params["args"].to_string()),
            "Network.requestWillBeSent" => {
                self.requests.extend(params["request"]["url"].as_str().map(str::to_owned));
            }
            _ => {}
        }
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> anyhow::Result<Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", asked)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true on the page.
    pub fn until(&mut self, expression: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.value(&format!("Boolean({expression})"));
            if matches!(found, Ok(Value::Bool(true))) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = self.value("document.body.innerText.slice(0, 2000)").unwrap_or_default();
                bail!("never true on the page: {expression} ({found:?}); errors {:?}; it says {text}", self.errors);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) -> anyhow::Result<()> {
        let text = if key.chars().count() == 1 { json!(key) } else { Value::Null };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key});
            if kind == "keyDown" && !text.is_null() {
                event["text"] = text.clone();
            }
            self.ask("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Clicks the middle of the element that a selector finds.
    pub fn click(&mut self, selector: &str) -> anyhow::Result<()> {
        let place = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        );
        let at = self.value(&place)?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Sets the page's size.
    pub fn size(&mut self, width: u32, height: u32) -> anyhow::Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", metrics)?;
        Ok(())
    }

    /// What the viewer's system prefers: `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) -> anyhow::Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}))?;
        Ok(())
    }

    /// A picture of what is seen, as PNG.
    pub fn picture(&mut self) -> anyhow::Result<Vec<u8>> {
        let shot = self.ask("Page.captureScreenshot", json!({"format": "png"}))?;
        let data = shot["data"].as_str().context("no picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(data)?)
    }

    /// What went wrong so far, by the browser and by the page's own count.
    pub fn errors(&mut self) -> anyhow::Result<Vec<String>> {
        let own = self.value("document.body.dataset.errors || ''")?;
        let own = own.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(self.errors.iter().cloned().chain(own).collect())
    }

    /// Every address the page asked for.
    pub fn requests(&self) -> &[String] {
        &self.requests
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pipe(folder: &TempDir, name: &str) -> anyhow::Result<PathBuf> {
    let path = folder.path().join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).context("no named pipe")?;
    Ok(path)
}
