//! `/conf/watm.cfg`, the only file of a guest.

use crate::water::pattern;
use watm_test_support::run;
use watm_test_support::water::Guest;

/// Makes a guest with this name to open, at 1024.
fn named(name: &[u8]) -> Guest {
    let escaped: String = name.iter().map(|byte| format!("\\{byte:02x}")).collect();
    Guest::v1()
        .config(b"the configuration")
        .with(&format!("(data (i32.const 1024) \"{escaped}\")"))
}

fn told(guest: &Guest) -> Vec<i32> {
    run(async { guest.dial().await.told().await })
}

/// Runs a guest with the file open in `$i`.
fn opened(config: &[u8], code: &str) -> Vec<i32> {
    let open = "(local.set $i (call $open (i32.const 3) (i32.const 1024) (i32.const 8)))";
    let guest = named(b"watm.cfg").config(config);
    told(&guest.work(&format!("{open} {code}")))
}

#[test]
fn it_is_read_in_full_and_in_pieces_and_then_comes_the_end() {
    let full = "(call $tell (call $read (local.get $i) (i32.const 8192) (i32.const 1000)))
        (call $tell (i32.load (i32.const 8192)))
        (call $tell (call $read (local.get $i) (i32.const 8192) (i32.const 1000)))";
    let (abcd, efgh) = (i32::from_le_bytes(*b"abcd"), i32::from_le_bytes(*b"efgh"));
    assert_eq!(opened(b"abcdefgh", full), [8, abcd, 0]);
    let pieces = "(loop $again
        (i32.store (i32.const 8192) (i32.const 0))
        (local.set $n (call $read (local.get $i) (i32.const 8192) (i32.const 3)))
        (call $tell (local.get $n)) (call $tell (i32.load (i32.const 8192)))
        (br_if $again (local.get $n)))";
    let words = [*b"abc\0", *b"def\0", *b"gh\0\0"].map(i32::from_le_bytes);
    let expected = [3, words[0], 3, words[1], 2, words[2], 0, 0];
    assert_eq!(opened(b"abcdefgh", pieces), expected);
    let parts = "(i32.store (i32.const 0) (i32.const 8192)) (i32.store (i32.const 4) (i32.const 4))
        (i32.store (i32.const 8) (i32.const 8300)) (i32.store (i32.const 12) (i32.const 100))
        (call $tell (call $result (call $fd_read (local.get $i) (i32.const 0) (i32.const 2) (i32.const 16))))
        (call $tell (i32.load (i32.const 8192))) (call $tell (i32.load (i32.const 8300)))";
    assert_eq!(opened(b"abcdefgh", parts), [8, abcd, efgh]);
}

#[test]
fn it_is_read_from_the_start_each_time_it_is_opened() {
    let again = "(drop (call $read (local.get $i) (i32.const 8192) (i32.const 3)))
        (local.set $i (call $open (i32.const 3) (i32.const 1024) (i32.const 8)))
        (call $tell (call $read (local.get $i) (i32.const 8192) (i32.const 100)))";
    assert_eq!(opened(b"abcdefgh", again), [8]);
}

#[test]
fn a_large_one_arrives_whole() {
    // The sum of all words.
    let sum = "(block $out (loop $again
            (local.set $n (call $read (local.get $i) (i32.const 8192) (i32.const 40000)))
            (br_if $out (i32.eqz (local.get $n)))
            (loop $next
                (local.set $n (i32.sub (local.get $n) (i32.const 8)))
                (local.set $t (i64.add (local.get $t)
                    (i64.load (i32.add (i32.const 8192) (local.get $n)))))
                (br_if $next (local.get $n)))
            (br $again)))
        (call $tell (i32.wrap_i64 (local.get $t)))
        (call $tell (i32.wrap_i64 (i64.shr_u (local.get $t) (i64.const 32))))";
    let words: i64 = (0..131_072).sum();
    let expected = [words as i32, (words >> 32) as i32];
    assert_eq!(opened(&pattern(1 << 20), sum), expected);
}

