//! Modules in wasmtime's interpreter, chosen by a variable and by the system. The choice belongs to a
//! process, so each test runs in one of its own.

use std::process::Command;
use std::time::Instant;

use watm_runtime::{Engine, EngineConfig, Execution};

use watm_test_support::{LOCALHOST, assert_serves, engine, guest_bytes, uncached_engine};

const VARIABLE: &str = "WATM_ENGINE";
const ALONE: &str = "WATM_TEST_ALONE";

/// Runs tests of this program, by the beginnings of their names, in the interpreter.
fn interpreted(tests: &[&str]) {
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(tests)
        .env(VARIABLE, "pulley")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    assert!(!said.contains(" 0 passed"), "{said}");
}

/// Runs one test of this program, which does its work if [`ALONE`] is set.
fn alone(test: &str, variable: Option<&str>) {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1");
    command.env_remove(VARIABLE);
    command.envs(variable.map(|value| (VARIABLE, value)));
    let output = command.output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    assert!(said.contains("1 passed"), "{said}");
}

fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

fn serves() {
    let module = engine().load("guest", guest_bytes()).expect("loads");
    let server = watm_runtime::Server::builder(&module)
        .udp("listen", LOCALHOST)
        .start()
        .expect("starts");
    assert_serves(&server);
}

#[test]
fn the_variable_chooses_it() {
    if !is_alone() {
        return alone("interpreter::the_variable_chooses_it", Some("pulley"));
    }
    assert_eq!(uncached_engine().execution(), Execution::Interpreted);
    serves();
}

#[test]
fn machine_code_is_the_default() {
    if !is_alone() {
        return alone("interpreter::machine_code_is_the_default", None);
    }
    assert_eq!(uncached_engine().execution(), Execution::Native);
    serves();
}

#[test]
fn another_word_is_refused() {
    if !is_alone() {
        return alone("interpreter::another_word_is_refused", Some("fast"));
    }
    let refused = Engine::new(EngineConfig::default()).err();
    let refused = refused.expect("not a choice").to_string();
    assert_eq!(
        refused,
        "WATM_ENGINE is \"fast\"; must be native, pulley or unset"
    );
}

/// A process that asked the kernel to make no more memory executable, as systemd's
/// `MemoryDenyWriteExecute=` does.
#[cfg(target_os = "linux")]
#[test]
fn a_system_without_executable_memory_chooses_it() {
    if !is_alone() {
        let this = "interpreter::a_system_without_executable_memory_chooses_it";
        return alone(this, None);
    }
    // SAFETY: the call takes numbers alone. The values are those of linux/prctl.h.
    let asked = unsafe { libc::prctl(65, 1, 0, 0, 0) };
    if asked != 0 {
        // Kernels before 6.3.
        println!("this kernel has no PR_SET_MDWE");
        return;
    }
    assert_eq!(uncached_engine().execution(), Execution::Interpreted);
    serves();
}

#[test]
fn traps_memory_and_time_are_bounded_there_too() {
    interpreted(&["failures::", "water::dialer::"]);
}

/// The price, printed: a round trip through a module, and its start.
#[test]
#[ignore = "a measurement"]
fn what_it_costs() {
    let begin = Instant::now();
    let module = engine().load("guest", guest_bytes()).expect("loads");
    let loaded = begin.elapsed();
    let server = watm_runtime::Server::builder(&module)
        .udp("listen", LOCALHOST)
        .start()
        .expect("starts");
    let client = watm_test_support::Client::new(&server);
    let begin = Instant::now();
    for _ in 0..10_000 {
        assert_eq!(client.ask("!ping"), "pong");
    }
    println!(
        "{:?}: loaded in {loaded:?}, {:?} for each round trip",
        engine().execution(),
        begin.elapsed() / 10_000
    );
}
