//! Reading and writing.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watm_runtime::ErrorCode;

use crate::water::pattern;
use watm_test_support::run;
use watm_test_support::water::{Guest, Scene, check};

/// Reads up to 64 bytes, and reports their number and the first four.
const READ: &str = "(i32.store (i32.const 1024) (i32.const 0))
    (call $tell (call $read (local.get $i) (i32.const 1024) (i32.const 64)))
    (call $tell (i32.load (i32.const 1024)))";

const ABCD: i32 = i32::from_le_bytes(*b"abcd");

/// The two streams that a guest reads, whose other ends the test has.
enum Side {
    Caller,
    Net,
}

impl Side {
    const BOTH: [Side; 2] = [Side::Caller, Side::Net];

    fn global(&self) -> &'static str {
        match self {
            Side::Caller => "(local.set $i (global.get $caller))",
            Side::Net => "(local.set $i (global.get $net))",
        }
    }

    async fn say(&self, scene: &mut Scene, data: &[u8]) {
        match self {
            Side::Caller => scene.app.write_all(data).await,
            Side::Net => scene.peer.write_all(data).await,
        }
        .expect("written");
    }

    async fn end(&self, scene: &mut Scene) {
        match self {
            Side::Caller => scene.app.shutdown().await,
            Side::Net => scene.peer.shutdown().await,
        }
        .expect("shut down");
    }
}

#[test]
fn a_read_waits_until_there_is_something() {
    run(async {
        for side in Side::BOTH {
            let code = format!(
                "{} (call $tell (i32.const 7)) (call $flush) {READ}",
                side.global()
            );
            let mut scene = Guest::v1().work(&code).dial().await;
            assert_eq!(scene.hear(1).await, [7]);
            let early = tokio::time::timeout(Duration::from_millis(30), scene.hear(1));
            assert!(early.await.is_err());
            side.say(&mut scene, b"abcde").await;
            assert_eq!(scene.told().await, [5, ABCD]);
        }
    });
}

#[test]
fn a_read_that_may_not_wait_answers_eagain_until_there_is_something() {
    run(async {
        for side in Side::BOTH {
            let code = format!(
                "{} (call $tell (call $nonblocking (local.get $i))) {READ} (call $flush)
                (loop $again
                    (local.set $n (call $read (local.get $i) (i32.const 1024) (i32.const 64)))
                    (br_if $again (i32.eq (local.get $n) (i32.const -6))))
                (call $tell (local.get $n)) {READ}",
                side.global()
            );
            let mut scene = Guest::v1().work(&code).dial().await;
            assert_eq!(scene.hear(3).await, [0, -6, 0]);
            side.say(&mut scene, b"abcd").await;
            assert_eq!(scene.told().await, [4, -6, 0]);
        }
    });
}

#[test]
fn the_end_is_a_read_of_nothing_again_and_again() {
    run(async {
        for side in Side::BOTH {
            for nonblocking in ["", "(drop (call $nonblocking (local.get $i)))"] {
                let code = format!(
                    "{} {READ} {nonblocking}
                    (call $subscribe (i32.const 0) (i32.const 1) (local.get $i))
                    (drop (call $poll (i32.const 1))) {READ} {READ}",
                    side.global()
                );
                let mut scene = Guest::v1().work(&code).dial().await;
                side.say(&mut scene, b"abcd").await;
                side.end(&mut scene).await;
                assert_eq!(scene.told().await, [4, ABCD, 0, 0, 0, 0]);
            }
        }
    });
}

#[test]
fn a_short_read_leaves_the_rest_and_an_empty_one_takes_nothing() {
    run(async {
        for side in Side::BOTH {
            let code = format!(
                "{} (call $tell (call $read (local.get $i) (i32.const 1024) (i32.const 0)))
                (call $tell (call $read (local.get $i) (i32.const 1024) (i32.const 3)))
                (call $tell (i32.load (i32.const 1024))) {READ}",
                side.global()
            );
            let mut scene = Guest::v1().work(&code).dial().await;
            side.say(&mut scene, b"xyzabcd").await;
            let xyz = i32::from_le_bytes(*b"xyz\0");
            assert_eq!(scene.told().await, [0, 3, xyz, 4, ABCD]);
        }
    });
}

/// Makes a list at 8192 of `$n` parts of `$t` bytes, one after another from 16384 on.
const LIST: &str = "(func $list (param $n i32) (param $len i32) (local $i i32)
    (loop $again
        (i32.store (i32.add (i32.const 8192) (i32.mul (local.get $i) (i32.const 8)))
            (i32.add (i32.const 16384) (i32.mul (local.get $i) (local.get $len))))
        (i32.store (i32.add (i32.const 8196) (i32.mul (local.get $i) (i32.const 8)))
            (local.get $len))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $i) (local.get $n)))))";