#[test]
fn it_has_a_place_that_can_be_changed() {
    let seek = |by: i64, whence: u32| {
        format!(
            "(call $tell (call $result (call $fd_seek
                (local.get $i) (i64.const {by}) (i32.const {whence}) (i32.const 16))))"
        )
    };
    let tell = "(call $tell (call $result (call $fd_tell (local.get $i) (i32.const 16))))";
    let read = "(call $tell (call $read (local.get $i) (i32.const 8192) (i32.const 100)))";
    let [set, current, end] = [0, 1, 2];
    for (code, expected) in [
        (
            format!("{read} {tell} {} {read}", seek(2, set)),
            [8, 8, 2, 6].as_slice(),
        ),
        (
            format!("{} {} {read}", seek(3, current), seek(-1, current)),
            &[3, 2, 6],
        ),
        (
            format!("{} {read} {}", seek(-3, end), seek(0, end)),
            &[5, 3, 8],
        ),
        // Past its end there is nothing.
        (format!("{} {read} {tell}", seek(100, set)), &[100, 0, 100]),
        // A position before its start is invalid, and changes nothing.
        (
            format!("{} {} {tell}", seek(1, set), seek(-2, current)),
            &[1, -28, 1],
        ),
        (seek(-9, end), &[-28]),
        (seek(0, 3), &[-28]),
        (
            format!("{} {}", seek(i64::MAX, set), seek(i64::MAX, current)),
            &[-1, -2],
        ),
    ] {
        assert_eq!(opened(b"abcdefgh", &code), expected, "{code}");
    }
    let pread = "(call $part (i32.const 8192) (i32.const 100))
        (call $tell (call $result (call $fd_pread
            (local.get $i) (i32.const 0) (i32.const 1) (i64.const 6) (i32.const 16))))
        (call $tell (call $result (call $fd_pread
            (local.get $i) (i32.const 0) (i32.const 1) (i64.const -1) (i32.const 16))))";
    assert_eq!(opened(b"abcdefgh", &format!("{pread} {tell}")), [2, 0, 0]);
}

#[test]
fn it_says_that_it_is_a_file_of_its_size() {
    let stat = "(call $tell (call $fd_filestat_get (local.get $i) (i32.const 8192)))
        (call $tell (i32.load8_u (i32.const 8208))) (call $tell (i32.load (i32.const 8224)))
        (memory.fill (i32.const 8192) (i32.const 255) (i32.const 64))
        (call $tell (call $path_filestat_get (i32.const 3) (i32.const 0) (i32.const 1024)
            (i32.const 8) (i32.const 8192)))
        (call $tell (i32.load8_u (i32.const 8208))) (call $tell (i32.load (i32.const 8224)))
        (call $tell (call $fd_fdstat_get (local.get $i) (i32.const 8192)))
        (call $tell (i32.load8_u (i32.const 8192)))";
    assert_eq!(opened(b"abcdefgh", stat), [0, 4, 8, 0, 4, 8, 0, 4]);
    // An empty file exists, too.
    assert_eq!(opened(b"", stat), [0, 4, 0, 0, 4, 0, 0, 4]);
}

#[test]
fn it_is_in_a_directory_that_is_found_as_libraries_look_for_it() {
    let code = "(call $tell (call $fd_prestat_get (i32.const 3) (i32.const 8192)))
        (call $tell (i32.load8_u (i32.const 8192))) (call $tell (i32.load (i32.const 8196)))
        (call $tell (call $fd_prestat_dir_name (i32.const 3) (i32.const 8192) (i32.const 5)))
        (call $tell (i32.load (i32.const 8192))) (call $tell (i32.load8_u (i32.const 8196)))
        (call $tell (call $fd_prestat_dir_name (i32.const 3) (i32.const 8192) (i32.const 4)))
        (call $tell (call $fd_fdstat_get (i32.const 3) (i32.const 8192)))
        (call $tell (i32.load8_u (i32.const 8192)))
        ;; No more directories.
        (call $tell (call $fd_prestat_get (local.get $i) (i32.const 8192)))";
    let conf = i32::from_le_bytes(*b"/con");
    let name_too_long = 37;
    let directory = 3;
    let expected = [
        0,
        0,
        5,
        0,
        conf,
        i32::from(b'f'),
        name_too_long,
        0,
        directory,
        8,
    ];
    assert_eq!(opened(b"x", code), expected);
}

