//! Waiting for several things at once. Events are reported as userdata, error and kind.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use watm_test_support::run;
use watm_test_support::water::{Guest, Scene, check, numbers, told};

#[test]
fn nothing_to_wait_for_is_invalid_and_so_is_too_much() {
    check(&[
        ("(call $tell (call $poll (i32.const 0)))", &[-28]),
        ("(call $tell (call $poll (i32.const 1025)))", &[-28]),
        ("(call $tell (call $poll (i32.const -1)))", &[-28]),
        // A kind that does not exist.
        (
            "(call $subscribe (i32.const 0) (i32.const 3) (global.get $net))
            (call $tell (call $poll (i32.const 1)))",
            &[-28],
        ),
    ]);
}

#[test]
fn what_is_ready_is_told_with_its_userdata_and_what_is_not_is_left_out() {
    run(async {
        let code = "(call $subscribe (i32.const 0) (i32.const 1) (global.get $caller))
            (call $subscribe (i32.const 1) (i32.const 1) (global.get $net))
            (call $subscribe (i32.const 2) (i32.const 1) (global.get $control))
            (i64.store (i32.const 2096) (i64.const 0x7000000000000005))
            (call $tell_poll (i32.const 3)) (call $tell (i32.load (i32.const 4100)))
            ;; How many bytes, and no end.
            (call $tell (i32.load (i32.const 4112))) (call $tell (i32.load16_u (i32.const 4120)))
            ;; Again, until it is read.
            (call $tell_poll (i32.const 3)) (call $flush)
            (drop (call $read (global.get $net) (i32.const 1024) (i32.const 9)))
            (call $tell_poll (i32.const 3))";
        let mut scene = Guest::v1().work(code).dial().await;
        scene.peer.write_all(b"hello").await.expect("written");
        assert_eq!(scene.hear(9).await, [5, 0, 1, 0x7000_0000, 5, 0, 5, 0, 1]);
        scene.app.write_all(b"hello").await.expect("written");
        assert_eq!(scene.told().await, [1000, 0, 1]);
    });
}

#[test]
fn streams_with_room_are_ready_to_be_written_to() {
    check(&[(
        "(call $subscribe (i32.const 0) (i32.const 2) (global.get $caller))
        (call $subscribe (i32.const 1) (i32.const 2) (global.get $net))
        (call $subscribe (i32.const 2) (i32.const 2) (i32.const 1))
        (call $tell_poll (i32.const 3))",
        &[1000, 0, 2, 1001, 0, 2, 1002, 0, 2],
    )]);
}

