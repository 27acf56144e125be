//! Connections by a module's imports from `env`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use watm_runtime::{Connection, Error, Limits, Listener};

use crate::water::{echo, exchange};
use watm_test_support::water::{Guest, numbers, without_name};
use watm_test_support::{LOCALHOST, records, run, wait_until};

/// Dials the destination in the configuration: the network, a blank, the address. Passes the lists
/// in two parts each, of which the first has 2 bytes.
const DIAL: &str = r#"
    (data (i32.const 1024) "watm.cfg")
    (func $halves (param $at i32) (param $pointer i32) (param $len i32)
        (i32.store (local.get $at) (local.get $pointer))
        (i32.store offset=4 (local.get $at) (i32.const 2))
        (i32.store offset=8 (local.get $at) (i32.add (local.get $pointer) (i32.const 2)))
        (i32.store offset=12 (local.get $at) (i32.sub (local.get $len) (i32.const 2))))
    (func $dial_configured (result i32) (local $len i32) (local $blank i32)
        (local.set $len (call $read
            (call $open (i32.const 3) (i32.const 1024) (i32.const 8))
            (i32.const 8192) (i32.const 8192)))
        (local.set $blank (i32.const 8192))
        (loop $again
            (local.set $blank (i32.add (local.get $blank) (i32.const 1)))
            (br_if $again (i32.ne (i32.load8_u (local.get $blank)) (i32.const 32))))
        (call $halves (i32.const 2048) (i32.const 8192)
            (i32.sub (local.get $blank) (i32.const 8192)))
        (call $halves (i32.const 2064) (i32.add (local.get $blank) (i32.const 1))
            (i32.sub (i32.add (local.get $len) (i32.const 8191)) (local.get $blank)))
        (call $dial (i32.const 2048) (i32.const 2) (i32.const 2064) (i32.const 2)))"#;

/// Makes a fixed dialer with the reach of `pattern`.
fn chooser(target: &str, pattern: Option<&str>) -> Guest {
    let guest = Guest::v1()
        .with(DIAL)
        .connect("(call $dial_configured)")
        .config(target.as_bytes())
        .ends(
            "(drop (call $read (global.get $net) (i32.const 1024) (i32.const 100)))
            (drop (call $write (global.get $net) (i32.const 1024) (i32.const 100)))
            (drop (call $read (global.get $control) (i32.const 1024) (i32.const 1))) (i32.const 0)",
        );
    match pattern {
        Some(pattern) => guest.reach(pattern),
        None => guest,
    }
}

async fn choose(target: &str, pattern: Option<&str>) -> Result<Connection, Error> {
    chooser(target, pattern).fixed_dialer().dial().await
}

/// Returns the number that the guest got as an answer.
async fn answer(code: &str) -> i32 {
    let code = format!("(call $tell {code})");
    Guest::v1().with(DIAL).work(&code).dial().await.told().await[0]
}

#[test]
fn a_module_goes_to_an_address_of_its_choice_only_where_it_may() {
    run(async {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        for (target, pattern, expected) in [
            ("tcp 127.0.0.1:PORT", None, None),
            (
                "tcp 127.0.0.1:PORT",
                Some("127.0.0.1:PORT"),
                Some("127.0.0.1"),
            ),
            (
                "tcp4 127.0.0.1:PORT",
                Some("127.0.0.0/8"),
                Some("127.0.0.1"),
            ),
            ("tcp localhost:PORT", Some("localhost"), Some("127.0.0.1")),
            ("tcp4 localhost:PORT", Some("127.0.0.1"), Some("127.0.0.1")),
            ("tcp localhost:PORT", Some("10.0.0.0/8"), None),
            ("tcp 127.0.0.1:PORT", Some("*:1"), None),
            ("tcp 127.0.0.1:PORT", Some("udp://*"), None),
            ("udp 127.0.0.1:PORT", Some("tcp://*"), None),
            ("udp 127.0.0.1:PORT", Some("*"), Some("127.0.0.1")),
        ] {
            let fill = |text: &str| text.replace("PORT", &port.to_string());
            let pattern = pattern.map(fill);
            let result = choose(&fill(target), pattern.as_deref()).await;
            match (result, expected) {
                (Ok(connection), Some(ip)) => {
                    let peer = connection.peer_addr().expect("known");
                    assert_eq!(peer, format!("{ip}:{port}").parse().expect("an address"));
                }
                (Err(Error::Denied { .. }), None) => {}
                (result, _) => panic!("{target} {pattern:?}: {result:?}"),
            }
        }
    });
}

