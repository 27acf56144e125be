//! Scripts of TCP in `scripts`: what the stack must do at which time, from RFCs and from the bugs
//! of other stacks. `SCRIPT=topic/name` runs one alone. `scripts/README.md` describes the format.

mod script;
mod support;

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The least number of scripts: none gets lost unnoticed.
const LEAST: usize = 400;
/// The names of which a script's first line has one.
const SOURCES: [&str; 7] = [
    "RFC ", "draft-", "Linux", "smoltcp", "lwIP", "gVisor", "FreeBSD",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// All scripts by name, and their text.
fn scripts() -> Vec<(String, String)> {
    let mut scripts = Vec::new();
    for topic in fs::read_dir(folder()).expect("the folder of scripts") {
        let topic = topic.expect("an entry").path();
        if !topic.is_dir() {
            continue;
        }
        for file in fs::read_dir(&topic).expect("a topic") {
            let file = file.expect("an entry").path();
            let name = file.strip_prefix(folder()).expect("below it");
            let name = name.to_str().expect("a name in Unicode").replace('\\', "/");
            let name = name
                .strip_suffix(".tcp")
                .unwrap_or_else(|| panic!("{name} is no script"));
            let text = fs::read_to_string(&file).expect("a text");
            scripts.push((name.to_string(), text));
        }
    }
    scripts.sort();
    scripts
}

/// The failure of a script, as text. A panic of the stack is one too.
fn failure(name: &str, text: &str) -> Option<String> {
    let outcome = std::panic::catch_unwind(|| script::run(text));
    let failure = match outcome {
        Ok(Ok(())) => return None,
        Ok(Err(failure)) => failure,
        Err(_) => return Some(format!("{name}: panicked (the message is above)")),
    };
    let line = text.lines().nth(failure.line - 1).unwrap_or_default();
    let trace = failure.trace.join("\n    ");
    let number = failure.line;
    Some(format!(
        "{name}.tcp:{number}: {}\n  {line}\n    {trace}",
        failure.reason
    ))
}

#[test]
fn every_script_holds() {
    let all = scripts();
    let only = env::var("SCRIPT").ok();
    assert!(
        only.is_some() || all.len() >= LEAST,
        "only {} scripts",
        all.len()
    );
    let chosen = |name: &str| {
        only.as_ref()
            .is_none_or(|only| name.starts_with(only.as_str()))
    };
    let mut count = 0;
    let mut failures = Vec::new();
    for (name, text) in all.iter().filter(|(name, _)| chosen(name)) {
        count += 1;
        let first = text.lines().next().unwrap_or_default();
        if !SOURCES.iter().any(|source| first.contains(source)) {
            failures.push(format!("{name}: the first line names no RFC and no bug"));
        }
        failures.extend(failure(name, text));
    }
    assert!(count > 0, "no script has this name");
    assert!(
        failures.is_empty(),
        "{} of {count} scripts fail:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// A script that must fail in this line, with this reason.
fn fails(text: &str, line: usize, reason: &str) {
    let failure = script::run(text).expect_err(text);
    assert_eq!(failure.line, line, "{text}: {}", failure.reason);
    assert!(
        failure.reason.contains(reason),
        "{text}: {}",
        failure.reason
    );
}

#[test]
fn what_a_script_expects_and_the_stack_does_not_do_is_a_failure() {
    fails("# x\naccept\napp write 10\n", 3, "unexpected");
    fails("# x\naccept\napp write 10\n> ACK seq 1:12\n", 4, "length");
    fails("# x\naccept\napp write 10\n> ACK seq 2\n", 4, "seq");
    fails("# x\naccept\napp write 10\n> FIN+ACK\n", 4, "flags");
    fails(
        "# x\naccept\napp write 10\n> ACK \"0123456789\"\n",
        4,
        "text",
    );
    fails("# x\naccept\n> ACK\n", 3, "got nothing");
    fails("# x\naccept\napp write 10\n+1ms > ACK\n", 4, "too early");
    fails("# x\naccept\napp write 10\nquiet 1s\n", 4, "unexpected");
    fails(
        "# x\naccept\n< ACK seq 1:2\nquiet 1s\n",
        4,
        "before the end",
    );
    fails(
        "# x\naccept\n< ACK seq 1:2\n> ACK ack 2\n",
        4,
        "got nothing",
    );
    fails(
        "# x\naccept\n< ACK seq 1:2\n+0..5ms > ACK ack 3\n",
        4,
        "ack",
    );
    fails("# x\naccept\nexpect nxt 2\n", 3, "got 1");
    fails("# x\naccept\napp is ended\n", 3, "unended");
    fails("# x\naccept\napp read 1\n", 3, "got 0");
    fails(
        "# x\naccept\n< ACK seq 1 \"ab\"\n+0..5ms > ACK\napp read \"ac\"\n",
        5,
        "got \"ab\"",
    );
    fails("# x\naccept\nrun 1s acked 5\n", 3, "got 1");
    fails(
        "# x\naccept\napp write 10\n> data 1:12\n",
        4,
        "from 11 to 12",
    );
}

#[test]
fn a_script_that_is_no_script_is_a_failure() {
    fails("accept\n", 0, "first line");
    fails("# x\n", 1, "does nothing");
    fails("# x\naccept\nfoo\n", 3, "\"foo\" is no statement");
    fails("# x\naccept\napp dance\n", 3, "no action");
    fails("# x\naccept\n< ACK sec 1\n", 3, "no field");
    fails("# x\naccept\n< AKK\n", 3, "no flag");
    fails("# x\naccept\n+1 < ACK\n", 3, "no unit");
    fails("# x\naccept\nrepeat 2\nquiet 1ms\n", 3, "without its end");
    fails("# x\naccept\nmtu 1280\n", 3, "before the first packet");
    fails("# x\naccept\nexpect foo 1\n", 3, "known name");
    fails("# x\naccept\nrun 1s fast 1\n", 3, "knows no");
    fails("# x\naccept\n<& ACK\n", 3, "wait for one");
}
