//! `watm serve`, as a service manager runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use watm_runtime::share_address;

use watm_test_support::command::{plain, program};
use watm_test_support::water::Guest;
use watm_test_support::{LOCALHOST, PATIENCE, directory, scratch, tcp_forward_bytes};

/// A running server, and its output.
struct Program {
    child: Child,
    said: Receiver<String>,
    addresses: Vec<SocketAddr>,
    web: Option<SocketAddr>,
}

impl Program {
    /// Starts it with this configuration, which has this many addresses.
    fn start(config: &Path, addresses: usize, arguments: &[&str]) -> Program {
        let mut command = watm();
        command.arg("serve").arg("--unsealed").arg(config);
        Program::spawn(command.args(arguments), addresses)
    }

    fn spawn(command: &mut Command, addresses: usize) -> Program {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, said) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // Nobody may be listening any more.
                let _ = sender.send(line);
            }
        });
        let mut program = Program {
            child,
            said,
            addresses: Vec::new(),
            web: None,
        };
        while program.addresses.len() < addresses || program.web.is_none() {
            let line = program.line();
            if let Some(address) = line.strip_prefix("listening on ") {
                program.addresses.push(address.parse().expect("an address"));
            } else if let Some(address) = line.strip_prefix("metrics on ") {
                program.web = Some(address.parse().expect("an address"));
            }
        }
        program
    }

    fn line(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("a line")
    }

    fn await_line(&self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    fn connect(&self) -> TcpStream {
        connect(self.addresses[0])
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("runs").success());
    }

    /// Returns the status and the body of a page.
    fn get(&self, page: &str) -> (u16, String) {
        let mut stream = connect(self.web.expect("it has pages"));
        write!(
            stream,
            "GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status");
        (status.parse().expect("a number"), body.to_owned())
    }

    fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watm() -> Command {
    let mut command = Command::new(program());
    command.env("XDG_CACHE_HOME", scratch());
    command
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Writes a configuration with one listener of these lines, in a folder of its own.
fn configuration(name: &str, module: &Path, lines: &str) -> PathBuf {
    let path = directory(&format!("serve-{name}")).join("watm.toml");
    write_configuration(&path, module, lines);
    path
}

fn write_configuration(path: &Path, module: &Path, lines: &str) {
    let text = format!(
        "[metrics]\nlisten = \"127.0.0.1:0\"\n[[listener]]\nname = \"it\"\nmodule = {module:?}\n\
         addresses = [\"127.0.0.1:0\"]\n{lines}\n"
    );
    std::fs::write(path, text).expect("written");
}

/// Returns a component, and a WATER module.
fn modules(name: &str) -> [PathBuf; 2] {
    let component = directory(&format!("serve-{name}-module")).join("component.wasm");
    std::fs::write(&component, tcp_forward_bytes()).expect("written");
    [component, plain()]
}

/// Starts an application that echoes. Its backlog is as long as the server's, since clients would
/// otherwise wait for a second.
fn echo() -> SocketAddr {
    let listener = share_address(LOCALHOST, false, 1, 1024)
        .expect("a port")
        .pop();
    let listener = listener.expect("one");
    listener.set_nonblocking(false).expect("set");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("another");
                // An error means that the client is gone.
                let _ = std::io::copy(&mut &stream, &mut writer);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

/// Starts an application that accepts one connection after the other, and passes them on.
fn application() -> (SocketAddr, Receiver<TcpStream>) {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    let address = listener.local_addr().expect("bound");
    let (sender, accepted) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            if sender.send(stream).is_err() {
                return;
            }
        }
    });
    (address, accepted)
}

fn exchange(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).expect("sent");
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, text);
}

/// Returns true if the other end has reset or ended it, with nothing more to read.
fn is_over(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

#[test]
fn connections_reach_the_application_whole_by_tcp_and_by_a_path() {
    let folder = directory("serve-path");
    let path = folder.join("application");
    let listener = UnixListener::bind(&path).expect("a path");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("until the end");
            all.reverse();
            stream.write_all(&all).expect("sent");
        }
    });
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    for (index, module) in modules("whole").iter().enumerate() {
        let lines = format!("upstream = \"{}\"", echo());
        let config = configuration(&format!("tcp-{index}"), module, &lines);
        let program = Program::start(&config, 1, &["--workers", "2"]);
        let mut stream = program.connect();
        let mut writer = stream.try_clone().expect("another");
        let data = sent.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&data).expect("sent");
            writer.shutdown(Shutdown::Write).expect("ended");
        });
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("an end");
        writing.join().expect("no panic");
        assert_eq!(heard, sent);
        let line = program.await_line("closed");
        for part in [
            "listener=\"it\"",
            "bytes_in=3000000",
            "bytes_out=3000000",
            "reason=\"done\"",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(program.stop(), Some(0));

        let lines = format!("upstream = \"unix:{}\"", path.display());
        let config = configuration(&format!("path-{index}"), module, &lines);
        let program = Program::start(&config, 1, &[]);
        let mut stream = program.connect();
        stream.write_all(b"stressed").expect("sent");
        // The answer comes after the end of the question: each direction ends by itself.
        stream.shutdown(Shutdown::Write).expect("ended");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, "desserts");
    }
}

