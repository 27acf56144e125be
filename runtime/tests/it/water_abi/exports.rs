//! Exports of a module: required ones, the time of their calls, and the meaning of their results.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{
    DialOptions, Dialer, Error, FixedDialer, Listener, Module, ModuleKind, Relay, Role,
};

use watm_test_support::water::{Guest, Scene, without_name};
use watm_test_support::{LOCALHOST, engine, records, run, wait_until};

fn load(text: &str) -> Result<Module, Error> {
    engine().load("module", &wat::parse_str(text).expect("valid text"))
}

#[test]
fn a_function_that_is_missing_or_of_another_type_is_named_when_the_module_is_loaded() {
    let whole = Guest::v1().text();
    let without = |name: &str| whole.replace(&format!("\"{name}\""), "\"other\"");
    let instead = |name: &str, function: &str| {
        format!(
            "{}(func (export \"{name}\") {function}))",
            &without(name)[..without(name).len() - 1]
        )
    };
    assert!(load(&whole).is_ok());
    for (text, expected) in [
        (
            without("watm_init_v1"),
            "does not export watm_init_v1, of type ()->i32",
        ),
        (
            without("watm_ctrlpipe_v1"),
            "does not export watm_ctrlpipe_v1, of type (i32)->i32",
        ),
        (
            without("watm_start_v1"),
            "does not export watm_start_v1, of type ()->i32",
        ),
        (without("memory"), "does not export its memory as memory"),
        (
            instead("watm_dial_v1", "(result i32) (i32.const 0)"),
            "exports watm_dial_v1 as ()->i32; must be (i32)->i32",
        ),
        (
            instead("watm_accept_v1", "(param i32)"),
            "exports watm_accept_v1 as (i32)->(); must be (i32)->i32",
        ),
        (
            instead(
                "watm_dial_fixed_v1",
                "(param i64) (result i32) (i32.const 0)",
            ),
            "exports watm_dial_fixed_v1 as (i64)->i32; must be (i32)->i32",
        ),
        (
            instead(
                "watm_associate_v1",
                "(param i32) (result i32) (i32.const 0)",
            ),
            "exports watm_associate_v1 as (i32)->i32; must be ()->i32",
        ),
        (
            instead("watm_start_v1", "(result i64) (i64.const 0)"),
            "exports watm_start_v1 as ()->i64; must be ()->i32",
        ),
        (
            whole.replacen("(module", "(module (import \"env\" \"foo\" (func))", 1),
            "imports env.foo, which the host of a WATER v1 module does not have; it has \
             water_dial_fixed, water_dial, water_accept",
        ),
        (
            whole.replacen(
                "(module",
                "(module (import \"env\" \"host_defer\" (func))",
                1,
            ),
            "imports env.host_defer, which the host of a WATER v1 module does not have",
        ),
        (
            whole.replacen(
                "(module",
                "(module (import \"env\" \"water_accept\" (func (param i32)))",
                1,
            ),
            "imports env.water_accept as (i32)->(); must be ()->i32",
        ),
        (
            whole.replacen(
                "(module",
                "(module (import \"wasi_snapshot_preview1\" \"fd_open\" (func))",
                1,
            ),
            "imports wasi_snapshot_preview1.fd_open, which WASI preview 1",
        ),
    ] {
        let error = load(&text).expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn a_role_without_its_function_is_refused_when_it_is_asked_for() {
    run(async {
        let whole = Guest::v1().text();
        for (name, role) in [
            ("watm_dial_v1", Role::Dialer),
            ("watm_dial_fixed_v1", Role::FixedDialer),
            ("watm_accept_v1", Role::Listener),
            ("watm_associate_v1", Role::Relay),
        ] {
            let module = load(&whole.replace(name, "other")).expect("loads");
            let others: Vec<Role> = Role::ALL
                .into_iter()
                .filter(|other| *other != role)
                .collect();
            assert_eq!(module.info().roles, others);
            let error = match role {
                Role::Dialer => Dialer::builder(&module).build().err(),
                Role::FixedDialer => FixedDialer::builder(&module).build().err(),
                Role::Listener => Listener::builder(&module).bind(LOCALHOST).err(),
                Role::Relay => Relay::builder(&module).bind(LOCALHOST, "127.0.0.1:9").err(),
            };
            let reason = without_name(&error.expect("refused"));
            let expected = format!("does not have the role {role}; it has: ");
            assert!(reason.starts_with(&expected), "{reason}");
        }
    });
}

#[test]
fn a_module_that_imports_nothing_of_water_loads_and_has_no_connection() {
    run(async {
        let guest = Guest::v1().importing("").with(
            "(func $dial_own (result i32) (i32.const 0)) (func $accept (result i32) (i32.const 0))",
        );
        let reason = guest.refusal().await;
        assert_eq!(
            reason,
            "watm_dial_v1 returned 0, which is not one of its connections"
        );
    });
}

#[test]
fn a_module_of_both_versions_is_one_of_the_second() {
    run(async {
        let guest = Guest::v1().with(
            r#"(func (export "_water_v0")) (func $no (result i32) (i32.const -52))
            (func $neither (param i32) (result i32) (i32.const -52))
            (export "_water_init" (func $no)) (export "_water_worker" (func $no))
            (export "_water_dial" (func $neither)) (export "_water_cancel_with" (func $neither))"#,
        );
        assert_eq!(guest.module().info().kind, ModuleKind::WaterV1);
        let mut scene = guest.work("(call $tell (i32.const 7))").dial().await;
        assert_eq!(scene.told().await, [7]);
    });
}

/// Appends a number to those that are reported in the end.
const MARKS: &str = "(global $marks (mut i32) (i32.const 0))
    (func $mark (param $digit i32)
        (global.set $marks (i32.add (local.get $digit)
            (i32.mul (global.get $marks) (i32.const 10)))))";

#[test]
fn functions_are_called_once_and_in_their_order() {
    run(async {
        let guest = Guest::v1()
            .with(MARKS)
            .with(
                r#"(func (export "_start") (call $mark (i32.const 1)))
                (func (export "_initialize") (call $mark (i32.const 9)))"#,
            )
            .init("(call $mark (i32.const 2)) (i32.const 0)")
            .connect("(call $mark (i32.const 3)) (call $dial_own)")
            .control("(call $mark (i32.const 4)) (i32.const 0)")
            .work("(call $mark (i32.const 5)) (call $tell (global.get $marks))");
        assert_eq!(guest.dial().await.told().await, [12345]);
    });
}

#[test]
fn a_start_that_exits_well_is_a_start_and_its_instance_is_kept() {
    run(async {
        for (start, expected) in [
            (
                r#"(func (export "_start") (call $mark (i32.const 1)) (call $proc_exit (i32.const 0)))"#,
                12,
            ),
            (
                r#"(func (export "_initialize") (call $mark (i32.const 1)))"#,
                12,
            ),
            (
                r#"(func (export "_initialize") (call $mark (i32.const 1)) (call $proc_exit (i32.const 0)))"#,
                12,
            ),
            ("", 2),
        ] {
            let guest = Guest::v1().with(MARKS).with(start);
            let guest = guest.work("(call $mark (i32.const 2)) (call $tell (global.get $marks))");
            assert_eq!(guest.dial().await.told().await, [expected], "{start}");
        }
    });
}

#[test]
fn a_start_that_fails_is_an_error_that_says_how() {
    run(async {
        for (start, expected) in [
            ("(call $proc_exit (i32.const 3))", "called proc_exit(3)"),
            ("(unreachable)", "unreachable"),
            (
                "(drop (i32.div_u (i32.const 1) (global.get $told)))",
                "divide by zero",
            ),
        ] {
            let guest = Guest::v1().with(&format!("(func (export \"_start\") {start})"));
            let Err(Error::Trap { reason, .. }) = guest.try_dial().await else {
                panic!("{start}");
            };
            assert!(reason.contains(expected), "{reason}");
        }
        let guest = Guest::v1().with("(func (export \"_start\") (result i32) (i32.const 0))");
        assert!(guest.refusal().await.contains("_start"));
    });
}

const NAMES: [&str; 76] = [
    "E2BIG",
    "EACCES",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "EAFNOSUPPORT",
    "EAGAIN",
    "EALREADY",
    "EBADF",
    "EBADMSG",
    "EBUSY",
    "ECANCELED",
    "ECHILD",
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EDEADLK",
    "EDESTADDRREQ",
    "EDOM",
    "EDQUOT",
    "EEXIST",
    "EFAULT",
    "EFBIG",
    "EHOSTUNREACH",
    "EIDRM",
    "EILSEQ",
    "EINPROGRESS",
    "EINTR",
    "EINVAL",
    "EIO",
    "EISCONN",
    "EISDIR",
    "ELOOP",
    "EMFILE",
    "EMLINK",
    "EMSGSIZE",
    "EMULTIHOP",
    "ENAMETOOLONG",
    "ENETDOWN",
    "ENETRESET",
    "ENETUNREACH",
    "ENFILE",
    "ENOBUFS",
    "ENODEV",
    "ENOENT",
    "ENOEXEC",
    "ENOLCK",
    "ENOLINK",
    "ENOMEM",
    "ENOMSG",
    "ENOPROTOOPT",
    "ENOSPC",
    "ENOSYS",
    "ENOTCONN",
    "ENOTDIR",
    "ENOTEMPTY",
    "ENOTRECOVERABLE",
    "ENOTSOCK",
    "ENOTSUP",
    "ENOTTY",
    "ENXIO",
    "EOVERFLOW",
    "EOWNERDEAD",
    "EPERM",
    "EPIPE",
    "EPROTO",
    "EPROTONOSUPPORT",
    "EPROTOTYPE",
    "ERANGE",
    "EROFS",
    "ESPIPE",
    "ESRCH",
    "ESTALE",
    "ETIMEDOUT",
    "ETXTBSY",
    "EXDEV",
    "ENOTCAPABLE",
];

/// Reads the number that is its configuration.
const CONFIGURED: &str = r#"(data (i32.const 1024) "watm.cfg")
    (func $configured (result i32)
        (drop (call $read (call $open (i32.const 3) (i32.const 1024) (i32.const 8))
            (i32.const 1040) (i32.const 4)))
        (i32.load (i32.const 1040)))"#;

#[test]
fn a_negative_answer_is_an_error_with_the_name_of_its_number() {
    run(async {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let numbered = (1..).zip(NAMES).collect::<Vec<_>>();
        let unknown = [77, 1000, i32::MAX].map(|number| (number, "an unknown error"));
        for (function, guest) in [
            ("watm_init_v1", Guest::v1().init("(call $configured)")),
            ("watm_dial_v1", Guest::v1().connect("(call $configured)")),
            (
                "watm_ctrlpipe_v1",
                Guest::v1().control("(call $configured)"),
            ),
        ] {
            let dialer = guest.with(CONFIGURED).config(b"").dialer();
            for (number, name) in numbered.iter().chain(&unknown) {
                let options = DialOptions::new().config((-number).to_le_bytes());
                let error = dialer.dial_with(&address, options).await;
                let error = error.expect_err("refused");
                assert!(matches!(error, Error::Handshake { .. }), "{error:?}");
                let expected = format!("{function} returned -{number} ({name})");
                assert_eq!(without_name(&error), expected);
            }
        }
    });
}

#[test]
fn what_a_module_last_said_on_its_standard_error_is_part_of_its_refusal() {
    const WORDS: &str = r#"(data (i32.const 1024) "well\nno key\1b in line 3")"#;
    let say = "(drop (call $write (i32.const 2) (i32.const 1024) (i32.const 22)))";
    run(async {
        for (answer, reason) in [
            ("(i32.const -28)", "watm_init_v1 returned -28 (EINVAL)"),
            (
                "(unreachable)",
                "wasm trap: wasm `unreachable` instruction executed",
            ),
        ] {
            let guest = Guest::v1().with(WORDS).init(&format!("{say} {answer}"));
            let expected = format!("{reason}; the module's last output: no key\u{fffd} in line 3");
            assert_eq!(guest.refusal().await, expected);
        }
    });
}

#[test]
fn a_fixed_dialers_negative_answer_has_the_name_of_its_number_too() {
    run(async {
        let dialer = Guest::v1().connect("(i32.const -63)").fixed_dialer();
        let error = dialer.dial().await.expect_err("refused");
        assert_eq!(
            without_name(&error),
            "watm_dial_fixed_v1 returned -63 (EPERM)"
        );
    });
}

#[test]
fn an_answer_that_is_no_connection_of_the_module_is_refused() {
    run(async {
        for number in [0, 1, 5, 63, 64, i32::MAX] {
            let code = format!("(drop (call $dial_own)) (i32.const {number})");
            let reason = Guest::v1().connect(&code).refusal().await;
            let expected =
                format!("watm_dial_v1 returned {number}, which is not one of its connections");
            assert_eq!(reason, expected);
        }
    });
}

#[test]
fn the_applications_stream_is_no_answer_in_any_role() {
    const OWN: &str = "the application's own stream; must be a connection from env";
    run(async {
        let own = "(drop (call $dial_own)) (global.get $caller)";
        // Under the number that a connection had before.
        let renumbered = "(global.set $net (call $dial_own))
            (drop (call $fd_renumber (global.get $caller) (global.get $net)))
            (global.get $net)";
        for (guest, code, answer) in [
            (Guest::v1(), own, "watm_dial_v1 returned 3"),
            (Guest::v1(), renumbered, "watm_dial_v1 returned 4"),
            (Guest::v0(), own, "_water_dial returned 3"),
        ] {
            let reason = guest.connect(code).refusal().await;
            assert_eq!(reason, format!("{answer}, which is {OWN}"));
        }
        let fixed = Guest::v1().connect("(global.get $caller)").fixed_dialer();
        assert_eq!(
            without_name(&fixed.dial().await.expect_err("refused")),
            format!("watm_dial_fixed_v1 returned 3, which is {OWN}")
        );

        let text = Guest::v1().text();
        let accepts = "(global.set $net (call $accept))\n                (global.get $net))";
        assert!(text.contains(accepts));
        let text = text.replace(accepts, "(drop (call $accept)) (global.get $caller))");
        let module = crate::water::module("accepts-itself", &text);
        records("accepts-itself");
        let listener = Listener::builder(&module).bind(LOCALHOST).expect("listens");
        let client = TcpStream::connect(listener.local_addr());
        let mut client = client.await.expect("connects");
        // The end, or a reset.
        let _ = client.read(&mut [0; 1]).await;
    });
    wait_until("a record", || {
        let expected = format!("watm_accept_v1 returned 3, which is {OWN}");
        let records = records("accepts-itself");
        records.iter().any(|record| record.text.contains(&expected))
    });
}

#[test]
fn a_trap_in_the_handshake_is_named() {
    run(async {
        for guest in [
            Guest::v1().init("(unreachable)"),
            Guest::v1().connect("(drop (call $dial_own)) (unreachable)"),
            Guest::v1().control("(unreachable)"),
        ] {
            assert!(guest.refusal().await.contains("unreachable"));
        }
        for guest in [
            Guest::v1().init("(call $proc_exit (i32.const 4)) (i32.const 0)"),
            Guest::v1().connect("(call $proc_exit (i32.const 4)) (i32.const 0)"),
            Guest::v1().control("(call $proc_exit (i32.const 4)) (i32.const 0)"),
        ] {
            assert_eq!(guest.refusal().await, "called proc_exit(4)");
        }
    });
}

#[test]
fn whatever_the_worker_answers_both_ends_get_the_end_and_the_application_the_cause() {
    run(async {
        for (code, expected) in [
            ("(i32.const 0)", None),
            ("(i32.const 77)", None),
            ("(call $proc_exit (i32.const 0)) (i32.const -29)", None),
            (
                "(i32.const -11)",
                Some("the module failed with -11 (ECANCELED)"),
            ),
            (
                "(i32.const -64)",
                Some("the module failed with -64 (EPIPE)"),
            ),
            ("(i32.const -29)", Some("the module failed with -29 (EIO)")),
            (
                "(i32.const -999)",
                Some("the module failed with -999 (an unknown error)"),
            ),
            (
                "(call $proc_exit (i32.const 3)) (i32.const 0)",
                Some("called proc_exit(3)"),
            ),
            (
                "(call $proc_exit (i32.const -29)) (i32.const 0)",
                Some("called proc_exit(-29)"),
            ),
            ("(unreachable)", Some("unreachable")),
        ] {
            // Its earlier reports are not lost.
            let code = format!("(call $tell (i32.const 7)) (call $flush) {code}");
            let mut scene = Guest::v1().ends(&code).dial().await;
            assert_eq!(scene.hear(1).await, [7]);
            let end = scene.app.read(&mut [0; 4]).await;
            match (end, expected) {
                (Ok(0), None) => {}
                (Err(error), Some(expected)) => {
                    assert_eq!(error.kind(), ErrorKind::Other);
                    assert!(error.to_string().contains(expected), "{code}: {error}");
                }
                (end, _) => panic!("{code}: {end:?}"),
            }
            let error = scene.app.write_all(b"hello").await.expect_err("over");
            assert!(!error.to_string().is_empty());
            assert_eq!(scene.peer.read(&mut [0; 4]).await.expect("the end"), 0);
        }
    });
}

#[test]
fn modules_that_end_with_an_error_when_the_peer_ends_are_at_their_end_and_no_more() {
    run(async {
        for code in [-64, -11, 0] {
            let code = format!(
                "(drop (call $read (global.get $net) (i32.const 1024) (i32.const 9)))
                (i32.const {code})"
            );
            let mut scene = Guest::v1().ends(&code).dial().await;
            scene.peer.shutdown().await.expect("shut down");
            assert_eq!(scene.app.read(&mut [0; 4]).await.expect("the end"), 0);
        }
    });
}

#[test]
fn a_listeners_handshake_may_fail_and_the_next_one_not() {
    run(async {
        // The client's first byte decides.
        let text = Guest::v1().text().replace(
            "(global.set $net (call $accept))",
            "(global.set $net (call $accept))
            (drop (call $read (global.get $net) (i32.const 1024) (i32.const 1)))
            (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 1)) (then (return (i32.const -65))))
            (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 2)) (then (unreachable)))
            (call $tell (i32.const 7))",
        );
        let listener = Listener::builder(&load(&text).expect("loads"));
        let listener = listener.bind(LOCALHOST).expect("listens");
        for (byte, accepted) in [(1, false), (2, false), (3, true), (1, false), (3, true)] {
            let client = TcpStream::connect(listener.local_addr());
            let mut client = client.await.expect("connects");
            client.write_all(&[byte]).await.expect("written");
            if accepted {
                let app = listener.accept().await.expect("accepts");
                let mut scene = Scene { app, peer: client };
                assert_eq!(scene.told().await, [7]);
            } else {
                assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
            }
        }
    });
}
