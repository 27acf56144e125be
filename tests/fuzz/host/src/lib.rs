//! Inputs to the host from hostile files and modules, as functions of bytes. `README.md` in the folder
//! above describes how to run one in a fuzzer.

mod component_calls;
mod grants;
mod guests;
mod module;
mod recording;
mod serve_config;
mod shapes;
mod water_calls;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use watm_runtime::{CacheDir, Engine, EngineConfig, Error, Module, Trust};

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("component-calls", component_calls::run),
    ("grants", grants::run),
    ("module", module::run),
    ("recording", recording::run),
    ("serve-config", serve_config::run),
    ("shapes", shapes::run),
    ("water-calls", water_calls::run),
];

/// The longest error, in characters: a line for people.
const LONGEST: usize = 1000;

/// Checks that an error is one short line that begins with the name of its file.
fn check_line(error: &Error, file: &str) {
    check_text(&error.to_string(), file);
}

/// Checks the text of an error.
fn check_text(text: &str, file: &str) {
    assert!(
        !text.chars().any(char::is_control),
        "not one line: {text:?}"
    );
    assert!(text.chars().count() <= LONGEST, "too long: {text}");
    assert!(text.starts_with(file), "of which file? {text}");
}

/// An engine that accepts modules without a seal.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let cache = CacheDir::Off;
    let trust = Trust::at("/nowhere/state").allow_unsealed(true);
    Engine::new(EngineConfig { cache, trust }).expect("an engine")
});

/// Loads a module by its path in the repository. `make target` builds it.
fn load(path: &str, target: &str) -> Module {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let module = ENGINE.load_file(root.join(path));
    module.unwrap_or_else(|error| panic!("{error}; `make {target}` makes it"))
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
