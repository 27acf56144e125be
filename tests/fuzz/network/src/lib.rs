//! Input from other programs to the host itself, as functions of bytes: clients of its proxies, servers
//! of DNS, registries and web servers with modules. `README.md` in the folder above says how to run
//! one under a fuzzer.

mod clients;
mod dns;
mod registry;

use tokio::runtime::{Builder, Runtime};

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("dns", dns::run),
    ("http", clients::http),
    ("registry", registry::run),
    ("socks", clients::socks),
];

/// One thread, which looks at the sockets after each step of a task: what is sent in two pieces
/// comes in two pieces.
fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.event_interval(1).enable_all();
    builder.build().expect("a runtime")
}

/// An error is one line for people.
fn check_line(line: &str) {
    assert!(
        !line.chars().any(char::is_control),
        "not one line: {line:?}"
    );
    assert!(line.chars().count() <= 1000, "too long: {line}");
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}
