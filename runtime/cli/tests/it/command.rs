//! The program `watm`, as a shell runs it.

use std::ffi::OsStr;
use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use watm_test_support::command::{Server, file, plain, run, said, unread, watm};
use watm_test_support::water::Guest;
use watm_test_support::{LOCALHOST, directory, guest_bytes};

/// Starts a server that answers with the bytes it heard, reversed, once its client has ended.
fn backwards() -> String {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accepts");
            thread::spawn(move || {
                let mut heard = Vec::new();
                // An error means that the client is gone.
                if stream.read_to_end(&mut heard).is_ok() {
                    heard.reverse();
                    let _ = stream.write_all(&heard);
                }
            });
        }
    });
    address.to_string()
}

/// Returns an address on which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    listener.local_addr().expect("bound").to_string()
}

/// Sends the question, half-closes, and returns the answer.
fn ask(mut stream: TcpStream, question: &[u8]) -> Vec<u8> {
    stream.write_all(question).expect("written");
    stream.shutdown(Shutdown::Write).expect("ended");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    answer
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8).collect()
}

#[test]
fn standard_input_goes_out_and_the_answer_comes_after_its_end() {
    let server = backwards();
    for len in [0, 5, 1 << 20] {
        let mut question = pattern(len);
        let (status, answer, said) = run(&[&"dial", &plain(), &server], &question);
        assert_eq!(status, Some(0), "{said}");
        question.reverse();
        assert!(answer == question, "{} of {len} bytes", answer.len());
    }
}

#[test]
fn the_other_end_is_passed_on_while_input_goes_on() {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let mut child = watm(&[&"dial", &plain(), &address])
        .spawn()
        .expect("starts");
    let (mut far, _) = listener.accept().expect("accepts");
    far.write_all(b"only this").expect("written");
    far.shutdown(Shutdown::Write).expect("ended");
    let mut heard = Vec::new();
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_to_end(&mut heard).expect("its end");
    assert_eq!(heard, b"only this");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"and this").expect("written");
    drop(stdin);
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).expect("its end");
    assert_eq!(heard, b"and this");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

/// Makes a module that behaves like those of other projects: it ends with the other end, and has no
/// half-closed connections. Runs `last` before that.
fn ends_with_its_peer(last: &str) -> PathBuf {
    let worker = "(loop $on
            (local.set $n (call $read (global.get $net) (i32.const 1024) (i32.const 1024)))
            (if (i32.gt_s (local.get $n) (i32.const 0)) (then
                (drop (call $write (global.get $caller) (i32.const 1024) (local.get $n)))
                (br $on))))
        LAST
        (select (local.get $n) (i32.const -64) (i32.lt_s (local.get $n) (i32.const 0)))";
    let text = Guest::v1().ends(&worker.replace("LAST", last)).text();
    file(
        &format!("ends-{}.wasm", last.len()),
        &wat::parse_str(text).expect("valid text"),
    )
}

#[test]
fn an_end_of_the_peer_before_that_of_the_input_is_no_failure() {
    let ends = ends_with_its_peer("");
    let closes = ends_with_its_peer("(drop (call $fd_close (global.get $caller)))");
    for (module, late, reset, expected) in [
        (&ends, &b""[..], false, None),
        (&closes, b"", false, None),
        // Bytes that nobody reads any more are lost.
        (
            &ends,
            b"late",
            false,
            Some("watm: connection: connection aborted"),
        ),
        (&ends, b"", true, Some("watm: connection: connection reset")),
    ] {
        let listener = TcpListener::bind(LOCALHOST).expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let mut child = watm(&[&"dial", module, &address]).spawn().expect("starts");
        let (mut far, _) = listener.accept().expect("accepts");
        far.write_all(b"all there is").expect("written");
        let mut stdout = child.stdout.take().expect("piped");
        let mut heard = [0; 12];
        stdout.read_exact(&mut heard).expect("what was said");
        if reset {
            let far = socket2::SockRef::from(&far);
            far.set_linger(Some(Duration::ZERO)).expect("set");
        }
        drop(far);
        if !reset {
            assert_eq!(stdout.read(&mut [0; 1]).expect("its end"), 0);
        }
        let mut stdin = child.stdin.take().expect("piped");
        // An error means that it has ended before.
        let _ = stdin.write_all(late);
        drop(stdin);
        let output = child.wait_with_output().expect("ends");
        let said = said(output.stderr);
        match expected {
            None => assert_eq!((output.status.code(), &*said), (Some(0), "")),
            Some(reason) => {
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert!(said.contains(reason), "{said}");
            }
        }
    }
}

