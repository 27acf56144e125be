//! Invalid pointers and lengths.

use watm_test_support::run;
use watm_test_support::water::{Guest, told};

/// Addresses at the end of two pages, and beyond any memory.
const OUTSIDE: [i64; 4] = [131_072, 131_071, -1, -8];

#[test]
fn results_that_do_not_fit_into_the_memory_are_faults() {
    let net = "(global.get $net)";
    let one = "(i32.const 0) (i32.const 1)";
    let mut code = String::from("(call $part (i32.const 8192) (i32.const 4))\n");
    let mut count = 0;
    for pointer in OUTSIDE {
        let out = format!("(i32.const {pointer})");
        for call in [
            format!("$args_sizes_get {out} (i32.const 8192)"),
            format!("$args_sizes_get (i32.const 8192) {out}"),
            format!("$environ_sizes_get {out} (i32.const 8192)"),
            format!("$environ_sizes_get (i32.const 8192) {out}"),
            format!("$clock_res_get (i32.const 0) {out}"),
            format!("$clock_time_get (i32.const 0) (i64.const 0) {out}"),
            format!("$random_get {out} (i32.const 2)"),
            format!("$fd_fdstat_get {net} {out}"),
            format!("$fd_filestat_get {net} {out}"),
            format!("$fd_prestat_get (i32.const 3) {out}"),
            format!("$fd_prestat_dir_name (i32.const 3) {out} (i32.const 5)"),
            format!("$fd_read {net} {one} {out}"),
            format!("$fd_read {net} {out} (i32.const 1) (i32.const 16)"),
            format!("$fd_write {net} {one} {out}"),
            format!("$fd_write {net} {out} (i32.const 1) (i32.const 16)"),
            format!("$fd_pread (i32.const 7) {one} (i64.const 0) {out}"),
            format!("$fd_seek (i32.const 7) (i64.const 0) (i32.const 0) {out}"),
            format!("$fd_tell (i32.const 7) {out}"),
            format!("$sock_send {net} {one} (i32.const 0) {out}"),
            format!("$sock_recv {net} {one} (i32.const 0) {out} (i32.const 24)"),
            format!("$sock_recv {net} {one} (i32.const 0) (i32.const 16) {out}"),
            format!("$poll_oneoff {out} (i32.const 4096) (i32.const 1) (i32.const 16)"),
            format!("$poll_oneoff (i32.const 2048) {out} (i32.const 1) (i32.const 16)"),
            format!("$poll_oneoff (i32.const 2048) (i32.const 4096) (i32.const 1) {out}"),
            format!(
                "$path_open (i32.const 3) (i32.const 0) {out} (i32.const 8) (i32.const 0)
                (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16)"
            ),
            format!(
                "$path_open (i32.const 3) (i32.const 0) (i32.const 1024) (i32.const 8) (i32.const 0)
                (i64.const 2) (i64.const 0) (i32.const 0) {out}"
            ),
            format!(
                "$path_filestat_get (i32.const 3) (i32.const 0) {out} (i32.const 8) (i32.const 8192)"
            ),
            format!(
                "$path_filestat_get (i32.const 3) (i32.const 0) (i32.const 1024) (i32.const 8) {out}"
            ),
        ] {
            code += &format!("(call $tell (call {call}))\n");
            count += 1;
        }
    }
    let guest = Guest::v1()
        .with(r#"(data (i32.const 1024) "watm.cfg")"#)
        .config(b"abcd")
        .work(&format!(
            "(drop (call $open (i32.const 3) (i32.const 1024) (i32.const 8)))
            (call $subscribe (i32.const 0) (i32.const 2) (global.get $net)) {code}
            ;; Number 7 has been opened, and nothing else.
            (call $tell (call $open (i32.const 3) (i32.const 1024) (i32.const 8)))"
        ));
    let told = run(async { guest.dial().await.told().await });
    let (last, faults) = told.split_last().expect("numbers");
    assert_eq!(faults, vec![21; count]);
    assert_eq!(*last, 8);
}

#[test]
fn parts_that_lie_outside_of_the_memory_are_faults_and_move_nothing() {
    run(async {
        for (pointer, len) in [
            (131_072_u32, 1),
            (131_071, 2),
            (0, u32::MAX),
            (u32::MAX, u32::MAX),
            (u32::MAX, 1),
        ] {
            // The first part is valid, and would take or return bytes.
            let code = format!(
                "(call $subscribe (i32.const 0) (i32.const 1) (global.get $net))
                (drop (call $poll (i32.const 1)))
                (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 4))
                (i32.store (i32.const 8) (i32.const {pointer})) (i32.store (i32.const 12) (i32.const {len}))
                (call $tell (call $fd_read (global.get $net) (i32.const 0) (i32.const 2) (i32.const 16)))
                (call $tell (call $fd_write (global.get $net) (i32.const 0) (i32.const 2) (i32.const 16)))
                (call $tell (call $fd_write (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 16)))
                (call $tell (call $read (global.get $net) (i32.const 1024) (i32.const 100)))"
            );
            let mut scene = Guest::v1().work(&code).dial().await;
            tokio::io::AsyncWriteExt::write_all(&mut scene.peer, b"abcd")
                .await
                .expect("written");
            assert_eq!(scene.told().await, [21, 21, 21, 4]);
            let mut heard = Vec::new();
            let end = tokio::io::AsyncReadExt::read_to_end(&mut scene.peer, &mut heard).await;
            assert_eq!((end.expect("the end"), heard), (0, Vec::new()));
        }
    });
}