#[test]
fn a_dialer_too_may_go_elsewhere_if_it_may_reach_that() {
    run(async {
        let echo = echo().await;
        let guest = chooser(&format!("tcp {echo}"), Some("127.0.0.1"));
        let connection = guest.dialer().dial("192.0.2.1:9").await.expect("connects");
        assert_eq!(connection.peer_addr().expect("known"), echo);
    });
}

#[test]
fn names_of_networks_and_addresses_are_bounded() {
    let call = |networks: &str, addresses: &str| format!("(call $dial {networks} {addresses})");
    let list = |at: u32, parts: u32| format!("(i32.const {at}) (i32.const {parts})");
    run(async {
        let long = |len: usize| format!("tcp {}:80", "a".repeat(len - 3));
        // 256 bytes are within the limit, so the reach decides.
        for (target, expected) in [
            (long(256), None),
            (long(257), Some("watm_dial_fixed_v1 returned -28 (EINVAL)")),
            (
                format!("{} a:80", "t".repeat(257)),
                Some("watm_dial_fixed_v1 returned -28 (EINVAL)"),
            ),
        ] {
            let error = choose(&target, None).await.expect_err("not allowed");
            match expected {
                None => assert!(matches!(error, Error::Denied { .. }), "{error}"),
                Some(expected) => assert_eq!(without_name(&error), expected),
            }
        }
        for (networks, addresses, expected) in [
            // Nothing.
            (list(1024, 0), list(1024, 0), -28),
            // A list outside of the memory, or with parts outside of it.
            (list(131_072, 1), list(1024, 0), -21),
            (list(131_068, 1), list(1024, 0), -21),
            (list(u32::MAX, 1), list(1024, 0), -21),
            (list(1024, 0), list(131_072, 1), -21),
            (list(1024, u32::MAX), list(1024, 0), -28),
        ] {
            let answer = answer(&call(&networks, &addresses)).await;
            assert_eq!(answer, expected, "{networks} {addresses}");
        }
        // A part of 4 GiB.
        let part = "(block (result i32) (i32.store (i32.const 8192) (i32.const 1024))
            (i32.store (i32.const 8196) (i32.const -1))
            (call $dial (i32.const 8192) (i32.const 1) (i32.const 8192) (i32.const 1)))";
        assert_eq!(answer(part).await, -21);
    });
}

#[test]
fn what_is_no_network_or_no_address_is_invalid() {
    run(async {
        for target in [
            "sctp 127.0.0.1:80",
            "TCP 127.0.0.1:80",
            "tcp 127.0.0.1",
            "tcp 127.0.0.1:65536",
            "tcp ::1:80",
            "tcp a b:80",
            "tcp a\0b:80",
        ] {
            let error = choose(target, Some("*")).await.expect_err("no address");
            assert_eq!(
                without_name(&error),
                "watm_dial_fixed_v1 returned -28 (EINVAL)",
                "{target}"
            );
        }
        let guest = chooser("tcp ..", Some("*")).config(b"tcp \xff\xfe:80");
        let error = guest.fixed_dialer().dial().await.expect_err("no text");
        assert!(error.to_string().contains("EINVAL"), "{error}");
    });
}

#[test]
fn a_module_may_have_datagrams_where_it_is_said_so() {
    run(async {
        let far = UdpSocket::bind(LOCALHOST).await.expect("a socket");
        let address = far.local_addr().expect("bound");
        let pattern = format!("udp://127.0.0.1:{}", address.port());
        // It waits for one datagram, and sends one of 100 bytes, so it must be asked first.
        let guest = chooser(&format!("udp {address}"), Some(&pattern));
        let connection = guest.fixed_dialer().dial().await.expect("connects");
        let near = connection.local_addr().expect("known");
        let near = (LOCALHOST.ip(), near.port());
        far.send_to(b"hello", near).await.expect("sent");
        let mut datagram = [0; 200];
        let (len, _) = far.recv_from(&mut datagram).await.expect("received");
        assert_eq!((len, &datagram[..5]), (100, &b"hello"[..]));
    });
}