#[test]
fn a_read_fills_its_parts_one_after_another() {
    run(async {
        for side in Side::BOTH {
            let code = format!(
                "{} (call $list (i32.const 40) (i32.const 3))
                ;; The second is empty; the third takes its place.
                (i32.store (i32.const 8204) (i32.const 0))
                (call $subscribe (i32.const 0) (i32.const 1) (local.get $i))
                (drop (call $poll (i32.const 1)))
                (call $tell (call $result
                    (call $fd_read (local.get $i) (i32.const 8192) (i32.const 40) (i32.const 16))))
                (call $tell (i32.load (i32.const 16384))) (call $tell (i32.load (i32.const 16388)))
                (call $tell (i32.load (i32.const 16392)))",
                side.global()
            );
            let mut scene = Guest::v1().with(LIST).work(&code).dial().await;
            side.say(&mut scene, b"abcdefgh").await;
            let words = [*b"abc\0", *b"\0\0de", *b"fgh\0"].map(i32::from_le_bytes);
            assert_eq!(scene.told().await, [[8].as_slice(), &words].concat());
        }
    });
}

#[test]
fn a_write_takes_its_parts_in_their_order_and_says_how_much() {
    run(async {
        // 100 parts of 100 bytes, and a retry of the rest that was not taken.
        let code = "(call $list (i32.const 100) (i32.const 100))
            (loop $fill
                (i32.store8 (i32.add (i32.const 16384) (local.get $i)) (i32.div_u (local.get $i) (i32.const 39)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $fill (i32.lt_u (local.get $i) (i32.const 10000))))
            (local.set $n (call $result (call $fd_write
                (global.get $net) (i32.const 8192) (i32.const 100) (i32.const 16))))
            (if (i32.le_s (local.get $n) (i32.const 0)) (then (unreachable)))
            (loop $rest
                (local.set $i (call $write (global.get $net)
                    (i32.add (i32.const 16384) (local.get $n)) (i32.sub (i32.const 10000) (local.get $n))))
                (if (i32.lt_s (local.get $i) (i32.const 0)) (then (unreachable)))
                (local.set $n (i32.add (local.get $n) (local.get $i)))
                (br_if $rest (i32.lt_u (local.get $n) (i32.const 10000))))
            (call $tell (local.get $n))";
        let mut scene = Guest::v1().with(LIST).work(code).dial().await;
        assert_eq!(scene.told().await, [10_000]);
        let mut heard = Vec::new();
        scene.peer.read_to_end(&mut heard).await.expect("the end");
        let expected: Vec<u8> = (0..10_000).map(|at| (at / 39) as u8).collect();
        assert!(heard == expected);
    });
}

#[test]
fn writes_that_may_not_wait_are_partial_and_then_answer_eagain() {
    run(async {
        for side in Side::BOTH {
            // The written bytes begin a pattern that starts with itself.
            let code = format!(
                "{} (drop (call $nonblocking (local.get $i)))
                (block $full
                    (loop $again
                        (local.set $n (call $write (local.get $i) (i32.const 8192) (i32.const 50000)))
                        (br_if $full (i32.lt_s (local.get $n) (i32.const 0)))
                        (local.set $t (i64.add (local.get $t) (i64.extend_i32_u (local.get $n))))
                        (br $again)))
                (global.set $caller (select (global.get $net) (global.get $caller)
                    (i32.eq (local.get $i) (global.get $caller))))
                (call $tell (local.get $n)) (call $tell (i32.wrap_i64 (local.get $t)))",
                side.global()
            );
            let mut scene = Guest::v1().work(&code).dial().await;
            let (mut said, mut count) = (Vec::new(), Vec::new());
            // The numbers come on the other stream.
            match side {
                Side::Caller => {
                    scene.peer.read_to_end(&mut count).await.expect("the end");
                    scene.app.read_to_end(&mut said).await.expect("the end");
                }
                Side::Net => {
                    scene.app.read_to_end(&mut count).await.expect("the end");
                    scene.peer.read_to_end(&mut said).await.expect("the end");
                }
            }
            let count = watm_test_support::water::numbers(&count);
            assert_eq!(count[0], -6);
            assert_eq!(said.len(), count[1] as usize);
            assert!(said.iter().all(|byte| *byte == 0));
            if matches!(side, Side::Caller) {
                // The value in the limits.
                assert_eq!(said.len(), 256 << 10);
            }
        }
    });
}

#[test]
fn a_write_waits_for_room_and_nothing_is_lost() {
    run(async {
        // Pass on from the network to the application, 2 MiB, without a poll.
        let code = "(block $out
            (loop $again
                (local.set $n (call $read (global.get $net) (i32.const 8192) (i32.const 50000)))
                (br_if $out (i32.eqz (local.get $n)))
                (local.set $i (i32.const 0))
                (loop $rest
                    (local.set $i (i32.add (local.get $i) (call $write (global.get $caller)
                        (i32.add (i32.const 8192) (local.get $i)) (i32.sub (local.get $n) (local.get $i)))))
                    (br_if $rest (i32.lt_u (local.get $i) (local.get $n))))
                (br $again)))";
        let mut scene = Guest::v1().work(code).dial().await;
        let say = tokio::spawn(async move {
            scene
                .peer
                .write_all(&pattern(2 << 20))
                .await
                .expect("written");
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut heard = Vec::new();
        scene.app.read_to_end(&mut heard).await.expect("the end");
        say.await.expect("said");
        assert!(heard == pattern(2 << 20));
    });
}

#[test]
fn a_reset_is_told_to_the_guest_and_to_the_application() {
    run(async {
        let code = "(local.set $n (call $read (global.get $net) (i32.const 1024) (i32.const 9)))
            (call $tell (local.get $n)) (call $flush) (local.get $n)";
        let scene = Guest::v1().ends(code).dial().await;
        let Scene { mut app, peer } = scene;
        reset(peer);
        let mut told = [0; 4];
        app.read_exact(&mut told).await.expect("a number");
        assert_eq!(i32::from_le_bytes(told), -15, "ECONNRESET");
        let error = app.read(&mut told).await.expect_err("an error");
        assert_eq!(error.to_string(), "connection reset (ECONNRESET)");
    });
}

fn reset(stream: TcpStream) {
    let stream = stream.into_std().expect("a socket");
    let socket = socket2::SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).expect("set");
}

#[test]
fn an_application_that_aborts_is_seen_as_what_it_said() {
    run(async {
        let code = "(call $tell (call $read (global.get $caller) (i32.const 1024) (i32.const 9)))
            (call $tell (call $write (global.get $caller) (i32.const 1024) (i32.const 9)))
            (global.set $caller (global.get $net))";
        let mut scene = Guest::v1().work(code).dial().await;
        scene.app.abort(ErrorCode::ConnectionReset);
        let mut told = Vec::new();
        scene.peer.read_to_end(&mut told).await.expect("the end");
        assert_eq!(watm_test_support::water::numbers(&told), [-15, -15]);
    });
}

#[test]
fn shutting_down_to_write_ends_the_other_side_at_once_and_reading_goes_on() {
    run(async {
        for side in Side::BOTH {
            let code = format!(
                "{} (call $tell (call $sock_shutdown (local.get $i) (i32.const 2)))
                (call $tell (call $write (local.get $i) (i32.const 1024) (i32.const 1))) {READ}
                (global.set $caller (i32.sub (i32.const 7) (local.get $i)))",
                side.global()
            );
            let mut scene = Guest::v1().work(&code).dial().await;
            let Scene { app, peer } = &mut scene;
            let (mut nothing, mut told) = (Vec::new(), Vec::new());
            match side {
                Side::Caller => {
                    app.read_to_end(&mut nothing).await.expect("the end");
                    app.write_all(b"abcd").await.expect("written");
                    peer.read_to_end(&mut told).await.expect("the end");
                }
                Side::Net => {
                    peer.read_to_end(&mut nothing).await.expect("the end");
                    peer.write_all(b"abcd").await.expect("written");
                    app.read_to_end(&mut told).await.expect("the end");
                }
            }
            assert_eq!(nothing, b"");
            assert_eq!(watm_test_support::water::numbers(&told), [0, -64, 4, ABCD]);
        }
    });
}

#[test]
fn shutting_down_to_read_is_the_end_for_the_guest_alone() {
    run(async {
        for side in Side::BOTH {
            let code = format!(
                "{} (call $tell (call $sock_shutdown (local.get $i) (i32.const 1))) {READ}",
                side.global()
            );
            assert_eq!(Guest::v1().work(&code).dial().await.told().await, [0, 0, 0]);
        }
    });
}

#[test]
fn shutdown_is_for_sockets_and_for_a_direction() {
    check(&[
        (
            "(call $tell (call $sock_shutdown (i32.const 1) (i32.const 2)))",
            &[57],
        ),
        (
            "(call $tell (call $sock_shutdown (global.get $net) (i32.const 0)))",
            &[28],
        ),
        (
            "(call $tell (call $sock_shutdown (global.get $net) (i32.const 4)))",
            &[28],
        ),
        (
            "(call $tell (call $sock_shutdown (global.get $net) (i32.const -1)))",
            &[28],
        ),
        (
            "(call $tell (call $sock_shutdown (global.get $net) (i32.const 3)))",
            &[0],
        ),
        (
            "(call $tell (call $sock_shutdown (global.get $net) (i32.const 2)))
            (call $tell (call $sock_shutdown (global.get $net) (i32.const 2)))",
            &[0, 0],
        ),
    ]);
}

#[test]
fn a_closed_descriptor_is_the_end_for_the_other_side() {
    run(async {
        // The guest continues, and learns about it by the control pipe.
        let close = |fd: &str| {
            format!(
                "(call $tell (call $fd_close (global.get {fd})))
                (drop (call $read (global.get $control) (i32.const 1024) (i32.const 1)))
                (i32.const 0)"
            )
        };
        let mut scene = Guest::v1().ends(&close("$net")).dial().await;
        assert_eq!(scene.peer.read(&mut [0; 4]).await.expect("the end"), 0);
        let mut scene = Guest::v1().ends(&close("$caller")).dial().await;
        assert_eq!(scene.app.read(&mut [0; 4]).await.expect("the end"), 0);
        let error = scene.app.write_all(b"abcd").await.expect_err("closed");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
    });
}

#[test]
fn sockets_send_and_receive_as_they_write_and_read() {
    run(async {
        let code = "(call $part (i32.const 1024) (i32.const 64))
            (call $tell (call $result (call $sock_recv (global.get $net) (i32.const 0)
                (i32.const 1) (i32.const 0) (i32.const 16) (i32.const 24))))
            (call $tell (i32.load16_u (i32.const 24)))
            (call $part (i32.const 1024) (i32.const 4))
            (call $tell (call $result (call $sock_send (global.get $net) (i32.const 0)
                (i32.const 1) (i32.const 0) (i32.const 16))))
            (drop (call $nonblocking (global.get $net)))
            (call $tell (call $sock_recv (global.get $net) (i32.const 0)
                (i32.const 1) (i32.const 0) (i32.const 16) (i32.const 24)))";
        let mut scene = Guest::v1().work(code).dial().await;
        scene.peer.write_all(b"abcd").await.expect("written");
        assert_eq!(scene.told().await, [4, 0, 4, 6]);
        let mut heard = Vec::new();
        scene.peer.read_to_end(&mut heard).await.expect("the end");
        assert_eq!(heard, b"abcd");
    });
    let call = |call: &str, fd: &str, flags: i32, outs: &str| {
        format!(
            "(call $part (i32.const 1024) (i32.const 4))
            (call $tell (call ${call} {fd} (i32.const 0) (i32.const 1) (i32.const {flags}) {outs}))"
        )
    };
    let (one, two) = ("(i32.const 16)", "(i32.const 16) (i32.const 24)");
    check(&[
        (&call("sock_recv", "(i32.const 0)", 0, two), &[57]),
        (&call("sock_send", "(i32.const 1)", 0, one), &[57]),
        // Flags to peek, and to wait for all.
        (&call("sock_recv", "(global.get $net)", 1, two), &[58]),
        (&call("sock_recv", "(global.get $net)", 2, two), &[58]),
        (&call("sock_send", "(global.get $net)", 1, one), &[28]),
    ]);
}

#[test]
fn streams_have_no_place_and_a_stat_of_a_socket() {
    check(&[
        (
            "(call $tell (call $fd_seek (global.get $net) (i64.const 0) (i32.const 1) (i32.const 16)))
            (call $tell (call $fd_tell (global.get $net) (i32.const 16)))
            (call $tell (call $fd_pread (global.get $net) (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 16)))",
            // ESPIPE
            &[70, 70, 70],
        ),
        (
            "(call $tell (call $fd_filestat_get (global.get $net) (i32.const 1024)))
            (call $tell (i32.load8_u (i32.const 1040))) (call $tell (i32.load (i32.const 1056)))",
            &[0, 6, 0],
        ),
        (
            "(call $tell (call $fd_prestat_get (global.get $caller) (i32.const 1024)))",
            &[8],
        ),
    ]);
}