#[test]
fn a_slow_reader_gets_all_of_what_an_application_sent_before_it_went() {
    const SENT: usize = 24 << 20;
    let (address, accepted) = application();
    for module in modules("slow") {
        let config = configuration("slow", &module, &format!("upstream = \"{address}\""));
        let program = Program::start(&config, 1, &[]);
        let mut client = program.connect();
        client.write_all(b"go").expect("sent");
        let mut upstream = accepted.recv_timeout(PATIENCE).expect("a connection");
        // Unread bytes would turn its end into a reset.
        upstream.read_exact(&mut [0; 2]).expect("a question");
        let sending = thread::spawn(move || upstream.write_all(&vec![7; SENT]).expect("sent"));
        thread::sleep(Duration::from_millis(100));
        let mut heard = 0;
        let mut buffer = vec![0; 100_000];
        loop {
            match client.read(&mut buffer).expect("no failure") {
                0 => break,
                count => heard += count,
            }
            if heard % 7 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        sending.join().expect("no panic");
        assert_eq!(heard, SENT);
    }
}

#[test]
fn a_fault_of_the_configuration_is_named_and_nothing_starts() {
    let [component, _] = modules("faults");
    let good = "upstream = \"127.0.0.1:1\"";
    for (lines, expected) in [
        (
            "upstream = \"127.0.0.1:1\"\nworker = 3",
            "line 8: unknown field `worker`",
        ),
        (
            "upstream = \"127.0.0.1:1\"\nworkers = 0",
            "line 8: workers: must be \"auto\"",
        ),
        (
            "upstream = \"dynamic\"",
            "line 3: allow: required for a dynamic",
        ),
        (
            "upstream = \"127.0.0.1:1\"\nconfig = \"\"\nconfig-file = \"x\"",
            "line 3: config and",
        ),
        (
            "upstream = \"127.0.0.1:1\"\nconfig = \"watm.toml\"",
            "line 8: config: \"watm.toml\" is a file, but config is the configuration itself; use config-file",
        ),
        (
            "upstream = \"127.0.0.1:1\"\nconfig-file = \"missing\"",
            "listener it: ",
        ),
        (
            "upstream = \"127.0.0.1\"",
            "line 7: upstream: address \"127.0.0.1\": has no port",
        ),
    ] {
        let config = configuration("faults", &component, lines);
        for switches in [&["--check"][..], &[]] {
            let mut command = watm();
            let output = command
                .arg("serve")
                .arg("--unsealed")
                .arg(&config)
                .args(switches);
            let output = output.output().expect("runs");
            let text = String::from_utf8(output.stderr).expect("text");
            assert_eq!(output.status.code(), Some(2), "{lines}: {text}");
            let line = text.lines().last().expect("a line");
            assert!(line.contains(expected), "{lines}: {text}");
            assert!(!text.contains("listening"), "{text}");
        }
    }
    let config = configuration("faults", &component, good);
    let checked = watm()
        .args(["serve", "--unsealed", "--check"])
        .arg(&config)
        .output();
    let checked = checked.expect("runs");
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).ends_with("watm.toml: good\n"));
}