#[test]
fn clients_go_through_a_dialer_and_a_listener() {
    let listen = Server::start(&[
        &"listen",
        &plain(),
        &"127.0.0.1:0",
        &"--forward",
        &backwards(),
    ]);
    let through = listen.address.to_string();
    let dial = Server::start(&[&"dial", &plain(), &through, &"--listen", &"127.0.0.1:0"]);
    let clients: Vec<_> = (0..10)
        .map(|_| dial.connect())
        .map(|stream| thread::spawn(move || ask(stream, &pattern(300_000))))
        .collect();
    let mut expected = pattern(300_000);
    expected.reverse();
    for client in clients {
        assert!(client.join().expect("no panic") == expected);
    }
    // One that is open at the end.
    let mut open = dial.connect();
    open.write_all(b"unfinished").expect("written");
    for server in [dial, listen] {
        assert_eq!(server.stop(), (Some(0), String::new()));
    }
}

#[test]
fn a_component_listens_too() {
    let server = Server::start(&[
        &"listen",
        &file("forward.wasm", &watm_test_support::tcp_forward_bytes()),
        &"127.0.0.1:0",
        &"--forward",
        &backwards(),
    ]);
    assert_eq!(ask(server.connect(), b"abc"), b"cba");
    assert_eq!(server.stop(), (Some(0), String::new()));
}

#[test]
fn a_listener_without_upstream_has_one_connection_for_standard_output() {
    let mut server = Server::start(&[&"listen", &plain(), &"127.0.0.1:0"]);
    let mut client = server.connect();
    client.write_all(b"to the terminal").expect("written");
    client.shutdown(Shutdown::Write).expect("ended");
    let mut stdout = server.child.stdout.take().expect("piped");
    let mut heard = Vec::new();
    stdout.read_to_end(&mut heard).expect("its end");
    assert_eq!(heard, b"to the terminal");
    drop(server.child.stdin.take());
    assert_eq!(server.child.wait().expect("ends").code(), Some(0));
}

#[test]
fn a_relay_goes_on_after_a_connection_that_failed() {
    let target = TcpListener::bind(LOCALHOST).expect("a port");
    let address = target.local_addr().expect("bound");
    drop(target);
    let relay = Server::start(&[&"relay", &plain(), &"127.0.0.1:0", &address.to_string()]);
    // An end or a reset: nobody listens.
    let heard = relay.connect().read(&mut [0; 1]);
    assert_eq!(heard.unwrap_or(0), 0);
    let target = TcpListener::bind(address).expect("the same port");
    let mut client = relay.connect();
    client.write_all(b"x").expect("written");
    let mut heard = [0];
    let (mut far, _) = target.accept().expect("accepts");
    far.read_exact(&mut heard).expect("a byte");
    assert_eq!(&heard, b"x");
    assert_eq!(relay.stop().0, Some(0));
}

#[test]
fn a_fixed_dialer_needs_leave() {
    let server = backwards();
    let config = file("fixed.conf", server.as_bytes());
    let fixed: [&dyn AsRef<OsStr>; 5] = [&"dial", &"--fixed", &plain(), &"--config", &config];
    let (status, _, said) = run(&fixed, b"");
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains(&format!("not allowed to reach {server}")),
        "{said}"
    );
    let allowed = [&fixed[..], &[&"--allow", &server]].concat();
    let (status, answer, said) = run(&allowed, b"abc");
    assert_eq!((status, &*answer), (Some(0), &b"cba"[..]), "{said}");
}

