//! `watm replay`.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use watm_runtime::Limits;
use watm_test_support::command::program;
use watm_test_support::{
    Client, builder, directory, guest_bytes, life, reworded_guest, run, scratch, tcp_forward_bytes,
};

fn watm(arguments: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String) {
    let output = Command::new(program())
        .args(arguments.iter().map(|argument| argument.as_ref()))
        .arg("--unsealed")
        .env("XDG_CACHE_HOME", scratch())
        .output()
        .expect("runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}

#[test]
fn the_program_replays() {
    let path = life("program");
    let module = path.with_file_name("guest.wasm");
    let other = path.with_file_name("other.wasm");
    fs::write(&module, guest_bytes()).expect("written");
    fs::write(&other, reworded_guest()).expect("written");
    let replay = OsStr::new("replay");
    let (status, text) = watm(&[&replay, &path, &module]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("the one that was recorded"), "{text}");
    assert!(text.contains("4 instances"), "{text}");
    assert!(text.ends_with("identical\n"), "{text}");

    let (status, text) = watm(&[&replay, &path, &other]);
    // The words are not in this recording.
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("not the one that was recorded"), "{text}");
    fs::write(&other, tcp_forward_bytes()).expect("written");
    let (status, text) = watm(&[&replay, &path, &other]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("different at event"), "{text}");
    let (status, text) = watm(&[&replay, &path, &other, &OsStr::new("--lenient")]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("4 instances"), "{text}");
    for arguments in [[&module, &module], [&path, &path]] {
        let (status, text) = watm(&[&replay, arguments[0], arguments[1]]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.starts_with("watm: "), "{text}");
    }

    assert_eq!(watm(&[&OsStr::new("unknown")]).0, Some(2));
}

#[test]
fn records_of_the_module_are_printed_again() {
    let path = directory("printed").join("life.watm");
    let limits = Limits {
        record_bytes: 1 << 20,
        ..Limits::default()
    };
    let server = builder("printed").limits(limits).record(&path).start();
    let server = server.expect("starts");
    assert_eq!(Client::new(&server).ask("!log"), "logged");
    server.close();
    run(server.wait_closed());
    let module = path.with_file_name("guest.wasm");
    fs::write(&module, guest_bytes()).expect("written");
    let (status, text) = watm(&[&"replay", &"--log", &path, &module]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("log       ERROR flood: record 0 x"), "{text}");
}
