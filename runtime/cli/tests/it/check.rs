//! `watm check`, with modules that break one rule each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use watm_test_support::command::program;
use watm_test_support::{component_of, repository, scratch};

/// The source of a whole transport, which each test breaks in one place.
const SOURCE: &str = "examples/tcp-forward";

#[test]
fn a_good_module_passes_everything() {
    let (said, status) = check(&changed("good", &[]), &["--json"]);
    assert_eq!(status, 0, "{said}");
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let checks = report["checks"].as_array().expect("a list");
    assert_eq!(checks.len(), 13, "{said}");
    for check in checks {
        assert_eq!(check["result"], "good", "{check}");
    }
}

#[test]
fn each_broken_rule_fails_its_check() {
    for (check_name, find, replace, reason) in [
        (
            "start",
            "        let (connections, unfinished) = Default::default();\n        let forward",
            "        let (connections, unfinished) = Default::default();\n        if true { panic!() }\n        let forward",
            "the start of a server",
        ),
        (
            "configurations",
            "        let listener = match Listener::open",
            "        assert!(options.config.len() < 5000);\n        let listener = match Listener::open",
            "a configuration of a MiB",
        ),
        (
            "idle",
            "            Wakeup::OnReady\n        } else {",
            "            Wakeup::Again\n        } else {",
            "calls of `process` a second",
        ),
        (
            "strangers",
            "            let Ok(Some(outer)) = listener.accept",
            "            assert!(self.last < 20);\n            let Ok(Some(outer)) = listener.accept",
            "failed and was started again",
        ),
        (
            "reconfigure",
            "    fn reconfigure(_: Vec<u8>, _: u64) -> Result<(), ConfigError> {\n",
            "    fn reconfigure(config: Vec<u8>, _: u64) -> Result<(), ConfigError> {\n        assert!(config.first() != Some(&b'['));\n",
            "brackets",
        ),
        (
            "swap",
            "        let listener = match Listener::open",
            "        assert!(options.generation < 2);\n        let listener = match Listener::open",
            "swap 2",
        ),
        (
            // Both ends change the byte: a change that undoes itself would pass.
            "bytes",
            "Some(data) => self.pending = data,",
            "Some(mut data) => { if data.len() > 1000 { data[7] = data[7].wrapping_add(1); } self.pending = data }",
            "another byte at",
        ),
        (
            "half-close",
            "                    to.shutdown(Direction::Write)?;\n",
            "                    return Err(ErrorCode::ConnectionReset);\n",
            "connection reset",
        ),
        (
            "reset",
            "                    connection.ends.iter().for_each(|end| end.reset(&reason));\n                    self.connections.remove(&number);",
            "                    let _ = reason;\n                    std::mem::forget(self.connections.remove(&number));",
            "does not learn of a reset",
        ),
        (
            "back-pressure",
            "            if !self.pending.is_empty() {\n                return Ok(false); // The host names `to` when it has room.\n            }",
            "            if self.pending.len() > 1000 { self.pending.clear(); }",
            "took 64 MiB without a reader",
        ),
        (
            "many",
            "        self.last += 1;\n        let outer = sockets::connect",
            "        self.last += 1;\n        if self.last > 50 { return Err(ErrorCode::LimitReached); }\n        let outer = sockets::connect",
            "stream 50",
        ),
        (
            "swap-streams",
            "    fn serving(generation: u32, _: u64) {\n",
            "    fn serving(generation: u32, _: u64) {\n        FORWARD.with_borrow_mut(|f| if let Some(f) = f && generation != f.generation { f.connections.clear() });\n",
            "message",
        ),
    ] {
        let module = changed(check_name, &[(find, replace)]);
        let (said, status) = check(&module, &["--only", check_name]);
        assert_eq!(status, 1, "{check_name}: {said}");
        assert!(said.contains(&format!("FAILED  {check_name}")), "{said}");
        assert!(said.contains(reason), "{check_name}: {said}");
    }
}

#[test]
fn a_check_that_does_not_exist_is_named() {
    let (said, status) = check(Path::new("x.wasm"), &["--only", "speed"]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("must be one of description, start"), "{said}");
}

/// Runs the command. Returns what it printed, and its status.
fn check(module: &Path, options: &[&str]) -> (String, i32) {
    let mut command = Command::new(program());
    command.args(["check", "--unsealed", "--log", "off"]);
    let state = scratch().join("check/state.json");
    command.arg(module).arg("--state").arg(state).args(options);
    let done = command.output().expect("runs");
    let said = [done.stdout, done.stderr].concat();
    (
        String::from_utf8(said).expect("text"),
        done.status.code().expect("no signal"),
    )
}

/// Builds the module with these changes of its source, as a crate of another name: cargo takes crates of
/// one name for the same one, and builds a source again only if it is newer than the last build.
fn changed(name: &str, changes: &[(&str, &str)]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _building = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = scratch().join("check");
    fs::create_dir_all(folder.join("src")).expect("a folder");
    let read = |file| fs::read_to_string(repository().join(SOURCE).join(file)).expect("read");
    for file in ["Cargo.toml", "Cargo.lock"] {
        let renamed = read(file).replace("\"tcp-forward\"", "\"checked\"");
        fs::write(folder.join(file), renamed).expect("written");
    }
    let mut source = read("src/lib.rs");
    let wit = repository().join("wit");
    source = source.replace("../../wit", wit.to_str().expect("text"));
    for (find, replace) in changes {
        assert_eq!(source.matches(find).count(), 1, "{name}: {find}");
        source = source.replace(find, replace);
    }
    fs::write(folder.join("src/lib.rs"), source).expect("written");
    let file = folder.join(format!("{name}.wasm"));
    fs::write(&file, component_of(&folder, "checked")).expect("written");
    file
}