#[test]
fn a_full_stream_is_ready_when_there_is_room_again() {
    run(async {
        for fd in ["$caller", "$net"] {
            // Fill it until the system takes no more, find it full, and then wait. The numbers come
            // on the other stream.
            let code = format!(
                "(local.set $i (global.get {fd})) (local.set $n (i32.const 3))
                (drop (call $nonblocking (local.get $i)))
                (loop $fill
                    (br_if $fill (i32.gt_s
                        (call $write (local.get $i) (i32.const 8192) (i32.const 50000))
                        (i32.const 0)))
                    (call $pause (i32.const 10))
                    (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                    (br_if $fill (local.get $n)))
                (global.set $caller (select (global.get $net) (global.get $caller)
                    (i32.eq (local.get $i) (global.get $caller))))
                (call $subscribe (i32.const 1) (i32.const 2) (local.get $i))
                (call $clock (i32.const 0) (i32.const 1) (i64.const 20000000) (i32.const 0))
                (call $tell_poll (i32.const 2)) (call $flush)
                (call $subscribe (i32.const 0) (i32.const 2) (local.get $i))
                (call $tell_poll (i32.const 1))"
            );
            let Scene { app, peer } = Guest::v1().work(&code).dial().await;
            let told = match fd {
                "$caller" => drain(app, peer).await,
                _ => drain(peer, app).await,
            };
            assert_eq!(told, [1000, 0, 0, 1000, 0, 2], "{fd}");
        }
    });
}

/// Makes room in `full` when the first event is reported on `other`. Returns all reports.
async fn drain(mut full: impl AsyncRead + Unpin, mut other: impl AsyncRead + Unpin) -> Vec<i32> {
    let mut told = vec![0; 12];
    other.read_exact(&mut told).await.expect("an event");
    let mut rest = Vec::new();
    let drained = async { full.read_to_end(&mut rest).await.expect("the end") };
    let listened = async { other.read_to_end(&mut told).await.expect("the end") };
    crate::water::both(drained, listened).await;
    numbers(&told)
}

#[test]
fn a_clock_wakes_after_its_time_and_not_before() {
    for (id, span) in [(0, 40), (1, 40), (1, 0)] {
        let code = format!(
            "(local.set $n (call $now (i32.const 1)))
            (call $subscribe (i32.const 1) (i32.const 1) (global.get $net))
            (call $clock (i32.const 0) (i32.const {id}) (i64.const {span}000000) (i32.const 0))
            (call $tell_poll (i32.const 2))
            (call $tell (i32.sub (call $now (i32.const 1)) (local.get $n)))"
        );
        let told = told(&code);
        assert_eq!(told[..3], [1000, 0, 0]);
        // Within a millisecond, which is cut off.
        assert!((span - 1..span + 5000).contains(&told[3]), "{told:?}");
    }
}

#[test]
fn a_clock_can_wait_for_a_time_of_its_own() {
    for id in [0, 1] {
        for (span, least) in [(40_000_000, 39), (-40_000_000_i64, 0), (0, 0)] {
            let code = format!(
                "(local.set $n (call $now (i32.const 1)))
                (drop (call $clock_time_get (i32.const {id}) (i64.const 0) (i32.const 1024)))
                ;; Its zero is not long ago.
                (local.set $t (i64.add (i64.load (i32.const 1024)) (i64.const {span})))
                (if (i64.lt_s (local.get $t) (i64.const 0)) (then (local.set $t (i64.const 0))))
                (call $clock (i32.const 0) (i32.const {id}) (local.get $t) (i32.const 1))
                (call $tell_poll (i32.const 1))
                (call $tell (i32.sub (call $now (i32.const 1)) (local.get $n)))"
            );
            let told = told(&code);
            assert_eq!(told[..3], [1000, 0, 0]);
            assert!((least..5000).contains(&told[3]), "{told:?}");
        }
    }
}

#[test]
fn the_earliest_of_several_clocks_wakes_alone() {
    check(&[(
        "(call $clock (i32.const 0) (i32.const 1) (i64.const 60000000000) (i32.const 0))
        (call $clock (i32.const 1) (i32.const 0) (i64.const 20000000) (i32.const 0))
        (call $clock (i32.const 2) (i32.const 1) (i64.const 30000000000) (i32.const 0))
        (call $tell_poll (i32.const 3))",
        &[1001, 0, 0],
    )]);
}

#[test]
fn a_time_that_never_comes_hinders_nothing() {
    run(async {
        let code = "(call $clock (i32.const 0) (i32.const 1) (i64.const -1) (i32.const 0))
            (call $clock (i32.const 1) (i32.const 0) (i64.const -1) (i32.const 1))
            (call $clock (i32.const 2) (i32.const 1) (i64.const -1) (i32.const 1))
            (call $subscribe (i32.const 3) (i32.const 1) (global.get $net))
            (call $tell_poll (i32.const 4))";
        let mut scene = Guest::v1().work(code).dial().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        scene.peer.write_all(b"hello").await.expect("written");
        assert_eq!(scene.told().await, [1003, 0, 1]);
    });
}

#[test]
fn a_number_that_stands_for_nothing_is_an_event_with_an_error() {
    check(&[
        (
            "(call $subscribe (i32.const 0) (i32.const 1) (i32.const 99))
            (call $subscribe (i32.const 1) (i32.const 2) (i32.const -1))
            (call $subscribe (i32.const 2) (i32.const 1) (global.get $net))
            (call $tell_poll (i32.const 3))",
            &[1000, 8, 1, 1001, 8, 2],
        ),
        // Guests have no access to the clock of CPU time.
        (
            "(call $clock (i32.const 0) (i32.const 2) (i64.const 0) (i32.const 0))
            (call $tell_poll (i32.const 1))",
            &[1000, 28, 0],
        ),
        // Standard input is at its end, and outputs cannot be read.
        (
            "(call $subscribe (i32.const 0) (i32.const 1) (i32.const 0))
            (call $subscribe (i32.const 1) (i32.const 1) (i32.const 1))
            (call $tell_poll (i32.const 2))",
            &[1000, 0, 1, 1001, 8, 1],
        ),
    ]);
}

#[test]
fn the_end_of_a_stream_is_ready_to_be_read_and_marked() {
    run(async {
        let code = |fd: &str| {
            format!(
                "(call $subscribe (i32.const 0) (i32.const 1) (global.get {fd}))
                (call $tell_poll (i32.const 1))
                (call $tell (i32.load (i32.const 4112)))
                (call $tell (i32.load16_u (i32.const 4120)))"
            )
        };
        let mut scene = Guest::v1().work(&code("$net")).dial().await;
        scene.peer.shutdown().await.expect("shut down");
        assert_eq!(scene.told().await, [1000, 0, 1, 0, 1]);
        let mut scene = Guest::v1().work(&code("$caller")).dial().await;
        scene.app.shutdown().await.expect("shut down");
        assert_eq!(scene.told().await, [1000, 0, 1, 0, 1]);
    });
}

#[test]
fn events_may_be_written_over_the_subscriptions() {
    check(&[(
        "(call $subscribe (i32.const 0) (i32.const 2) (global.get $caller))
        (call $subscribe (i32.const 1) (i32.const 1) (i32.const 77))
        (call $subscribe (i32.const 2) (i32.const 2) (global.get $net))
        (call $tell (call $result (call $poll_oneoff
            (i32.const 2048) (i32.const 2048) (i32.const 3) (i32.const 16))))
        (call $tell (i32.load (i32.const 2048))) (call $tell (i32.load (i32.const 2080)))
        (call $tell (i32.load16_u (i32.const 2088))) (call $tell (i32.load (i32.const 2112)))",
        &[3, 1000, 1001, 8, 1002],
    )]);
}

/// Counts how often `code` completes within `$n` milliseconds.
fn circles(code: &str) -> i32 {
    let code = format!(
        "(drop (call $nonblocking (global.get $net)))
        (local.set $n (i32.add (call $now (i32.const 1)) (i32.const 150)))
        (loop $again
            {code}
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $again (i32.lt_s (call $now (i32.const 1)) (local.get $n))))
        (call $tell (local.get $i))"
    );
    told(&code)[0]
}

