//! The conformance kit for hosts, `tests/hosts`, with this host: a test for each case.

mod case;
mod stage;
mod system;

use std::collections::BTreeSet;
use std::fs;

use stage::Stage;
use watm_test_support::{engine, host_case_bytes, older_host_case_bytes};

/// Performs a case with a module of this name. Returns the first fault: the step, and what happened in
/// place of it.
fn perform(name: &str, case: &case::Case, module: &[u8]) -> Result<(), String> {
    let module = engine().load(name, module).expect("loads");
    let Some(stage) = Stage::new(name, case, module) else {
        // The device needs root.
        return Ok(());
    };
    let mut stage = stage?;
    for (number, step) in case.steps.iter().enumerate() {
        stage.perform(step).map_err(|fault| {
            let complaints = stage.complaints();
            format!("{name}: step {}, {step:?}: {fault}{complaints}", number + 1)
        })?;
    }
    Ok(())
}

fn assert_conforms(name: &str) {
    let name = name.replace('_', "-");
    let built = host_case_bytes(&name);
    if let Err(fault) = perform(&name, &case::read(&name), &built) {
        panic!("{fault}");
    }
}

/// Performs a case with the module built for version 0.1.2, if the rule is as old.
fn assert_runs_for_0_1(name: &str) {
    let name = name.replace('_', "-");
    let case = case::read(&name);
    if !case.since.starts_with("0.1.") {
        return;
    }
    let built = older_host_case_bytes(&name);
    if let Err(fault) = perform(&format!("{name} 0.1"), &case, &built) {
        panic!("{fault}");
    }
}

macro_rules! cases {
    ($($name:ident)*) => {
        const CASES: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            assert_conforms(stringify!($name));
        })*

        mod for_0_1 {
            $(#[test]
            fn $name() {
                super::assert_runs_for_0_1(stringify!($name));
            })*
        }
    };
}

cases! {
    again
    back_pressure
    capture
    cipher
    cipher_batch
    client_configs
    coalesce
    connect
    connect_denied
    connect_refused
    datagram_flow_closed
    datagram_flow_dropped
    datagram_lengths
    datagram_train
    device_gone
    dial
    dial_connected
    dial_refused
    dial_reset
    end_of_stream
    failed_successor
    first_process
    flow_facts
    flow_lengths
    flow_limit
    flow_refused
    foreign_handle
    half_close
    listed_once
    log
    lookup
    lookup_denied
    mail
    mail_to_nobody
    mailbox_taken_twice
    network_changed
    offloads
    optional_left_out
    packets
    passed_on
    reader_gone
    receive_limits
    reconfigure
    reset_by_module
    reset_by_peer
    signing
    socket_not_granted
    socket_taken_again
    socket_taken_twice
    starts_armed
    stranger
    successor
    timer
    trap
    waits_for_serving
    wasi
    write_after_end
}

#[test]
fn every_case_of_the_kit_is_a_test_and_has_a_row_on_its_page() {
    let names: BTreeSet<String> = CASES.iter().map(|name| name.replace('_', "-")).collect();
    let folders = fs::read_dir(case::folder().join("cases")).expect("the kit");
    let folders = folders.map(|entry| entry.expect("readable").file_name().into_string());
    let folders: BTreeSet<String> = folders.map(|name| name.expect("text")).collect();
    assert_eq!(names, folders);
    let page = fs::read_to_string(case::folder().join("README.md")).expect("a page");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows: BTreeSet<String> = rows.map(str::to_owned).collect();
    for name in names {
        let case = case::read(&name);
        let row = format!("| `{name}` | {} | `{}` |", case.about, case.rule.item);
        assert!(
            rows.contains(&row),
            "README.md of the kit lacks this row:\n{row}"
        );
    }
}

#[test]
fn every_case_is_about_a_sentence_of_the_interface() {
    for name in CASES {
        let case = case::read(&name.replace('_', "-"));
        let said = case::documentation(&case.rule.file);
        assert!(said.contains(&case.rule.says), "{name}: {}", case.rule.says);
        assert!(
            ["0.1.0", "0.1.1", "0.1.2", "0.2.0"].contains(&&*case.since),
            "{name}"
        );
    }
}

#[test]
fn an_expectation_that_is_not_met_fails_its_case() {
    // A driver that overlooks a fault would pass every host.
    for (name, from, to, fault) in [
        (
            "cipher",
            "\"checks\": 8",
            "\"checks\": 9",
            "8 checks in place of 9",
        ),
        (
            "dial",
            "\"answer\"",
            "\"reply!\"",
            "6 bytes, \"answer\", and not",
        ),
        (
            "datagram-train",
            "\"cc\"",
            "\"cccc\"",
            "2 bytes, \"cc\", and not",
        ),
        (
            "reset-by-module",
            "\"timeout\"",
            "\"access-denied\"",
            "timeout, and not access-denied",
        ),
        (
            "dial-reset",
            "\"connection-refused\"",
            "\"timeout\"",
            "connection refused",
        ),
        ("timer", "490", "100000", "came after"),
        (
            "reconfigure",
            "\"refused\": \"is not good\"",
            "\"refused\": \"x\"",
            "is not good",
        ),
        ("flow-facts", "\"alice\"", "\"bob\"", "alice"),
        (
            "log",
            "\"lacks\": \"record for nobody\"",
            "\"lacks\": \"record for\"",
            "for the user",
        ),
        (
            "successor",
            "\"config\": \"second\"",
            "\"config\": \"third\"",
            "the module finds a fault",
        ),
    ] {
        let file = case::folder().join("cases").join(name).join("case.json");
        let text = fs::read_to_string(file).expect("a case has a file");
        assert!(text.contains(from), "{name}: {from}");
        let wrong = serde_json::from_str(&text.replace(from, to)).expect("a case");
        let found = perform(name, &wrong, &host_case_bytes(name)).expect_err(name);
        assert!(found.contains(fault), "{name}: {found}");
    }
}
