//! Results, on standard output. In the place of the standard library's macros, which end the program
//! when whoever reads has gone: `watm inspect FILE | head -1`.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::failure::Failure;

/// The first thing that went wrong with standard output.
static FAULT: Mutex<Option<io::Error>> = Mutex::new(None);

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

/// To standard output. What goes wrong is kept for [`finish`].
pub(crate) fn print(text: fmt::Arguments<'_>) {
    note(io::stdout().lock().write_fmt(text));
}

/// Whether all that was printed was taken. That a reader has gone is no failure: it has what it
/// wanted.
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

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let mut fault = FAULT.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(error);
    }
}
