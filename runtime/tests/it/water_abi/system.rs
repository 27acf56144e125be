//! Arguments, environment, clocks, randomness, and resources that are never given.

use std::time::{SystemTime, UNIX_EPOCH};

use watm_test_support::water::{check, told};

#[test]
fn there_are_no_arguments_and_no_environment() {
    for kind in ["args", "environ"] {
        let code = format!(
            "(i64.store (i32.const 1024) (i64.const -1))
            (call $tell (call ${kind}_sizes_get (i32.const 1024) (i32.const 1028)))
            (call $tell (i32.load (i32.const 1024))) (call $tell (i32.load (i32.const 1028)))
            (call $tell (call ${kind}_get (i32.const 1024) (i32.const 1028)))"
        );
        assert_eq!(told(&code), [0, 0, 0, 0], "{kind}");
    }
}

#[test]
fn the_clocks_go_on() {
    let unix_millis = || {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        now.as_millis() as u32
    };
    let before = unix_millis();
    let told = told(
        "(call $tell (call $now (i32.const 0)))
        (call $tell (call $now (i32.const 1)))
        (call $pause (i32.const 30))
        (call $tell (call $now (i32.const 1)))",
    );
    let real = told[0].cast_unsigned().wrapping_sub(before);
    assert!(real <= unix_millis().wrapping_sub(before), "{real}");
    let passed = told[2] - told[1];
    assert!((30..10_000).contains(&passed), "{passed}");
}

#[test]
fn clocks_say_how_fine_they_are_and_others_do_not_exist() {
    check(&[
        (
            "(call $tell (call $clock_res_get (i32.const 0) (i32.const 1024)))
            (call $tell (i32.lt_u (i32.load (i32.const 1024)) (i32.const 1000001)))
            (call $tell (i32.load (i32.const 1028)))
            (call $tell (call $clock_res_get (i32.const 1) (i32.const 1024)))",
            &[0, 1, 0, 0],
        ),
        (
            "(call $tell (call $clock_res_get (i32.const 2) (i32.const 1024)))
            (call $tell (call $clock_time_get (i32.const 3) (i64.const 0) (i32.const 1024)))
            (call $tell (call $clock_time_get (i32.const -1) (i64.const 0) (i32.const 1024)))",
            &[28, 28, 28],
        ),
    ]);
}

#[test]
fn random_bytes_differ_and_fill_no_more_than_was_asked() {
    let told = told(
        "(call $tell (call $random_get (i32.const 1024) (i32.const 16)))
        (call $tell (call $random_get (i32.const 1040) (i32.const 16)))
        (call $tell (call $random_get (i32.const 1060) (i32.const 0)))
        (call $tell (i64.eq (i64.load (i32.const 1024)) (i64.load (i32.const 1040))))
        (call $tell (i64.eqz (i64.load (i32.const 1048))))
        (call $tell (i32.load (i32.const 1056)))
        (call $tell (call $random_get (i32.const 1024) (i32.const 60000)))",
    );
    assert_eq!(told, [0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn yielding_succeeds() {
    check(&[(
        "(call $tell (call $sched_yield)) (call $tell (call $sched_yield))",
        &[0, 0],
    )]);
}

#[test]
fn what_a_transport_has_no_use_for_is_refused_with_a_number() {
    let [number, long] = ["(i32.const 3)", "(i64.const 0)"];
    let mut code = String::new();
    let mut expected = Vec::new();
    for (call, arguments, errno) in [
        ("fd_allocate", [number, long, long].as_slice(), 63),
        ("fd_filestat_set_size", &[number, long], 63),
        ("fd_filestat_set_times", &[number, long, long, number], 63),
        ("fd_pwrite", &[number, number, number, long, number], 63),
        ("path_create_directory", &[number; 3], 63),
        (
            "path_filestat_set_times",
            &[number, number, number, number, long, long, number],
            63,
        ),
        ("path_link", &[number; 7], 63),
        ("path_remove_directory", &[number; 3], 63),
        ("path_rename", &[number; 6], 63),
        ("path_symlink", &[number; 5], 63),
        ("path_unlink_file", &[number; 3], 63),
        ("path_readlink", &[number; 6], 28),
        ("fd_readdir", &[number, number, number, long, number], 52),
        ("proc_raise", &[number], 52),
        ("sock_accept", &[number; 3], 58),
    ] {
        code += &format!("(call $tell (call ${call} {}))", arguments.join(" "));
        expected.push(errno);
    }
    assert_eq!(told(&code), expected);
}
