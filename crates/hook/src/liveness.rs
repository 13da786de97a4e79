//! Who is alive: what a process says about itself, and how its neighbours tell that it is dead when the agent is away.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering};

use divvy_shm::Ledger;
use divvy_shm::ledger::State;

use crate::files;
use crate::process::own_pid;
use crate::say::Line;

/// Up to a page of a file under /proc.
struct Text {
    bytes: [u8; 1024],
    used: usize,
}

fn read(path: core::fmt::Arguments<'_>) -> Option<Text> {
    let mut name = Line::new();
    let _ = write!(name, "{path}\0");
    let mut text = Text { bytes: [0; 1024], used: 0 };
    // SAFETY: the path ends with a zero and the buffer is as long as said.
    unsafe {
        let file = libc::open(name.bytes().as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let got = libc::read(file, text.bytes.as_mut_ptr().cast(), text.bytes.len());
        libc::close(file);
        text.used = usize::try_from(got).ok()?;
    }
    Some(text)
}

/// When a process started, in clock ticks since boot; nothing if there is no such process.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = read(format_args!("/proc/{pid}/stat"))?;
    let stat = core::str::from_utf8(&stat.bytes[..stat.used]).ok()?;
    // The command's name is in brackets and may hold anything; the fields after it are counted from the state, which is the third.
    let fields = stat.rsplit_once(") ")?.1;
    let mut fields = fields.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    // A first thread that ended is a zombie while others go on.
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    fields.nth(1)?.trim().parse().ok().filter(|_| !ended || threads > 1)
}

/// The command's name, as the kernel has it.
pub(crate) fn command_name() -> [u8; 17] {
    let mut name = [0; 17];
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// A number that no other process is likely to have.
pub(crate) fn token() -> u64 {
    let mut token = 0u64;
    // SAFETY: writes at most eight bytes into a number.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, &raw mut token, size_of::<u64>(), libc::GRND_NONBLOCK) };
    if got == 8 { token } else { divvy_shm::clock::monotonic_ns() ^ (u64::from(own_pid()) << 32) }
}

/// The inode of this process's pid namespace; 0 if /proc does not say.
pub(crate) fn own_namespace() -> u64 {
    let mut link = [0u8; 64];
    // SAFETY: the path ends with a zero, and the buffer is as long as said.
    let got = unsafe { libc::readlink(c"/proc/self/ns/pid".as_ptr(), link.as_mut_ptr().cast(), link.len()) };
    let text = usize::try_from(got).ok().and_then(|n| core::str::from_utf8(&link[..n]).ok()).unwrap_or_default();
    text.strip_prefix("pid:[").and_then(|t| t.strip_suffix(']')).and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// The last time this process looked for dead neighbours, on the monotonic clock.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// How often this process looks when memory is short, and when somebody asks how much there is.
pub(crate) const SHORT_OF_MEMORY_NS: u64 = 5_000_000;
pub(crate) const ASKED_NS: u64 = 100_000_000;

/// Gives back what dead processes of the same pid namespace held, unless this process looked so shortly before. The agent does so
/// too, and sooner; this is for when it is away.
pub(crate) fn reap_the_dead(ledger: &Ledger, not_within_ns: u64) {
    let now = divvy_shm::clock::monotonic_ns();
    let last = LOOKED.load(Ordering::Relaxed);
    if now.saturating_sub(last) < not_within_ns
        || LOOKED.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    let namespace = own_namespace();
    if namespace == 0 {
        return;
    }
    let mut reaper = None;
    for process in ledger.processes() {
        let alive = || start_time(process.pid).is_some_and(|t| process.start_time == 0 || t == process.start_time);
        let dead = match process.state {
            State::Live => process.namespace == namespace && !alive(),
            // Its reaper may be dead too; if not, it has the right that we would need.
            State::Reaping => true,
            State::Free | State::Claiming => false,
        };
        if dead {
            reaper = reaper.or_else(|| files::reaper(SHORT_OF_MEMORY_NS));
            let Some(reaper) = &reaper else { return };
            ledger.reap_process(reaper, process.id);
        }
    }
}

/// Gives back what this very process held before it replaced itself by another program: same pid, same start, and no slot of ours yet.
pub(crate) fn reap_former_self(ledger: &Ledger, pid: u32, start_time: u64, namespace: u64) {
    if namespace == 0 {
        return;
    }
    for process in ledger.processes() {
        let same = process.pid == pid && process.start_time == start_time && process.namespace == namespace;
        if same
            && process.state == State::Live
            // Nobody else could tell later that it is not ours.
            && let Some(reaper) = files::reaper(1_000_000_000)
        {
            ledger.reap_process(&reaper, process.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself_and_its_parent_and_no_ghosts() {
        assert!(start_time(own_pid()).unwrap() >= start_time(std::os::unix::process::parent_id()).unwrap());
        assert_eq!(start_time(4_000_000), None);
        assert_ne!(own_namespace(), 0);
        assert_ne!(token(), token());
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while start_time(child.id()).is_some() {
            assert!(std::time::Instant::now() < deadline, "it never ended");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
