//! The journal's files: `NUMBER.jsonl`, named by their first record, each a line per record, appended to and flushed to the disk.
//!
//! The newest file always stays, so that numbers go on after everything was acknowledged. A line that was torn by a power cut ends
//! its file; the next record begins another.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use divvy_core::time::Time;

use super::Entry;

/// A file is closed when it is larger.
const LARGE: u64 = 1 << 20;
const HOUR: u64 = 3_600_000;
/// Files that are read for one page at most. A page is full after one of usual size; each restart of the agent begins another.
const OPENED: usize = 4;

#[derive(Clone, Debug)]
struct Segment {
    path: PathBuf,
    last: u64,
    /// Bytes of whole records.
    len: u64,
}

/// All files.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    epoch: u64,
    most: u64,
    segments: Vec<Segment>,
    /// The newest segment, while it is written.
    current: Option<File>,
    next: u64,
    lost: u64,
}

impl Files {
    /// Opens what is in `dir` and tells `each` record of it, in order.
    pub fn open(dir: &Path, most: u64, now: Time, mut each: impl FnMut(Entry)) -> io::Result<Files> {
        fs::create_dir_all(dir)?;
        let named = dir.join("epoch");
        let epoch = match fs::read_to_string(&named).ok().and_then(|text| text.trim().parse().ok()) {
            Some(epoch) => epoch,
            None => {
                write_whole(&named, format!("{}\n", now.0).as_bytes())?;
                now.0
            }
        };
        let mut names: Vec<(u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let first = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".jsonl")?.parse().ok());
            names.extend(first.map(|first| (first, path)));
        }
        names.sort();
        let mut files = Files { dir: dir.into(), epoch, most, segments: Vec::new(), current: None, next: 1, lost: 0 };
        for (_, path) in names {
            let (mut last, mut len) = (0, 0);
            for line in lines(&path, u64::MAX)? {
                let (text, entry) = line?;
                last = entry.record.sequence;
                len += text.len() as u64;
                if last >= files.next {
                    each(entry);
                }
            }
            // Nothing new: it was thinned into an earlier file, and the power went before it was removed.
            if last < files.next {
                fs::remove_file(&path)?;
                continue;
            }
            files.next = last + 1;
            files.segments.push(Segment { path, last, len });
        }
        Ok(files)
    }

    /// Which journal this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.len).sum()
    }

    /// Records that had to be dropped before anybody had read them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Numbers the records, writes them and waits for the disk.
    pub fn append(&mut self, entries: &mut [Entry]) -> io::Result<()> {
        let mut text = Vec::new();
        for (entry, sequence) in entries.iter_mut().zip(self.next..) {
            entry.record.sequence = sequence;
            serde_json::to_writer(&mut text, entry)?;
            text.push(b'\n');
        }
        let file = match &mut self.current {
            Some(file) => file,
            None => {
                let path = self.dir.join(format!("{:020}.jsonl", self.next));
                let file = File::options().create(true).write(true).truncate(true).open(&path)?;
                self.segments.push(Segment { path, last: self.next - 1, len: 0 });
                self.current.insert(file)
            }
        };
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        let Some(segment) = self.segments.last_mut() else { return Ok(()) };
        if let Err(error) = written {
            // Half a line ends this file; what follows begins another, under the same numbers.
            let _ = file.set_len(segment.len);
            self.current = None;
            if segment.len == 0 {
                let _ = fs::remove_file(&segment.path);
                self.segments.pop();
            }
            return Err(error);
        }
        self.next += entries.len() as u64;
        (segment.last, segment.len) = (self.next - 1, segment.len + text.len() as u64);
        if segment.len > LARGE {
            self.current = None;
            if self.bytes() > self.most {
                self.thin()?;
            }
        }
        Ok(())
    }

    /// The files that hold records numbered above `after`, opened: what is in them stays readable whatever becomes of the journal.
    pub fn unread(&self, after: u64) -> io::Result<Unread> {
        let mut unread = self.segments.iter().filter(|s| s.last > after);
        let opened: io::Result<Vec<Opened>> = unread.by_ref().take(OPENED).map(Opened::open).collect();
        Ok(Unread { after, opened: opened?, further: unread.next().is_some() })
    }

    fn droppable(&self, through: u64) -> usize {
        let all_but_newest = self.segments.len().saturating_sub(1);
        self.segments[..all_but_newest].iter().take_while(|s| s.last <= through).count()
    }

    /// Is there a file to drop, that holds nothing above this number?
    pub fn would_drop(&self, through: u64) -> bool {
        self.droppable(through) > 0
    }

    /// Drops the files that hold nothing above this number.
    pub fn drop_through(&mut self, through: u64) -> io::Result<()> {
        for segment in self.segments.drain(..self.droppable(through)).collect::<Vec<_>>() {
            fs::remove_file(segment.path)?;
        }
        Ok(())
    }

    /// Of old records the last of each hour stays, then the last one alone; and when that is not enough, the oldest go.
    fn thin(&mut self) -> io::Result<()> {
        let merged = self.merge(|entry| Some(entry.record.at.0 / HOUR))?;
        if merged > self.most / 2 {
            self.merge(|_| None)?;
        }
        while self.bytes() > self.most && self.segments.len() > 1 {
            let oldest = self.segments.remove(0);
            let records = lines(&oldest.path, oldest.len)?.count() as u64;
            self.lost += records;
            tracing::error!(records, "the journal is full and nobody reads it: its oldest records are dropped");
            fs::remove_file(oldest.path)?;
        }
        Ok(())
    }

    /// Writes the last record of each container on each device and `period` anew, and nothing else; bytes written.
    fn merge(&mut self, period: impl Fn(&Entry) -> Option<u64>) -> io::Result<u64> {
        self.current = None;
        let key = |entry: &Entry| {
            let mut hasher = DefaultHasher::new();
            (entry.key(), period(entry)).hash(&mut hasher);
            hasher.finish()
        };
        let mut last = HashMap::new();
        for segment in &self.segments {
            for line in lines(&segment.path, segment.len)? {
                let (_, entry) = line?;
                last.insert(key(&entry), entry.record.sequence);
            }
        }
        // Beside the old files first: a full disk leaves everything as it was.
        let mut writing: Option<(Segment, Vec<u8>)> = None;
        let mut done: Vec<(Segment, PathBuf)> = Vec::new();
        for segment in &self.segments {
            for line in lines(&segment.path, segment.len)? {
                let (text, entry) = line?;
                let number = entry.record.sequence;
                if last.get(&key(&entry)) != Some(&number) {
                    continue;
                }
                let path = self.dir.join(format!("{number:020}.jsonl"));
                let (new, bytes) = writing.get_or_insert_with(|| (Segment { path, last: number, len: 0 }, Vec::new()));
                bytes.extend_from_slice(text.as_bytes());
                (new.last, new.len) = (number, bytes.len() as u64);
                if new.len > LARGE {
                    done.extend(writing.take().map(part).transpose()?);
                }
            }
        }
        done.extend(writing.take().map(part).transpose()?);
        let mut segments = Vec::new();
        for (new, part) in done {
            fs::rename(part, &new.path)?;
            segments.push(new);
        }
        for old in std::mem::replace(&mut self.segments, segments) {
            if self.segments.iter().all(|new| new.path != old.path) {
                let _ = fs::remove_file(old.path);
            }
        }
        Ok(self.bytes())
    }
}

