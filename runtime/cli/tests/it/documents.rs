//! Completions for shells, and manual pages.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use watm_test_support::command::run;
use watm_test_support::directory;

/// Returns the commands that `watm --help` lists.
fn commands() -> BTreeSet<String> {
    let (status, help, said) = run(&[&"--help"], b"");
    assert_eq!(status, Some(0), "{said}");
    let help = String::from_utf8(help).expect("text");
    let (_, listed) = help.split_once("Commands:\n").expect("commands");
    listed
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_a_command() {
    let (status, script, said) = run(&[&"completions", &"bash"], b"");
    assert_eq!(status, Some(0), "{said}");
    let mut bash = Command::new("bash")
        .arg("--norc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a bash");
    let mut input = bash.stdin.take().expect("piped");
    input.write_all(&script).expect("written");
    let ask =
        "\nCOMP_WORDS=(watm keyg) COMP_CWORD=1\n_watm watm keyg watm\necho \"${COMPREPLY[@]}\"\n";
    input.write_all(ask.as_bytes()).expect("written");
    drop(input);
    let output = bash.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "keygen\n");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = directory("manual");
    fs::create_dir_all(&folder).expect("made");
    let (status, _, said) = run(&[&"man", &folder], b"");
    assert_eq!(status, Some(0), "{said}");
    let commands = commands();
    assert!(commands.contains("keygen"), "{commands:?}");
    for command in commands.iter().filter(|name| *name != "help") {
        let page = folder.join(format!("watm-{command}.1"));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
        // Nothing of the machine or the day.
        assert!(text.contains(&format!(".TH watm-{command} 1")), "{text}");
    }
    assert!(folder.join("watm.1").is_file());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = directory("manual of nobody").join("missing");
    let (status, _, said) = run(&[&"man", &folder], b"");
    assert_eq!(status, Some(2));
    assert!(said.contains("missing"), "{said}");
}