#[test]
fn an_application_is_told_of_the_client_first() {
    let (address, accepted) = application();
    let [module, _] = modules("header");
    for (version, begin) in [
        ("v1", &b"PROXY TCP4 127.0.0.1 127.0.0.1 "[..]),
        ("v2", b"\r\n\r\n\0"),
    ] {
        let lines = format!("upstream = \"{address}\"\nproxy-header = \"{version}\"");
        let program = Program::start(&configuration("header", &module, &lines), 1, &[]);
        let mut client = program.connect();
        client.write_all(b"hello").expect("sent");
        client.shutdown(Shutdown::Write).expect("ended");
        let mut upstream = accepted.recv_timeout(PATIENCE).expect("a connection");
        let mut heard = Vec::new();
        upstream.read_to_end(&mut heard).expect("until the end");
        assert!(heard.starts_with(begin), "{heard:?}");
        assert!(heard.ends_with(b"hello"));
        if version == "v1" {
            let port = client.local_addr().expect("bound").port();
            let line = String::from_utf8(heard).expect("text");
            assert!(line.contains(&format!(" {port} {}\r\n", program.addresses[0].port())));
        }
    }
}

#[test]
fn a_drain_waits_for_what_is_open_and_a_second_signal_does_not() {
    for module in modules("drain") {
        for hurried in [false, true] {
            let config = configuration("drain", &module, &format!("upstream = \"{}\"", echo()));
            let mut program = Program::start(&config, 1, &[]);
            let mut open = program.connect();
            exchange(&mut open, b"before");
            program.signal("TERM");
            program.await_line("draining");
            let deadline = Instant::now() + PATIENCE;
            while TcpStream::connect(program.addresses[0]).is_ok() {
                assert!(Instant::now() < deadline, "it still listens");
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(program.get("/readyz"), (503, "draining\n".to_owned()));
            exchange(&mut open, b"during");
            if hurried {
                program.signal("TERM");
                assert!(is_over(&mut open));
                assert_eq!(program.wait(), Some(1));
            } else {
                drop(open);
                assert_eq!(program.wait(), Some(0));
            }
        }
    }
}

#[test]
fn a_reload_takes_another_module_everywhere_and_a_broken_one_nowhere() {
    for module in modules("reload") {
        let file = directory("serve-reload-file").join("module.wasm");
        let good = std::fs::read(&module).expect("read");
        std::fs::write(&file, &good).expect("written");
        let lines = format!("upstream = \"{}\"\nworkers = 2", echo());
        let config = configuration("reload", &file, &lines);
        let program = Program::start(&config, 1, &[]);
        let sha = |program: &Program| {
            let (_, status) = program.get("/status");
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            status["listeners"][0]["module"]["sha256"]
                .as_str()
                .expect("text")
                .to_owned()
        };
        let before = sha(&program);
        let mut open = program.connect();
        exchange(&mut open, b"before");
        let damaged = b"\0asm\x01\0\0\0\xff".to_vec();
        std::fs::write(&file, &damaged).expect("written");
        program.signal("HUP");
        let refused = program.await_line("keeping the previous configuration");
        assert!(refused.contains("listener it: "), "{refused}");
        assert_eq!(sha(&program), before);
        // With an empty section it is another module.
        let other = [&good[..], b"\0\x02\x01a"].concat();
        std::fs::write(&file, &other).expect("written");
        program.signal("HUP");
        program.await_line("reloaded");
        assert_ne!(sha(&program), before);
        exchange(&mut open, b"after");
        exchange(&mut program.connect(), b"new");
        // A new upstream applies to later connections.
        let (address, accepted) = application();
        write_configuration(
            &config,
            &file,
            &format!("upstream = \"{address}\"\nworkers = 2"),
        );
        program.signal("HUP");
        program.await_line("reloaded");
        program.connect().write_all(b"there").expect("sent");
        accepted.recv_timeout(PATIENCE).expect("a connection");
        exchange(&mut open, b"as it was");
        write_configuration(
            &config,
            &file,
            &format!("upstream = \"{address}\"\nworkers = 3"),
        );
        program.signal("HUP");
        program.await_line("workers: cannot change");
    }
}

#[test]
fn limits_end_connections_and_say_which() {
    let [module, _] = modules("limits");
    let lines = format!(
        "upstream = \"{}\"\n[listener.limits]\nconnections-per-client = 1\nidle-timeout = 0.3",
        echo()
    );
    let program = Program::start(&configuration("limits", &module, &lines), 1, &[]);
    let mut first = program.connect();
    exchange(&mut first, b"one");
    let mut second = program.connect();
    assert!(is_over(&mut second));
    program.await_line("reason=\"client-limit\"");
    let began = Instant::now();
    assert!(is_over(&mut first));
    assert!(
        began.elapsed() >= Duration::from_millis(200),
        "it was not idle"
    );
    program.await_line("reason=\"idle\"");
    exchange(&mut program.connect(), b"again");
    let (_, page) = program.get("/metrics");
    for part in [
        "watm_connections_closed_total{listener=\"it\",reason=\"client-limit\"} 1",
        "watm_connections_closed_total{listener=\"it\",reason=\"idle\"} 1",
        "watm_client_bytes_total{client=\"127.0.0.1\",direction=\"in\"} 8",
        "watm_bytes_total{listener=\"it\",direction=\"out\"} 8",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn an_application_that_is_away_is_noticed_and_survived() {
    let [module, _] = modules("away");
    let away = TcpListener::bind(LOCALHOST).expect("a port");
    let address = away.local_addr().expect("bound");
    drop(away);
    let config = configuration("away", &module, &format!("upstream = \"{address}\""));
    let program = Program::start(&config, 1, &[]);
    let (status, reason) = program.get("/readyz");
    assert_eq!(status, 503);
    assert!(reason.contains(&address.to_string()), "{reason}");
    assert!(is_over(&mut program.connect()));
    program.await_line("reason=\"upstream-refused\"");
    let back = TcpListener::bind(address).expect("the same port");
    thread::spawn(move || back.incoming().for_each(drop));
    assert_eq!(program.get("/readyz"), (200, "ready\n".to_owned()));
    assert!(is_over(&mut program.connect()));
    program.await_line("reason=\"done\"");
    assert_eq!(program.get("/elsewhere").0, 404);
}

#[test]
fn two_hundred_connections_at_once_are_served_at_once() {
    let upstream = echo();
    for module in modules("burst") {
        let config = configuration("burst", &module, &format!("upstream = \"{upstream}\""));
        let program = Program::start(&config, 1, &[]);
        exchange(&mut program.connect(), b"warm");
        let began = Instant::now();
        let mut open: Vec<TcpStream> = (0..200).map(|_| program.connect()).collect();
        for stream in &mut open {
            stream.write_all(b"ping").expect("sent");
        }
        for stream in &mut open {
            stream.read_exact(&mut [0; 4]).expect("an answer");
        }
        // A fifth of a second on a machine of its own; a backlog that is too short takes seconds.
        let took = began.elapsed();
        assert!(took < Duration::from_millis(900), "{took:?}");
    }
}

#[test]
fn a_shortage_of_descriptors_passes() {
    let upstream = echo();
    for module in modules("shortage") {
        let lines = format!("upstream = \"{upstream}\"\nworkers = 1");
        let config = configuration("shortage", &module, &lines);
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n 60 && exec \"$@\"", "sh"])
            .arg(program())
            .env("XDG_CACHE_HOME", scratch())
            .args(["serve", "--unsealed"])
            .arg(&config);
        let program = Program::spawn(&mut command, 1);
        let crowd: Vec<TcpStream> = (0..80).map(|_| program.connect()).collect();
        thread::sleep(Duration::from_millis(300));
        drop(crowd);
        // Earlier connections may still be closing.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut client = program.connect();
            client.write_all(b"after all").expect("sent");
            if client.read_exact(&mut [0; 9]).is_ok() {
                break;
            }
            assert!(Instant::now() < deadline, "it does not serve any more");
        }
        assert_eq!(program.stop(), Some(0));
    }
}