#[test]
fn what_fails_says_why_and_how_by_its_status() {
    let taken = TcpListener::bind(LOCALHOST).expect("a port");
    let taken = taken
        .local_addr()
        .map(|address| (taken, address.to_string()));
    let (_taken, taken) = taken.expect("bound");
    let nobody = nobody();
    let text = file("text.wasm", b"(module)");
    let v1_final = wat::parse_str("(module (func (export \"watm_userpipe_v1\")))").expect("text");
    let v1_final = file("final.wasm", &v1_final);
    let refused = format!("connection refused ({nobody})");
    let silent = TcpListener::bind(LOCALHOST).expect("a port");
    let silent = silent
        .local_addr()
        .map(|address| (silent, address.to_string()));
    let (_silent, silent) = silent.expect("bound");
    // Hears everything, and never gets to its worker.
    let waits = watm_test_support::water::PLAIN.replace(
        "(func (export \"watm_init_v1\") (result i32) (i32.const 0))",
        "(func (export \"watm_init_v1\") (result i32) (loop $on (br $on)) (i32.const 0))",
    );
    let waits = file("waits.wasm", &wat::parse_str(&waits).expect("valid text"));
    let cases: &[(&[&dyn AsRef<OsStr>], i32, &str)] = &[
        (&[&"dial", &plain(), &nobody], 1, &refused),
        (&[&"dial", &plain()], 2, "<HOST:PORT>"),
        (&[&"dial", &plain(), &"localhost"], 2, "has no port"),
        (
            &[&"dial", &plain(), &nobody, &"--fixed"],
            2,
            "cannot be used with",
        ),
        (
            &[&"dial", &"absent.wasm", &nobody],
            2,
            "absent.wasm: No such file",
        ),
        (&[&"dial", &text, &nobody], 2, "WebAssembly text"),
        (&[&"dial", &v1_final, &nobody], 2, "v1-final"),
        (
            &[&"dial", &plain(), &nobody, &"--config", &"absent.conf"],
            2,
            "absent.conf: No such",
        ),
        (
            &[&"dial", &plain(), &nobody, &"--allow", &"http://x"],
            2,
            "http",
        ),
        (
            &[&"dial", &plain(), &nobody, &"--timeout", &"0"],
            2,
            "above 0",
        ),
        (
            &[&"dial", &waits, &silent, &"--timeout", &"0.2"],
            1,
            "waits.wasm: ",
        ),
        (
            &[&"dial", &plain(), &nobody, &"--listen", &taken],
            1,
            "in use",
        ),
        (&[&"listen", &plain(), &taken], 1, "address already in use"),
        (&[&"listen", &plain(), &"127.0.0.1"], 2, "has no port"),
        (
            &[&"relay", &plain(), &taken, &nobody],
            1,
            "address already in use",
        ),
        (&[&"relay", &plain(), &"127.0.0.1:0"], 2, "<HOST:PORT>"),
        (
            &[&"relay", &plain(), &"127.0.0.1:0", &"x"],
            2,
            "has no port",
        ),
    ];
    for (arguments, expected, reason) in cases {
        let (status, printed, said) = run(arguments, b"");
        assert_eq!(status, Some(*expected), "{reason}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert_eq!(printed, b"", "{reason}");
        // An invalid command line is shown with its usage.
        assert!(
            said.starts_with("watm: ") && (said.contains("--help") || said.lines().count() == 1),
            "{said}"
        );
    }
}

#[test]
fn failures_of_clients_are_told_once_until_one_succeeds() {
    let upstream = nobody();
    let server = Server::start(&[
        &"dial",
        &plain(),
        &upstream,
        &"--listen",
        &"127.0.0.1:0",
        &"--log-format",
        &"json",
    ]);
    for _ in 0..3 {
        let error = server.connect().read(&mut [0; 1]);
        assert!(error.is_err(), "a failure looks like an end");
    }
    let (status, said) = server.stop();
    assert_eq!(status, Some(0));
    let records: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [record] = &records[..] else {
        panic!("not one record: {said}");
    };
    assert_eq!(record["level"], "WARN");
    let message = record["message"].as_str().expect("text");
    assert!(
        message.contains(&format!("connection refused ({upstream})")),
        "{message}"
    );
}

#[test]
fn modules_are_described_for_people_and_for_programs() {
    let (status, printed, said) = run(&[&"inspect", &plain(), &"--json"], b"");
    assert_eq!((status, &*said), (Some(0), ""));
    let shown: serde_json::Value = serde_json::from_slice(&printed).expect("JSON");
    assert_eq!(shown["kind"], "WATER v1 module");
    assert_eq!(shown["abi"], "v1");
    assert_eq!(shown["roles"][1], "fixed dialer");
    let requests = serde_json::json!(["accept", "dial", "dial-fixed", "config", "log"]);
    assert_eq!(shown["requests"], requests);
    assert_eq!(shown["memory"], 4 << 16);
    assert_eq!(shown["problems"], serde_json::json!([]));
    assert_eq!(shown["sha256"].as_str().map(str::len), Some(64));

    let (status, printed, _) = run(&[&"inspect", &file("guest.wasm", guest_bytes())], b"");
    let printed = String::from_utf8(printed).expect("text");
    assert_eq!(status, Some(0));
    assert!(
        printed.contains("abi       watm:transport/module@"),
        "{printed}"
    );
    assert!(printed.contains("asks      network: sockets"), "{printed}");

    let other = wat::parse_str("(module (func (export \"_water_v1\")))").expect("valid text");
    let (status, printed, said) = run(&[&"inspect", &file("other.wasm", &other)], b"");
    let printed = String::from_utf8(printed).expect("text");
    assert_eq!((status, &*said), (Some(1), ""));
    assert!(
        printed.contains("runs      no: a WATER module of v1_preview"),
        "{printed}"
    );

    let (status, _, said) = run(&[&"inspect", &file("text", b"no module")], b"");
    assert_eq!(status, Some(2));
    assert!(said.contains("not WebAssembly"), "{said}");
}

#[test]
fn a_reader_who_has_enough_ends_no_command_otherwise_than_it_would() {
    let module = plain();
    assert_eq!(unread(&[&"--help"]), [Some(0); 2]);
    assert_eq!(unread(&[&"inspect", &module]), [Some(0); 2]);
    assert_eq!(unread(&[&"inspect", &module, &"--json"]), [Some(0); 2]);
    assert_eq!(unread(&[&"inspect", &"nowhere.wasm"]), [Some(2); 2]);
    assert_eq!(unread(&[&"status", &nobody()]), [Some(1); 2]);
}

/// Tests with a device that takes nothing.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_said() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = watm(&[&"inspect", &plain()]);
    let output = command.stdout(full.expect("opens")).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(output.stderr),
        "watm: standard output: No space left on device (os error 28)\n"
    );
}

