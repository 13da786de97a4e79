//! What the arbiter saw and did, look by look, in a file: for whoever wants to know why a share came out as it did.
//!
//! A line has the time in nanoseconds and, for every lane that changed since the line before, one word:
//! `lane:queued,filling,streams,completed,submitted,open,chunk,unit_ns,charged`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use divvy_limiter::{Directive, Ns, Seen};

pub(super) struct Record {
    file: BufWriter<File>,
    last: Vec<Word>,
}

type Word = (Seen, bool, u32);

impl Record {
    /// A record that cannot be written is no reason to stop arbitrating.
    pub(super) fn begin(path: &Path, devices: &[String]) -> Option<Record> {
        let file = File::options().append(true).create(true).open(path);
        let file =
            file.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "no record is kept")).ok()?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        writeln!(file, "# {}", devices.join(" ")).ok()?;
        Some(Record { file, last: Vec::new() })
    }

    pub(super) fn look(&mut self, now: Ns, seen: &[Seen], directives: impl Iterator<Item = Directive>) {
        self.last.resize(seen.len(), Word::default());
        let mut begun = false;
        for ((seen, directive), last) in seen.iter().zip(directives).zip(&mut self.last) {
            let word = (*seen, directive.open, directive.chunk_units);
            if word == *last {
                continue;
            }
            *last = word;
            if !begun {
                let _ = write!(self.file, "{now}");
                begun = true;
            }
            let Seen { queued, filling, streams, completed, submitted } = *seen;
            let Directive { lane, open, chunk_units, unit_ns, charged, .. } = directive;
            let _ = write!(
                self.file,
                " {}:{queued},{filling},{streams},{completed},{submitted},{},{chunk_units},{unit_ns},{charged}",
                lane.0,
                u8::from(open)
            );
        }
        if begun {
            let _ = writeln!(self.file);
        }
    }
}