#[test]
fn lists_of_very_many_parts_are_invalid() {
    let mut code = String::new();
    let mut expected = Vec::new();
    for (parts, errno) in [
        (1025, 28),
        (i64::from(u32::MAX), 28),
        (0x2000_0000, 28),
        (0x2000_0001, 28),
    ] {
        for call in ["fd_read", "fd_write"] {
            for fd in ["(global.get $net)", "(global.get $caller)", "(i32.const 1)"] {
                code += &format!(
                    "(call $tell (call ${call} {fd} (i32.const 1024) (i32.const {parts}) (i32.const 16)))"
                );
                expected.push(errno);
            }
        }
    }
    assert_eq!(told(&code), expected);
    // The largest number of parts, at the end of the memory: the list does not fit.
    let code = "(call $tell (call $fd_write (global.get $net) (i32.const 131000) (i32.const 1024) (i32.const 16)))";
    assert_eq!(told(code), [21]);
}

#[test]
fn many_parts_of_the_same_bytes_are_written_one_after_another_and_printed_up_to_a_bound() {
    // 1024 parts of 64 KiB, which are all the same.
    let code = "(loop $again
            (i32.store (i32.add (i32.const 8192) (i32.mul (local.get $i) (i32.const 8))) (i32.const 65536))
            (i32.store (i32.add (i32.const 8196) (i32.mul (local.get $i) (i32.const 8))) (i32.const 65536))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $i) (i32.const 1024))))
        (drop (call $nonblocking (global.get $net)))
        (local.set $n (call $result (call $fd_write (global.get $net) (i32.const 8192) (i32.const 1024) (i32.const 16))))
        (call $tell (i32.and (i32.gt_s (local.get $n) (i32.const 0)) (i32.le_s (local.get $n) (i32.const 67108864))))
        (local.set $n (call $result (call $fd_write (i32.const 1) (i32.const 8192) (i32.const 1024) (i32.const 16))))
        (call $tell (i32.and (i32.gt_s (local.get $n) (i32.const 0)) (i32.le_s (local.get $n) (i32.const 65536))))";
    assert_eq!(told(code), [1, 1]);
}

#[test]
fn lengths_that_wrap_around_are_faults() {
    let told = told(
        "(call $tell (call $random_get (i32.const 1024) (i32.const -1)))
        (call $tell (call $random_get (i32.const -1) (i32.const -1)))
        (call $tell (call $random_get (i32.const 131072) (i32.const 0)))
        (call $tell (call $poll_oneoff (i32.const -1) (i32.const -1) (i32.const 1024) (i32.const -1)))
        (call $tell (call $poll_oneoff (i32.const 130000) (i32.const 4096) (i32.const 1024) (i32.const 16)))
        (call $tell (call $poll_oneoff (i32.const 2048) (i32.const 130000) (i32.const 1024) (i32.const 16)))",
    );
    // An empty range at the very end is within bounds. Kinds of 0 are clocks, and none of these
    // waits.
    assert_eq!(told, [21, 21, 0, 21, 21, 21]);
}

#[test]
fn memory_that_grew_is_within_bounds_and_a_memory_of_nothing_has_none() {
    assert_eq!(
        told(
            "(call $tell (call $random_get (i32.const 131072) (i32.const 16)))
            (call $tell (memory.grow (i32.const 1)))
            (call $tell (call $random_get (i32.const 131072) (i32.const 16)))"
        ),
        [21, 2, 0]
    );
    run(async {
        let text = Guest::v1().text().replace(
            r#"(memory (export "memory") 2)"#,
            r#"(memory (export "memory") 0)"#,
        );
        let text = text.replace("(call $flush) (i32.const 0)", "(call $now (i32.const 0))");
        let bytes = wat::parse_str(text).expect("valid text");
        let module = watm_test_support::engine()
            .load("empty", &bytes)
            .expect("loads");
        let dialer = watm_runtime::Dialer::builder(&module)
            .build()
            .expect("a dialer");
        let echo = crate::water::echo().await.to_string();
        let mut app = dialer.dial(&echo).await.expect("connects");
        let end = tokio::io::AsyncReadExt::read(&mut app, &mut [0; 1]).await;
        assert!(
            end.expect_err("a trap")
                .to_string()
                .contains("out of bounds")
        );
    });
}
