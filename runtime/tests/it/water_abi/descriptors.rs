//! Numbers of descriptors.

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Listener, Relay};

use crate::water::echo;
use watm_test_support::water::{Guest, check, numbers, told};
use watm_test_support::{LOCALHOST, run};

const NUMBERS: &str = "(call $tell (global.get $caller))
    (call $tell (global.get $net)) (call $tell (global.get $control))";

/// Each way to have a configuration or none, with the numbers that follow.
const CONFIGS: [(Option<&[u8]>, [i32; 3]); 2] = [(None, [3, 4, 5]), (Some(b"x"), [4, 5, 6])];

/// Returns the reports of a worker that connects to a server repeatedly.
fn told_of_echo(code: &str) -> Vec<i32> {
    run(async {
        let echo = echo().await.to_string();
        let dialed = Guest::v1().work(code).dialer().dial(&echo).await;
        let mut told = Vec::new();
        let mut app = dialed.expect("connects");
        app.read_to_end(&mut told).await.expect("the end");
        numbers(&told)
    })
}

fn guest(config: Option<&[u8]>) -> Guest {
    let guest = Guest::v1().work(NUMBERS);
    match config {
        Some(config) => guest.config(config),
        None => guest,
    }
}

#[test]
fn a_dialer_has_caller_network_and_control_in_this_order_after_the_configuration() {
    run(async {
        for (config, expected) in CONFIGS {
            assert_eq!(guest(config).dial().await.told().await, expected);
        }
    });
}

#[test]
fn a_listener_has_the_same_numbers() {
    run(async {
        for (config, expected) in CONFIGS {
            let guest = guest(config);
            let listener = guest.options(Listener::builder(&guest.module()));
            let listener = listener.bind(LOCALHOST).expect("listens");
            let client = TcpStream::connect(listener.local_addr());
            let _client = client.await.expect("connects");
            let mut app = listener.accept().await.expect("accepts");
            let mut told = Vec::new();
            app.read_to_end(&mut told).await.expect("the end");
            assert_eq!(numbers(&told), expected);
        }
    });
}

#[test]
fn a_relay_has_the_accepted_connection_in_the_place_of_the_caller() {
    run(async {
        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        for (config, expected) in CONFIGS {
            let guest = guest(config);
            let relay = guest.options(Relay::builder(&guest.module()));
            let relay = relay.bind(LOCALHOST, &target).expect("listens");
            let client = TcpStream::connect(relay.local_addr());
            let mut told = Vec::new();
            let mut client = client.await.expect("connects");
            client.read_to_end(&mut told).await.expect("the end");
            assert_eq!(numbers(&told), expected);
        }
    });
}

#[test]
fn standard_input_is_at_its_end_and_outputs_take_what_is_printed() {
    check(&[
        (
            "(call $tell (call $read (i32.const 0) (i32.const 1024) (i32.const 9)))",
            &[0],
        ),
        (
            "(call $tell (call $write (i32.const 0) (i32.const 1024) (i32.const 9)))",
            &[-8],
        ),
        (
            "(call $tell (call $write (i32.const 1) (i32.const 1024) (i32.const 9)))",
            &[9],
        ),
        (
            "(call $tell (call $write (i32.const 2) (i32.const 1024) (i32.const 9)))",
            &[9],
        ),
        (
            "(call $tell (call $read (i32.const 1) (i32.const 1024) (i32.const 9)))",
            &[-8],
        ),
    ]);
}

#[test]
fn a_number_that_is_closed_is_the_next_one_given() {
    let code = "(call $tell (call $fd_close (i32.const 1)))
        (call $tell (call $fd_close (global.get $net)))
        (call $tell (call $fd_close (global.get $net)))
        (call $tell (call $dial_own)) (call $tell (call $dial_own)) (call $tell (call $dial_own))";
    assert_eq!(told_of_echo(code), [0, 0, 8, 1, 4, 6]);
}

