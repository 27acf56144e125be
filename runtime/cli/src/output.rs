//! Results on standard output. The macros here replace the standard library's, which end the
//! program when a reader has closed the pipe: `watm inspect FILE | head -1`.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};

use crate::failure::Failure;

/// The first error of standard output.
static FAULT: Mutex<Option<io::Error>> = Mutex::new(None);

/// Moves a terminal's cursor to the start, and erases everything after it (ECMA-48, CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

macro_rules! print {
    ($($text:tt)*) => {
        $crate::output::print(format_args!($($text)*))
    };
}

macro_rules! println {
    ($($text:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Prints to standard output. Keeps errors for [`finish`].
pub(crate) fn print(text: fmt::Arguments<'_>) {
    note(io::stdout().lock().write_fmt(text));
}

/// Flushes standard output, and returns its first error. A closed pipe is not a failure: the reader
/// has what it needs.
pub(crate) fn finish() -> Result<(), Failure> {
    note(io::stdout().flush());
    let fault = FAULT.lock().unwrap_or_else(PoisonError::into_inner).take();
    match fault {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Shows a text in place of the last one on a terminal, and after it elsewhere. Returns false if
/// nobody reads any more; [`finish`] has the error.
pub(crate) fn refresh(text: &str) -> bool {
    let mut out = io::stdout().lock();
    let clear = if out.is_terminal() { CLEAR } else { "" };
    let shown = writeln!(out, "{clear}{text}").and_then(|()| out.flush());
    let read = shown.is_ok();
    note(shown);
    read
}

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let mut fault = FAULT.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(error);
    }
}