#[test]
fn without_a_configuration_there_is_no_directory() {
    run(async {
        // Number 3 is free while the module sets itself up, and then its caller.
        let guest = Guest::v1()
            .init("(call $tell (call $fd_prestat_get (i32.const 3) (i32.const 8192)))
                (call $tell (call $open (i32.const 3) (i32.const 1024) (i32.const 8))) (i32.const 0)")
            .work("(call $tell (call $fd_prestat_get (i32.const 3) (i32.const 8192)))
                (call $tell (call $open (i32.const 3) (i32.const 1024) (i32.const 8)))");
        assert_eq!(guest.dial().await.told().await, [8, -8, 8, -54]);
    });
}

#[test]
fn no_path_leads_out_of_the_directory() {
    for (path, expected) in [
        (&b"watm.cfg"[..], None),
        (b"./watm.cfg", None),
        (b".//./watm.cfg", None),
        (b".", None),
        (b"", Some(44)),
        (b"other", Some(44)),
        (b"WATM.CFG", Some(44)),
        (b"watm.cfg\0", Some(44)),
        (b"..", Some(63)),
        (b"../watm.cfg", Some(63)),
        (b"../conf/watm.cfg", Some(63)),
        (b"../../etc/passwd", Some(63)),
        (b"./../etc/passwd", Some(63)),
        (b"x/../../etc/passwd", Some(44)),
        (b"/", Some(63)),
        (b"/conf/watm.cfg", Some(63)),
        (b"/etc/passwd", Some(63)),
        (b"watm.cfg/..", Some(54)),
        (b"watm.cfg/x", Some(54)),
        (b"\xff\xfe", Some(25)),
    ] {
        let len = path.len();
        let code = format!(
            "(call $tell (call $open (i32.const 3) (i32.const 1024) (i32.const {len})))
            (call $tell (call $path_filestat_get (i32.const 3) (i32.const 1) (i32.const 1024)
                (i32.const {len}) (i32.const 8192)))"
        );
        let told = told(&named(path).work(&code));
        let expected = match expected {
            // The lowest free number.
            None => [7, 0],
            Some(errno) => [-errno, errno],
        };
        assert_eq!(told, expected, "{:?}", path.escape_ascii().to_string());
    }
}

#[test]
fn the_directory_and_the_file_are_for_reading() {
    let open = |options: u32, rights: u32, flags: u32| {
        format!(
            "(call $tell (call $result (call $path_open (i32.const 3) (i32.const 0) (i32.const 1024)
                (i32.const 8) (i32.const {options}) (i64.const {rights}) (i64.const 0)
                (i32.const {flags}) (i32.const 16))))"
        )
    };
    let [create, directory, exclusive, truncate] = [1, 2, 4, 8];
    let [read, write, append] = [2, 64, 1];
    let read_only = -69;
    for (code, expected) in [
        (open(create, read, 0), read_only),
        (open(create | exclusive, write, 0), read_only),
        (open(truncate, write, 0), read_only),
        (open(0, write, append), read_only),
        (open(directory, read, 0), -54),
    ] {
        assert_eq!(opened(b"abcd", &code), [expected], "{code}");
    }
    let write = "(call $tell (call $write (local.get $i) (i32.const 8192) (i32.const 4)))
        (call $tell (call $write (i32.const 3) (i32.const 8192) (i32.const 4)))
        (call $tell (call $read (i32.const 3) (i32.const 8192) (i32.const 4)))
        ;; And what was there is there.
        (call $tell (call $read (local.get $i) (i32.const 8192) (i32.const 100)))
        (call $tell (i32.load (i32.const 8192)))";
    let abcd = i32::from_le_bytes(*b"abcd");
    assert_eq!(opened(b"abcd", write), [-8, -31, -31, 4, abcd]);
}