/// Records that are still to be read, apart from the journal.
#[derive(Debug)]
pub struct Unread {
    after: u64,
    opened: Vec<Opened>,
    further: bool,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Opened {
    fn open(segment: &Segment) -> io::Result<Opened> {
        Ok(Opened { path: segment.path.clone(), file: File::open(&segment.path)?, len: segment.len })
    }
}

impl Unread {
    /// The first records, at most so many, and whether there are more.
    pub fn read(self, limit: usize) -> io::Result<(Vec<Entry>, bool)> {
        let mut found = Vec::new();
        for Opened { path, file, len } in self.opened {
            for line in lines_of(&path, file, len) {
                let (_, entry) = line?;
                if entry.record.sequence <= self.after {
                    continue;
                }
                if found.len() == limit {
                    return Ok((found, true));
                }
                found.push(entry);
            }
        }
        Ok((found, self.further))
    }
}

/// Writes a segment beside its place.
fn part((segment, bytes): (Segment, Vec<u8>)) -> io::Result<(Segment, PathBuf)> {
    let part = segment.path.with_extension("part");
    let mut file = File::create(&part)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok((segment, part))
}

/// The whole records of a file, each with its line.
fn lines(path: &Path, len: u64) -> io::Result<impl Iterator<Item = io::Result<(String, Entry)>>> {
    Ok(lines_of(path, File::open(path)?, len))
}

fn lines_of(path: &Path, file: File, len: u64) -> impl Iterator<Item = io::Result<(String, Entry)>> {
    let mut reader = BufReader::new(file.take(len));
    let path = path.to_owned();
    std::iter::from_fn(move || {
        let mut text = String::new();
        match reader.read_line(&mut text) {
            Ok(0) => None,
            // Torn: nothing behind it was written.
            Ok(_) if !text.ends_with('\n') => None,
            Ok(_) => match serde_json::from_str(&text) {
                Ok(entry) => Some(Ok((text, entry))),
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "a journal's record cannot be read; it ends there");
                    None
                }
            },
            Err(error) => Some(Err(error)),
        }
    })
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let segment = Segment { path: path.to_owned(), last: 0, len: 0 };
    let (_, part) = part((segment, bytes.to_vec()))?;
    fs::rename(part, path)
}