/// Writes a module whose connections pass bytes on, or with this code as its first function.
fn slow_module(path: &Path, init: &str) {
    let text = Guest::v1().init(init).text();
    let bytes = wat::parse_str(text).expect("valid text");
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).expect("written");
    std::fs::rename(new, path).expect("replaced");
}

const NEVER: &str = "(call $pause (i32.const 100000000)) (i32.const 0)";

#[test]
fn the_end_waits_for_no_module_that_does_not_answer() {
    let module = directory("serve-mute").join("module.wasm");
    let lines = "upstream = \"127.0.0.1:1\"\n[drain]\ntimeout = 0.5";
    let config = configuration("mute-config", &module, lines);
    // While it reloads.
    slow_module(&module, "(i32.const 0)");
    let mut program = Program::start(&config, 1, &[]);
    slow_module(&module, NEVER);
    program.signal("HUP");
    program.await_line("not sealed");
    thread::sleep(Duration::from_millis(200));
    let asked = Instant::now();
    program.signal("TERM");
    assert_eq!(program.wait(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(6));

    // While it starts.
    let mut child = watm()
        .args(["serve", "--unsealed"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("text");
    assert!(line.contains("not sealed"), "{line}");
    thread::sleep(Duration::from_millis(200));
    let asked = Instant::now();
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(sent.expect("runs").success());
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(6));
}
