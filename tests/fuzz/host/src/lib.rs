//! What a stranger's file can bring to the host, as functions of bytes. `README.md` in the
//! folder above says how to run one under a fuzzer.

mod grants;
mod module;
mod recording;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use watm_runtime::Error;

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("grants", grants::run),
    ("module", module::run),
    ("recording", recording::run),
];

/// The longest error, in characters: a line for people.
const LONGEST: usize = 1000;

/// An error is one line, not too long, and begins with the file that it is of.
fn check_line(error: &Error, file: &str) {
    let text = error.to_string();
    assert!(
        !text.chars().any(char::is_control),
        "not one line: {text:?}"
    );
    assert!(text.chars().count() <= LONGEST, "too long: {text}");
    assert!(text.starts_with(file), "of which file? {text}");
}

thread_local! {
    static FILE: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// A file that goes with its thread.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let thread = std::thread::current().id();
        let name = format!("watm-fuzz-{}-{thread:?}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error: it is not there.
        let _ = fs::remove_file(&self.0);
    }
}

/// Do something with a file of this content.
fn with_file<T>(content: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    FILE.with_borrow(|file| {
        fs::write(&file.0, content).expect("written");
        work(&file.0)
    })
}