#[test]
fn numbers_that_stand_for_nothing_are_refused_by_every_function() {
    let mut calls = String::new();
    for fd in [6, 63, 64, -1, i32::MIN, i32::MAX] {
        let fd = format!("(i32.const {fd})");
        for (call, rest) in [
            ("fd_advise", "(i64.const 0) (i64.const 0) (i32.const 0)"),
            ("fd_close", ""),
            ("fd_datasync", ""),
            ("fd_fdstat_get", "(i32.const 1024)"),
            ("fd_fdstat_set_flags", "(i32.const 0)"),
            ("fd_fdstat_set_rights", "(i64.const 0) (i64.const 0)"),
            ("fd_filestat_get", "(i32.const 1024)"),
            (
                "fd_pread",
                "(i32.const 0) (i32.const 0) (i64.const 0) (i32.const 16)",
            ),
            ("fd_prestat_dir_name", "(i32.const 1024) (i32.const 9)"),
            ("fd_prestat_get", "(i32.const 1024)"),
            ("fd_read", "(i32.const 0) (i32.const 1) (i32.const 16)"),
            ("fd_renumber", "(i32.const 3)"),
            ("fd_seek", "(i64.const 0) (i32.const 0) (i32.const 16)"),
            ("fd_sync", ""),
            ("fd_tell", "(i32.const 16)"),
            ("fd_write", "(i32.const 0) (i32.const 1) (i32.const 16)"),
            (
                "path_open",
                "(i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 0) (i64.const 2)
                (i64.const 0) (i32.const 0) (i32.const 16)",
            ),
            (
                "path_filestat_get",
                "(i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 1024)",
            ),
            (
                "sock_recv",
                "(i32.const 0) (i32.const 1) (i32.const 0) (i32.const 16) (i32.const 24)",
            ),
            (
                "sock_send",
                "(i32.const 0) (i32.const 1) (i32.const 0) (i32.const 16)",
            ),
            ("sock_shutdown", "(i32.const 2)"),
        ] {
            calls += &format!("(call $tell (call ${call} {fd} {rest}))\n");
        }
    }
    // One guest for all of them.
    assert_eq!(told(&calls), [8; 6 * 21]);
}

#[test]
fn a_descriptor_says_what_it_is_and_whether_it_waits() {
    let tell = "(call $tell (call $fd_fdstat_get (local.get $i) (i32.const 1024)))
        (call $tell (i32.load8_u (i32.const 1024))) (call $tell (i32.load16_u (i32.const 1026)))";
    let set = |flags: i32| {
        format!("(call $tell (call $fd_fdstat_set_flags (local.get $i) (i32.const {flags})))")
    };
    let [on, off, other] = [set(4), set(0), set(8)];
    for fd in ["$caller", "$net", "$control"] {
        let code = format!(
            "(local.set $i (global.get {fd})) {tell} {on} {tell} {off} {tell} {other} {tell}"
        );
        let (socket, waits) = (6, 0);
        let expected = [
            vec![0, socket, waits],
            vec![0, 0, socket, 4],
            vec![0, 0, socket, waits],
            // A flag that does not exist changes nothing.
            vec![28, 0, socket, waits],
        ];
        assert_eq!(told(&code), expected.concat(), "{fd}");
    }
    let device = 2;
    assert_eq!(
        told(&format!("(local.set $i (i32.const 1)) {tell}")),
        [0, device, 0]
    );
}

#[test]
fn a_number_can_be_made_to_stand_for_what_another_did() {
    run(async {
        // The connection becomes number 1, whose descriptor is closed.
        let code = "(call $tell (call $fd_renumber (global.get $net) (i32.const 1)))
            (call $tell (call $fd_renumber (i32.const 1) (i32.const 1)))
            (call $tell (call $write (global.get $net) (i32.const 1024) (i32.const 5)))
            (i32.store (i32.const 1024) (i32.const 0x41424344))
            (call $tell (call $write (i32.const 1) (i32.const 1024) (i32.const 4)))
            (call $tell (call $fd_renumber (i32.const 1) (i32.const 40)))";
        let mut scene = Guest::v1().work(code).dial().await;
        assert_eq!(scene.told().await, [0, 0, -8, 4, 8]);
        let mut heard = Vec::new();
        scene.peer.read_to_end(&mut heard).await.expect("the end");
        assert_eq!(heard, b"DCBA");
    });
}

#[test]
fn a_guest_that_uses_up_its_numbers_is_told_and_can_free_some() {
    // More attempts than there are numbers, each reported.
    let code = "(loop $again
            (call $tell (call $dial_own))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $i) (i32.const 70))))
        (call $tell (call $fd_close (i32.const 20)))
        (call $tell (call $dial_own))";
    let told = told_of_echo(code);
    let (tries, after) = told.split_at(70);
    assert_eq!(tries[..58], (6..64).collect::<Vec<i32>>());
    assert_eq!(tries[58..], [-33; 12], "EMFILE");
    assert_eq!(after, [0, 20]);
}

#[test]
fn a_module_that_uses_up_its_numbers_in_its_handshake_is_refused_with_the_reason() {
    run(async {
        let code = "(loop $again (br_if $again (i32.ge_s (call $dial_own) (i32.const 0))))
            (i32.const 4)";
        let refusal = Guest::v1().connect(code).refusal().await;
        assert_eq!(refusal, "has no free descriptors left");
    });
}
