//! WATER modules that neither wait nor move bytes, in the program `watm listen`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use watm_test_support::command::{Server, file};
use watm_test_support::water::Guest;
use watm_test_support::{LOCALHOST, PATIENCE, wait_until};

/// Bytes by which a client turns its instance into a hog, or an echo.
const HOG: &[u8] = b"h";
const ECHO: &[u8] = b"e";

/// Prints a byte, after some work.
const PRINT: &str = "(local.set $i (i32.const 100000))
    (loop $work (br_if $work (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (drop (call $write (i32.const 1) (i32.const 1024) (i32.const 1)))";

/// Reads its configuration repeatedly. The file is descriptor `$n`.
const READ_CONFIG: &str = "(drop (call $read (local.get $n) (i32.const 1024) (i32.const 1)))
    (drop (call $fd_seek (local.get $n) (i64.const 0) (i32.const 0) (i32.const 16)))";

/// Writes to the control pipe, which accepts everything.
const TELL_HOST: &str =
    "(drop (call $write (global.get $control) (i32.const 1024) (i32.const 1000)))";

const RANDOM: &str = "(drop (call $random_get (i32.const 131072) (i32.const 1048576)))";

/// Waits for a time that has passed already.
const POLL: &str = "(call $clock (i32.const 0) (i32.const 1) (i64.const 0) (i32.const 0))
    (drop (call $poll (i32.const 1)))";

/// Makes a module whose connections either echo single bytes through the application, or do `work`
/// forever.
fn module(name: &str, work: &str) -> PathBuf {
    let guest = Guest::v1()
        .with("(data (i32.const 1100) \"watm.cfg\")")
        .ends(&format!(
            "(drop (memory.grow (i32.const 32)))
            (local.set $n (call $open (i32.const 3) (i32.const 1100) (i32.const 8)))
            (drop (call $read (global.get $net) (i32.const 1024) (i32.const 1)))
            ;; Unread when the client goes, so that its connection is reset.
            (drop (call $write (global.get $net) (i32.const 1024) (i32.const 1)))
            ;; Its handshake is over: the application gets the connection.
            (drop (call $write (global.get $caller) (i32.const 1024) (i32.const 1)))
            (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 104)) (then
                (loop $for_ever {work} (br $for_ever))))
            (loop $next
                (drop (call $read (global.get $net) (i32.const 1024) (i32.const 1)))
                (drop (call $write (global.get $caller) (i32.const 1024) (i32.const 1)))
                (drop (call $read (global.get $caller) (i32.const 1024) (i32.const 1)))
                (drop (call $write (global.get $net) (i32.const 1024) (i32.const 1)))
                (br $next))
            (i32.const 0)"
        ));
    let bytes = wat::parse_str(guest.text()).expect("valid text");
    file(&format!("{name}.wasm"), &bytes)
}

/// Connects a client. Returns it with the application's end.
fn connect(server: &Server, application: &TcpListener, wish: &[u8]) -> (TcpStream, TcpStream) {
    let mut client = server.connect();
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    client.write_all(wish).expect("written");
    let mut upstream = None;
    wait_until("a connection to the application", || {
        upstream = application.accept().ok();
        upstream.is_some()
    });
    let (mut upstream, _) = upstream.expect("accepted");
    upstream.set_nonblocking(false).expect("set");
    upstream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut heard = [0; 1];
    upstream.read_exact(&mut heard).expect("its wish");
    assert_eq!(heard, wish);
    (client, upstream)
}

fn assert_others_are_served(name: &str, work: &str) {
    let module = module(name, work);
    let config = file(&format!("{name}.cfg"), b"x");
    let application = TcpListener::bind(LOCALHOST).expect("a port");
    // Waited for with a limit.
    application.set_nonblocking(true).expect("set");
    let forward = application.local_addr().expect("bound").to_string();
    let server = Server::start(&[
        &"listen",
        &module,
        &"127.0.0.1:0",
        &"--config",
        &config,
        &"--forward",
        &forward,
    ]);
    let hogs = [HOG, HOG].map(|wish| connect(&server, &application, wish));
    for round in 0..5 {
        let (mut client, mut upstream) = connect(&server, &application, ECHO);
        let mut byte = [0; 1];
        client.read_exact(&mut byte).expect("what it wished for");
        client.write_all(&[round]).expect("written");
        upstream.read_exact(&mut byte).expect("heard");
        upstream.write_all(&byte).expect("written");
        client.read_exact(&mut byte).expect("an answer");
        assert_eq!(byte, [round]);
    }
    for (client, mut upstream) in hogs {
        drop(client);
        let ended = upstream.read(&mut [0; 1]);
        let is_end = ended.as_ref().map_or_else(
            |error| error.kind() == std::io::ErrorKind::ConnectionReset,
            |count| *count == 0,
        );
        assert!(is_end, "the instance goes on: {ended:?}");
    }
    // Two more hogs run meanwhile.
    let _hogs = [HOG, HOG].map(|wish| connect(&server, &application, wish));
    let (status, said) = server.stop();
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn one_that_prints_for_ever_holds_up_nobody() {
    assert_others_are_served("prints", PRINT);
}

#[test]
fn one_that_reads_its_configuration_for_ever_holds_up_nobody() {
    assert_others_are_served("reads-config", READ_CONFIG);
}

#[test]
fn one_that_writes_to_the_host_for_ever_holds_up_nobody() {
    assert_others_are_served("tells-host", TELL_HOST);
}

#[test]
fn one_that_wants_random_bytes_for_ever_holds_up_nobody() {
    assert_others_are_served("random", RANDOM);
}

#[test]
fn one_that_polls_for_ever_holds_up_nobody() {
    assert_others_are_served("polls", POLL);
}
