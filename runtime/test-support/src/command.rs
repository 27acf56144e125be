//! The program `watm`, as a shell runs it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::{PATIENCE, directory, profile, scratch, water};

/// Returns the program, which cargo builds with the tests of its crate.
pub fn program() -> PathBuf {
    let path = profile().join("watm");
    assert!(path.exists(), "{}: build it with --bins", path.display());
    path
}

/// Text in the record of loading a module without a seal.
const NOT_SEALED: &str = ": not sealed; accepted";

/// A running program, and the address that it listens on.
pub struct Server {
    pub child: Child,
    pub stderr: BufReader<ChildStderr>,
    pub address: SocketAddr,
}

impl Server {
    pub fn start(arguments: &[&dyn AsRef<OsStr>]) -> Server {
        let mut child = watm(arguments).spawn().expect("starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while line.is_empty() || line.contains(NOT_SEALED) {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).expect("text"), 0, "it ended");
        }
        let said = message(line.trim_end());
        let address = said.strip_prefix("listening on ");
        let address = address.unwrap_or_else(|| panic!("another first line: {line}"));
        let address = address.parse().expect("an address");
        Server {
            child,
            stderr,
            address,
        }
    }

    /// Asks it to end. Returns its status and the rest of its output.
    pub fn stop(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        let asked = Instant::now();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.expect("runs").success());
        let status = self.child.wait().expect("ends");
        assert!(asked.elapsed() < Duration::from_secs(5), "it took long");
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).expect("text");
        (status.code(), text)
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address)
    }
}

/// Ends the program if the test fails.
impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the message of a line, in text or in JSON.
pub fn message(line: &str) -> String {
    let record: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let message = record.and_then(|record| record["message"].as_str().map(str::to_owned));
    message.unwrap_or_else(|| line.to_owned())
}

pub fn watm(arguments: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program());
    // Freshly built modules have no seal. Tests with sealed ones pass `--sealed` first.
    let (switch, arguments) = match arguments {
        [first, rest @ ..] if first.as_ref() == "--sealed" => (None, rest),
        [first, ..] => {
            let runs = ["dial", "listen", "relay", "replay"].map(OsStr::new);
            let runs = runs.contains(&first.as_ref());
            (runs.then_some("--unsealed"), arguments)
        }
        [] => (None, arguments),
    };
    command
        .args(arguments.iter().map(|argument| argument.as_ref()))
        .args(switch)
        .env("XDG_CACHE_HOME", scratch())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns its status, its output, and its standard error.
pub fn run(arguments: &[&dyn AsRef<OsStr>], input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut child = watm(arguments).spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // An error means that it has ended without reading.
    let writing = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ends");
    writing.join().expect("no panic");
    (output.status.code(), output.stdout, said(output.stderr))
}

/// Returns its output without the record that the module has no seal.
pub fn said(stderr: Vec<u8>) -> String {
    let text = String::from_utf8(stderr).expect("text");
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.contains(NOT_SEALED)).collect()
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Returns the file of the plain module, whose configuration is its destination as a fixed
/// dialer.
pub fn plain() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let text = water::PLAIN;
        file("plain.wasm", &wat::parse_str(text).expect("valid text"))
    })
    .clone()
}

pub fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = directory(&format!("command-{name}")).join(name);
    std::fs::write(&path, content).expect("written");
    path
}

/// Returns its status, with a standard output or error that nobody reads.
pub fn unread(arguments: &[&dyn AsRef<OsStr>]) -> [Option<i32>; 2] {
    [true, false].map(|output| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = watm(arguments);
        command.stdin(Stdio::null());
        match output {
            true => command.stdout(writer).stderr(Stdio::null()),
            false => command.stdout(Stdio::null()).stderr(writer),
        };
        command.status().expect("runs").code()
    })
}