/// Returns the peak memory of this process, in KiB, where the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
fn a_datagram_of_parts_as_long_as_the_memory_is_refused_without_a_copy_of_them() {
    /// Grows the memory and makes a list of 16 parts of 256 MiB each.
    const PARTS: &str = "(drop (memory.grow (i32.const 4096)))
        (loop $again
            (local.set $n (i32.add (i32.const 20000) (i32.mul (local.get $i) (i32.const 8))))
            (i32.store (local.get $n) (i32.const 0))
            (i32.store offset=4 (local.get $n) (i32.const 0x10000000))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $i) (i32.const 16))))
        (call $tell (call $fd_write (global.get $net)
            (i32.const 20000) (i32.const 16) (i32.const 16)))";
    run(async {
        let far = UdpSocket::bind(LOCALHOST).await.expect("a socket");
        let target = format!("udp {}", far.local_addr().expect("bound"));
        let limits = Limits {
            memory_bytes: 300 << 20,
            ..Limits::for_connections()
        };
        let guest = chooser(&target, Some("*")).work(PARTS).limits(limits);
        let before = peak();
        let mut told = Vec::new();
        let mut app = guest.fixed_dialer().dial().await.expect("connects");
        app.read_to_end(&mut told).await.expect("the end");
        let [errno] = numbers(&told)[..] else {
            panic!("{told:?}");
        };
        assert!(errno > 0, "it was taken");
        // Far more than other tests take meanwhile, and half the size of the parts.
        if let (Some(before), Some(after)) = (before, peak()) {
            assert!(after - before < 2 << 20, "{before} {after}");
        }
    });
}

#[test]
fn functions_of_another_role_answer_enodev() {
    run(async {
        let accepts = Guest::v1().work("(call $tell (call $accept))");
        assert_eq!(accepts.dial().await.told().await, [-43]);
        let fixed = Guest::v1().fixed_dialer().dial().await;
        let reason = without_name(&fixed.expect_err("no target"));
        assert_eq!(reason, "watm_dial_fixed_v1 returned -43 (ENODEV)");

        let code = "(call $tell (call $dial_own)) (call $tell (call $accept))";
        let listener = Listener::builder(&Guest::v1().work(code).module());
        let listener = listener.bind(LOCALHOST).expect("listens");
        let client = TcpStream::connect(listener.local_addr());
        let _client = client.await.expect("connects");
        let mut told = Vec::new();
        let mut app = listener.accept().await.expect("accepts");
        app.read_to_end(&mut told).await.expect("the end");
        // An accepted connection can be taken once.
        assert_eq!(numbers(&told), [-43, -53]);

        // Refused, whatever it could reach in another role.
        let chosen = Guest::v1()
            .with(DIAL)
            .config(format!("tcp {}", listener.local_addr()).as_bytes())
            .reach("*")
            .work("(call $tell (call $dial_configured))");
        let listener = chosen.options(Listener::builder(&chosen.module()));
        let listener = listener.bind(LOCALHOST).expect("listens");
        let client = TcpStream::connect(listener.local_addr());
        let _client = client.await.expect("connects");
        let mut told = Vec::new();
        let mut app = listener.accept().await.expect("accepts");
        app.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [-43]);
    });
}

#[test]
fn a_connection_that_fails_is_enotconn_and_the_module_may_try_another() {
    run(async {
        let echo = echo().await;
        let nobody = {
            let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
            listener.local_addr().expect("bound").to_string()
        };
        let guest = chooser(&format!("tcp {echo}"), Some(&echo.to_string()))
            .connect(
                "(call $tell (call $dial_own))
                (call $dial_configured)",
            )
            .work("");
        let mut app = guest.dialer().dial(&nobody).await.expect("connects");
        assert_eq!(app.peer_addr().expect("known"), echo);
        let mut told = Vec::new();
        app.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [-53]);
    });
}

