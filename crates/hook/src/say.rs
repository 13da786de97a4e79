//! One line to the user, on standard error, without allocating: for the few things a person must know.

use core::fmt;

/// A line of bounded length; what does not fit is cut.
pub(crate) struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line { bytes: [0; 512], used: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.used;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
        self.used += part.len();
        Ok(())
    }
}

/// Writes a line to standard error.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = fmt::write(&mut line, format_args!("divvy: {message}\n"));
    // SAFETY: the bytes are valid for their length. A closed standard error is nobody's fault.
    unsafe { libc::write(2, line.bytes().as_ptr().cast(), line.bytes().len()) };
}

/// Writes a formatted line to standard error.
#[macro_export]
#[doc(hidden)]
macro_rules! say {
    ($($what:tt)*) => { $crate::say::say(format_args!($($what)*)) };
}
