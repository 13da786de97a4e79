//! Devices of a program of its own: the same four calls over a Unix socket, one line of JSON each way.
//!
//! ```text
//! -> {"call":"discover"}                        <- {"devices":[...],"driver":"1.2"}
//! -> {"call":"signs"}                           <- [{"device":"X-1","seen":"answer"}, ...]
//! -> {"call":"edits","parts":[{"device":{...},"slice":{...}}]}   <- {"env":{},"mounts":[],"devices":[]}
//! -> {"call":"usage"}                           <- [{"device":"X-1","memory":0,"processes":[]}]
//!    anything it cannot answer                  <- {"error":"why"}
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Found, Part, Provider, Sign, Trouble, Usage};
use crate::edits::ContainerEdits;

/// A provider that hangs must not hang the node.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer we read.
const LONGEST: u64 = 4 << 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase", tag = "call")]
enum Call<'a> {
    Discover,
    Signs,
    Edits { parts: &'a [Part<'a>] },
    Usage,
}

/// A program behind a socket.
pub struct Remote {
    name: String,
    socket: PathBuf,
}

impl Remote {
    /// The provider behind `socket`. Nothing is asked of it yet.
    pub fn new(socket: PathBuf) -> Remote {
        Remote { name: format!("provider {}", socket.display()), socket }
    }

    fn ask<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Trouble> {
        let answer = self.exchange(call).map_err(|e| Trouble::new(&self.name, e.to_string()))?;
        let value: serde_json::Value = serde_json::from_str(&answer)
            .map_err(|e| Trouble::new(&self.name, format!("answered something that is not JSON: {e}")))?;
        if let Some(why) = value.get("error").and_then(|e| e.as_str()) {
            return Err(Trouble::new(&self.name, why));
        }
        serde_json::from_value(value).map_err(|e| Trouble::new(&self.name, format!("answered something else: {e}")))
    }

    fn exchange(&self, call: &Call<'_>) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(call)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream.take(LONGEST)).read_line(&mut answer)?;
        Ok(answer)
    }
}

impl Provider for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn discover(&self) -> Result<Found, Trouble> {
        self.ask(&Call::Discover)
    }

    fn signs(&self) -> Result<Vec<Sign>, Trouble> {
        self.ask(&Call::Signs)
    }

    fn edits(&self, parts: &[Part<'_>]) -> Result<ContainerEdits, Trouble> {
        self.ask(&Call::Edits { parts })
    }

    fn usage(&self) -> Result<Vec<Usage>, Trouble> {
        self.ask(&Call::Usage)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use divvy_core::units::Bytes;

    use super::*;
    use crate::device::Seen;

    /// A provider program in twenty lines, which is also what the docs promise it takes.
    fn program(socket: PathBuf) {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let call: serde_json::Value = serde_json::from_str(&line).unwrap();
                let answer = match call["call"].as_str().unwrap() {
                    "discover" => r#"{"devices":[{"id":"X-1","index":0,"model":"X","memory":1024}]}"#.to_owned(),
                    "signs" => r#"[{"device":"X-1","seen":{"error":7}}]"#.to_owned(),
                    "edits" => {
                        let id = call["parts"][0]["device"]["id"].as_str().unwrap();
                        format!(r#"{{"env":{{"X_VISIBLE":"{id}"}}}}"#)
                    }
                    _ => r#"{"error":"no counters on this model"}"#.to_owned(),
                };
                writeln!(&stream, "{answer}").unwrap();
            }
        });
    }

    #[test]
    fn a_program_behind_a_socket_answers_the_same_four_calls() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("x.sock");
        program(socket.clone());
        let remote = Remote::new(socket);
        let device = remote.discover().unwrap().devices.remove(0);
        assert_eq!(remote.signs().unwrap()[0].seen, Seen::Error(7));
        let slice = crate::testing::slice(&device.id, Bytes(1), 0);
        assert_eq!(remote.edits(&[Part { device: &device, slice: &slice }]).unwrap().env["X_VISIBLE"], "X-1");
        assert!(remote.usage().unwrap_err().to_string().contains("no counters on this model"));
    }

    #[test]
    fn an_absent_or_babbling_program_is_trouble_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Remote::new(dir.path().join("nobody.sock")).discover().is_err());
        let socket = dir.path().join("babble.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(&[0xff; 1 << 20]);
        });
        assert!(Remote::new(socket).discover().is_err());
    }
}