#[test]
fn a_connection_lives_apart_from_the_others_of_its_guest() {
    run(async {
        // Two connections to the same peer; the first ends, the second works.
        let code = "(drop (call $fd_close (call $dial_own)))
            (drop (call $read (global.get $net) (i32.const 1024) (i32.const 4)))
            (call $tell (i32.load (i32.const 1024)))";
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let mut app = Guest::v1()
            .work(code)
            .dialer()
            .dial(&address)
            .await
            .expect("connects");
        let (mut first, _) = listener.accept().await.expect("accepts");
        let (mut second, _) = listener.accept().await.expect("accepts");
        assert_eq!(second.read(&mut [0; 1]).await.expect("the end"), 0);
        first
            .write_all(&7_i32.to_le_bytes())
            .await
            .expect("written");
        let mut told = Vec::new();
        app.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [7]);
    });
}

#[test]
fn what_fails_in_a_listener_or_a_relay_is_logged_with_its_number() {
    run(async {
        records("fails");
        let refusing = Guest::v1().init("(i32.const -2)");
        let listener = Listener::builder(&refusing.module()).name("fails");
        let listener = listener.bind(LOCALHOST).expect("listens");
        let client = TcpStream::connect(listener.local_addr());
        let mut client = client.await.expect("connects");
        // The end, or a reset.
        let _ = client.read(&mut [0; 1]).await;
    });
    wait_until("a record", || {
        let records = records("fails");
        records.iter().any(|record| {
            record.level == tracing::Level::DEBUG
                && record.text.contains("watm_init_v1 returned -2 (EACCES)")
        })
    });
}

#[test]
fn the_stream_of_a_dialer_goes_through() {
    run(async {
        // One answer of 5 bytes.
        let code =
            "(local.set $n (call $read (global.get $caller) (i32.const 1024) (i32.const 100)))
            (drop (call $write (global.get $net) (i32.const 1024) (local.get $n)))
            (drop (call $read (global.get $caller) (i32.const 1024) (i32.const 100)))
            (drop (call $sock_shutdown (global.get $net) (i32.const 2)))
            (local.set $n (call $read (global.get $net) (i32.const 1024) (i32.const 100)))
            (drop (call $write (global.get $caller) (i32.const 1024) (local.get $n)))
            (i32.const 0)";
        let echo = echo().await.to_string();
        let app = Guest::v1().ends(code).dialer().dial(&echo).await;
        exchange(app.expect("connects"), b"hello").await;
    });
}

#[test]
fn connections_are_bounded_by_the_descriptors_of_the_module() {
    run(async {
        let limits = |descriptors| Limits {
            descriptors,
            ..Limits::default()
        };
        // It has one connection before it begins.
        let dial = "(call $tell (i32.gt_s (call $dial_own) (i32.const 0)))";
        let echo = echo().await.to_string();
        let one = Guest::v1().work(&dial.repeat(4)).limits(limits(3)).dialer();
        let mut told = Vec::new();
        let mut connection = one.dial(&echo).await.expect("connects");
        connection.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [1, 1, 0, 0]);
    });
}

#[test]
fn connections_are_bounded_by_the_descriptors_of_all_instances() {
    run(async {
        let limits = Limits {
            descriptors: 4,
            ..Limits::default()
        };
        // It has one connection before it begins, and keeps all until the application ends.
        let dial = "(call $tell (i32.gt_s (call $dial_own) (i32.const 0)))";
        let wait = "(call $read (global.get $caller) (i32.const 1024) (i32.const 100))";
        let code = dial.repeat(2) + "(call $flush)" + wait;
        let echo = echo().await.to_string();
        let dialer = Guest::v1().ends(&code).limits(limits).dialer();
        let dial = async || {
            let mut told = [0; 8];
            let mut connection = dialer.dial(&echo).await.expect("connects");
            connection.read_exact(&mut told).await.expect("both");
            (connection, numbers(&told))
        };
        let (first, told) = dial().await;
        assert_eq!(told, [1, 1]);
        let (_second, told) = dial().await;
        assert_eq!(told, [0, 0]);
        // The next connection gets the returned permit.
        first.close().await;
        let (_third, told) = dial().await;
        assert_eq!(told, [1, 1]);
    });
}