#[test]
fn a_guest_with_nothing_to_do_does_not_circle() {
    // A wait without an event returns when its time is over, and not before.
    let count = circles(
        "(call $subscribe (i32.const 0) (i32.const 1) (global.get $net))
        (call $clock (i32.const 1) (i32.const 1) (i64.const 15000000) (i32.const 0))
        (drop (call $poll (i32.const 2)))",
    );
    assert!((1..=11).contains(&count), "{count}");
    // Busy loops are slowed down: a millisecond for each call, after a few.
    for code in [
        "(drop (call $read (global.get $net) (i32.const 1024) (i32.const 9)))",
        "(drop (call $sched_yield))",
        "(call $subscribe (i32.const 0) (i32.const 2) (global.get $net))
        (drop (call $poll (i32.const 1)))",
        "(call $clock (i32.const 0) (i32.const 1) (i64.const 0) (i32.const 0))
        (drop (call $poll (i32.const 1)))",
    ] {
        let count = circles(code);
        assert!((1..=64 + 151).contains(&count), "{count}: {code}");
    }
}

#[test]
fn an_idle_guest_is_woken_by_what_it_waits_for_alone() {
    run(async {
        // Without a clock it would wait forever; bytes for another descriptor do not wake it.
        let code = "(call $subscribe (i32.const 0) (i32.const 1) (global.get $net))
            (call $tell_poll (i32.const 1))
            (call $tell (call $now (i32.const 1)))";
        let mut scene = Guest::v1()
            .init("(drop (call $now (i32.const 1))) (i32.const 0)")
            .work(code)
            .dial()
            .await;
        let begin = Instant::now();
        scene.app.write_all(b"hello").await.expect("written");
        let early = tokio::time::timeout(Duration::from_millis(40), scene.hear(1));
        assert!(early.await.is_err());
        scene.peer.write_all(b"hello").await.expect("written");
        let told = scene.told().await;
        assert_eq!(told[..3], [1000, 0, 1]);
        assert!(told[3] >= 39 && begin.elapsed() >= Duration::from_millis(40));
    });
}