#[test]
fn a_module_follows_its_file_where_that_is_asked_for() {
    let folder = directory("command-watch");
    let path = folder.join("followed.wasm");
    let upstream = backwards();
    let [first, second] = [b"one", b"two"].map(|mark| {
        // The same module as another file: with a custom section at its end.
        let mut bytes = std::fs::read(plain()).expect("there");
        bytes.extend_from_slice(b"\0\x08\x04mark");
        bytes.extend_from_slice(mark);
        bytes
    });
    let put = |content: &[u8]| {
        let fresh = folder.join("fresh");
        std::fs::write(&fresh, content).expect("written");
        std::fs::rename(&fresh, &path).expect("renamed");
    };
    for arguments in [
        vec!["relay", "127.0.0.1:0", &upstream],
        vec!["listen", "127.0.0.1:0", "--forward", &upstream],
        vec!["dial", &upstream, "--listen", "127.0.0.1:0"],
    ] {
        put(&first);
        let mut all: Vec<&dyn AsRef<OsStr>> = vec![&arguments[0], &path];
        all.extend(arguments[1..].iter().map(|text| text as &dyn AsRef<OsStr>));
        all.push(&"--watch");
        let mut server = Server::start(&all);
        let mut old = server.connect();
        old.write_all(b"abc").expect("written");
        for (content, expected) in [
            (second.as_slice(), "swapped in "),
            (b"nonsense", "keeping the previous module"),
            (&first, "swapped in "),
        ] {
            put(content);
            let mut line = String::new();
            while !line.contains(expected) {
                line.clear();
                assert_ne!(
                    server.stderr.read_line(&mut line).expect("text"),
                    0,
                    "it ended"
                );
            }
            assert_eq!(ask(server.connect(), b"xyz"), b"zyx");
        }
        assert_eq!(ask(old, b"def"), b"fedcba");
        let (status, said) = server.stop();
        assert_eq!(status, Some(0), "{said}");
    }
}

#[test]
fn what_is_shown_of_a_file_writes_to_no_terminal() {
    let export = r#"(func (export "a\1b[2J\0aruns      yes") (nop))"#;
    let text = Guest::v1().with(export).text();
    let module = file("names.wasm", &wat::parse_str(text).expect("valid text"));
    let (status, answer, said) = run(&[&"inspect", &module], b"");
    assert_eq!(status, Some(0), "{said}");
    let answer = String::from_utf8(answer).expect("text");
    assert!(!answer.contains('\x1b'), "{answer:?}");
    let verdicts = answer.lines().filter(|line| line.starts_with("runs "));
    assert_eq!(verdicts.count(), 1, "{answer}");
}

#[test]
fn a_listener_ends_while_its_module_does_not_answer() {
    let wait = "(call $pause (i32.const 100000000)) (i32.const 0)";
    let text = Guest::v1().init(wait).text();
    let module = file("mute.wasm", &wat::parse_str(text).expect("valid text"));
    let nobody = nobody();
    let mut child = watm(&[&"listen", &module, &"127.0.0.1:0", &"--forward", &nobody])
        .spawn()
        .expect("starts");
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("piped"));
    stderr.read_line(&mut line).expect("text");
    assert!(line.contains("not sealed"), "{line}");
    thread::sleep(Duration::from_millis(300));
    let asked = std::time::Instant::now();
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(sent.expect("runs").success());
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(5));
}
