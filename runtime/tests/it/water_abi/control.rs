//! The control pipe: one byte, 0, then the end.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Dialer, Relay};

use watm_test_support::water::{Guest, Scene, numbers};
use watm_test_support::{LOCALHOST, run};

/// Reads the pipe as long as there is something, and reports each result on the other connection.
const LISTEN: &str = "
    (i32.store (i32.const 1024) (i32.const 0xff))
    (call $tell (call $read (global.get $control) (i32.const 1024) (i32.const 8)))
    (call $tell (i32.load (i32.const 1024)))
    (call $tell (call $read (global.get $control) (i32.const 1024) (i32.const 8)))
    (call $tell (call $read (global.get $control) (i32.const 1024) (i32.const 8)))
    (global.set $caller (global.get $net))";

#[test]
fn a_connection_that_is_closed_or_dropped_tells_its_guest_once() {
    run(async {
        for close in [true, false] {
            let Scene { app, mut peer } = Guest::v1().work(LISTEN).dial().await;
            match close {
                true => app.close().await,
                false => drop(app),
            }
            let mut told = Vec::new();
            peer.read_to_end(&mut told).await.expect("the end");
            assert_eq!(numbers(&told), [1, 0, 0, 0]);
        }
    });
}

#[test]
fn nothing_is_on_the_pipe_before() {
    run(async {
        let code = format!(
            "(drop (call $nonblocking (global.get $control)))
            (call $tell (call $read (global.get $control) (i32.const 1024) (i32.const 8)))
            (call $subscribe (i32.const 0) (i32.const 1) (global.get $control))
            (call $clock (i32.const 1) (i32.const 1) (i64.const 20000000) (i32.const 0))
            (call $tell_poll (i32.const 2)) (call $flush)
            (call $tell_poll (i32.const 1)) {LISTEN}"
        );
        let Scene { mut app, mut peer } = Guest::v1().work(&code).dial().await;
        let mut told = [0; 16];
        app.read_exact(&mut told).await.expect("numbers");
        assert_eq!(numbers(&told), [-6, 1001, 0, 0]);
        app.close().await;
        let mut told = Vec::new();
        peer.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [1000, 0, 1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_guest_reads_what_was_written_before_it_is_told_to_end() {
    run(async {
        // Reports whatever is readable: 2 is the caller, 1 the pipe.
        let code = "(drop (call $nonblocking (global.get $control)))
            (loop $again
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (call $subscribe (i32.const 0) (i32.const 1) (global.get $caller))
                (call $subscribe (i32.const 1) (i32.const 1) (global.get $control))
                (drop (call $poll (i32.const 2)))
                (if (i32.eq (call $read (global.get $control) (i32.const 1024) (i32.const 1)) (i32.const 1))
                    (then (call $tell (i32.const -1)) (global.set $caller (global.get $net)) (call $flush)
                        (return (i32.const -11))))
                (local.set $n (call $read (global.get $caller) (i32.const 1024) (i32.const 1000)))
                (if (i32.gt_s (local.get $n) (i32.const 0)) (then (call $tell (local.get $n))))
                (if (i32.eqz (local.get $n))
                    (then (call $pause (i32.const 1))))
                (br $again)) (unreachable)";
        let Scene { mut app, mut peer } = Guest::v1().ends(code).dial().await;
        app.write_all(&[7; 2500]).await.expect("written");
        app.close().await;
        let mut told = Vec::new();
        peer.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [1000, 1000, 500, -1]);
    });
}

#[test]
fn what_a_guest_writes_to_the_pipe_is_taken_and_forgotten() {
    run(async {
        let code = format!(
            "(call $tell (call $write (global.get $control) (i32.const 1024) (i32.const 100)))
            (call $subscribe (i32.const 0) (i32.const 2) (global.get $control))
            (call $tell_poll (i32.const 1))
            (call $tell (call $sock_shutdown (global.get $control) (i32.const 2))) {LISTEN}"
        );
        let Scene { app, mut peer } = Guest::v1().work(&code).dial().await;
        app.close().await;
        let mut told = Vec::new();
        peer.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [100, 1000, 0, 2, 0, 1, 0, 0, 0]);
    });
}

#[test]
fn a_guest_that_closes_the_pipe_ends_all_the_same() {
    run(async {
        let code = "(drop (call $fd_close (global.get $control)))
            (drop (call $read (global.get $net) (i32.const 1024) (i32.const 8))) (i32.const 0)";
        let Scene { app, mut peer } = Guest::v1().ends(code).dial().await;
        app.close().await;
        assert_eq!(peer.read(&mut [0; 1]).await.expect("the end"), 0);
    });
}

#[test]
fn a_relay_that_is_closed_tells_the_guest_of_each_connection() {
    run(async {
        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        let code = format!("(call $tell (i32.const 7)) (call $flush) {LISTEN}");
        let relay = Relay::builder(&Guest::v1().work(&code).module());
        let relay = relay.bind(LOCALHOST, &target).expect("listens");
        let mut ends = Vec::new();
        for _ in 0..3 {
            let client = TcpStream::connect(relay.local_addr());
            let mut client = client.await.expect("connects");
            let (far, _) = upstream.accept().await.expect("accepts");
            // Its handshake is over when the guest is at work.
            client.read_exact(&mut [0; 4]).await.expect("a number");
            ends.push((client, far));
        }
        relay.close().await;
        for (_client, mut far) in ends {
            let mut told = Vec::new();
            far.read_to_end(&mut told).await.expect("the end");
            assert_eq!(numbers(&told), [1, 0, 0, 0]);
        }
    });
}

#[test]
fn each_connection_has_an_instance_of_its_own() {
    run(async {
        // It refuses a second call, as modules do.
        let guest = Guest::v1()
            .with("(global $called (mut i32) (i32.const 0))")
            .connect(
                "(if (global.get $called) (then (return (i32.const -10))))
                (global.set $called (i32.const 1)) (call $dial_own)",
            );
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let dialer = Dialer::builder(&guest.module()).build().expect("a dialer");
        for _ in 0..3 {
            dialer.dial(&address).await.expect("connects");
        }
    });
}
