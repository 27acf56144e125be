//! Differences of the first version.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{DialOptions, FixedDialer, Listener, ModuleKind, Relay, Role};

use watm_test_support::water::{Guest, Scene, numbers, without_name};
use watm_test_support::{LOCALHOST, engine, run};

const NUMBERS: &str = "(call $tell (global.get $caller))
    (call $tell (global.get $net)) (call $tell (global.get $control))";

#[test]
fn its_mark_may_be_a_function_or_a_global() {
    let text = Guest::v0().text();
    let function = r#"(func (export "_water_v0"))"#;
    assert!(text.contains(function));
    for mark in [
        function,
        r#"(global (export "_water_v0") i32 (i32.const 0))"#,
        r#"(global (export "_water_v0") (mut i64) (i64.const 7))"#,
        "",
    ] {
        let bytes = wat::parse_str(text.replace(function, mark)).expect("valid text");
        let module = engine().load("marked", &bytes).expect("loads");
        assert_eq!(module.info().kind, ModuleKind::WaterV0);
        assert_eq!(
            module.info().roles,
            [Role::Dialer, Role::Listener, Role::Relay]
        );
    }
}

#[test]
fn a_dialer_has_its_numbers_and_a_configuration_takes_none_of_them() {
    run(async {
        let guest = Guest::v0().work(NUMBERS);
        assert_eq!(guest.dial().await.told().await, [3, 4, 5]);
        assert_eq!(guest.config(b"x").dial().await.told().await, [3, 4, 5]);
    });
}

#[test]
fn a_listener_and_a_relay_have_the_same_numbers() {
    run(async {
        let module = Guest::v0().work(NUMBERS).module();
        let listener = Listener::builder(&module).bind(LOCALHOST).expect("listens");
        let peer = TcpStream::connect(listener.local_addr())
            .await
            .expect("connects");
        let app = listener.accept().await.expect("accepts");
        assert_eq!(Scene { app, peer }.told().await, [3, 4, 5]);

        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        let relay = Relay::builder(&module)
            .bind(LOCALHOST, &target)
            .expect("listens");
        let client = TcpStream::connect(relay.local_addr());
        let mut told = Vec::new();
        client
            .await
            .expect("connects")
            .read_to_end(&mut told)
            .await
            .expect("the end");
        assert_eq!(numbers(&told), [3, 4, 5]);
    });
}

#[test]
fn it_is_no_fixed_dialer() {
    let error = FixedDialer::builder(&Guest::v0().module()).build();
    assert_eq!(
        without_name(&error.expect_err("refused")),
        "does not have the role fixed dialer; it has: dialer, listener, relay"
    );
}

#[test]
fn it_pulls_its_configuration_as_a_file_from_the_start_each_time() {
    run(async {
        let code = "(local.set $i (call $pull_config)) (call $tell (local.get $i))
            (call $tell (call $read (local.get $i) (i32.const 1024) (i32.const 3)))
            (local.set $i (call $pull_config)) (call $tell (local.get $i))
            (i32.store (i32.const 1024) (i32.const 0))
            (call $tell (call $read (local.get $i) (i32.const 1024) (i32.const 100)))
            (call $tell (i32.load (i32.const 1024)))
            (call $tell (call $read (local.get $i) (i32.const 1024) (i32.const 100)))
            (call $tell (call $write (local.get $i) (i32.const 1024) (i32.const 1)))";
        let guest = Guest::v0().init(&format!(
            "{} (i32.const 0)",
            code.replace("local.set $i", "global.set $net")
                .replace("local.get $i", "global.get $net")
        ));
        let abcd = i32::from_le_bytes(*b"abcd");
        let expected = [3, 3, 4, 4, abcd, 0, -8];
        assert_eq!(guest.config(b"abcd").dial().await.told().await, expected);
        // An empty configuration exists; a missing one does not.
        let guest = Guest::v0().work("(call $tell (call $pull_config))");
        assert_eq!(guest.clone().config(b"").dial().await.told().await, [6]);
        assert_eq!(guest.dial().await.told().await, [-2], "EACCES");
    });
}

#[test]
fn each_dial_may_pull_another_configuration() {
    run(async {
        let guest = Guest::v0().work(
            "(drop (call $read (call $pull_config) (i32.const 1024) (i32.const 4)))
            (call $tell (i32.load (i32.const 1024)))",
        );
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let dialer = guest.config(&1_i32.to_le_bytes()).dialer();
        for (options, expected) in [
            (DialOptions::new(), 1),
            (DialOptions::new().config(2_i32.to_le_bytes()), 2),
            (DialOptions::new().config(3_i32.to_le_bytes()), 3),
            (DialOptions::new(), 1),
        ] {
            let app = dialer.dial_with(&address, options).await.expect("connects");
            let (peer, _) = listener.accept().await.expect("accepts");
            assert_eq!(Scene { app, peer }.told().await, [expected]);
        }
    });
}

#[test]
fn deferring_changes_nothing() {
    run(async {
        let code = "(call $defer) (call $defer)
            (drop (call $read (global.get $net) (i32.const 1024) (i32.const 4)))
            (call $tell (i32.load (i32.const 1024))) (call $defer)";
        let mut scene = Guest::v0().work(code).dial().await;
        scene
            .peer
            .write_all(&7_i32.to_le_bytes())
            .await
            .expect("written");
        assert_eq!(scene.told().await, [7]);
    });
}

#[test]
fn functions_of_another_role_answer_enodev() {
    run(async {
        let mut scene = Guest::v0().work("(call $tell (call $accept))").dial().await;
        assert_eq!(scene.told().await, [-43]);
        let code = "(call $tell (call $dial_own)) (call $tell (call $accept))";
        let listener = Listener::builder(&Guest::v0().work(code).module());
        let listener = listener.bind(LOCALHOST).expect("listens");
        let peer = TcpStream::connect(listener.local_addr())
            .await
            .expect("connects");
        let app = listener.accept().await.expect("accepts");
        assert_eq!(Scene { app, peer }.told().await, [-43, -53]);
    });
}

#[test]
fn any_end_of_the_worker_is_the_end_of_the_connection() {
    run(async {
        for (code, expected) in [
            ("(i32.const 0)", None),
            ("(i32.const -11)", Some("ECANCELED")),
            ("(i32.const -29)", Some("EIO")),
            ("(call $proc_exit (i32.const 0)) (i32.const 0)", None),
            ("(unreachable)", Some("unreachable")),
        ] {
            let mut scene = Guest::v0().ends(code).dial().await;
            match (scene.app.read(&mut [0; 1]).await, expected) {
                (Ok(0), None) => {}
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected)),
                (end, _) => panic!("{code}: {end:?}"),
            }
            assert_eq!(scene.peer.read(&mut [0; 1]).await.expect("the end"), 0);
        }
    });
}

#[test]
fn it_is_told_to_end_by_the_same_byte() {
    run(async {
        let code = "(i32.store (i32.const 1024) (i32.const 0xff))
            (call $tell (call $read (global.get $control) (i32.const 1024) (i32.const 4)))
            (call $tell (i32.load (i32.const 1024)))
            (call $tell (call $read (global.get $control) (i32.const 1024) (i32.const 4)))
            (global.set $caller (global.get $net))";
        let Scene { app, mut peer } = Guest::v0().work(code).dial().await;
        app.close().await;
        let mut told = Vec::new();
        peer.read_to_end(&mut told).await.expect("the end");
        assert_eq!(numbers(&told), [1, 0, 0]);
    });
}

#[test]
fn what_fails_is_named_by_its_functions() {
    run(async {
        for (guest, expected) in [
            (
                Guest::v0().init("(i32.const -2)"),
                "_water_init returned -2 (EACCES)",
            ),
            (
                Guest::v0().connect("(i32.const -14)"),
                "_water_dial returned -14 (ECONNREFUSED)",
            ),
            (
                Guest::v0().connect("(i32.const 9)"),
                "_water_dial returned 9, which is not one of its connections",
            ),
            (
                Guest::v0().control("(i32.const -8)"),
                "_water_cancel_with returned -8 (EBADF)",
            ),
        ] {
            assert_eq!(guest.refusal().await, expected);
        }
    });
}

#[test]
fn it_gets_nothing_of_the_second_version() {
    let text = Guest::v0().text();
    for import in ["water_dial_fixed", "water_dial", "water_accept"] {
        let more = format!("(module (import \"env\" \"{import}\" (func (result i32)))");
        let bytes = wat::parse_str(text.replacen("(module", &more, 1)).expect("valid text");
        let error = engine().load("mixed", &bytes).expect_err("refused");
        assert!(
            error
                .to_string()
                .contains("does not have; it has host_dial"),
            "{error}"
        );
    }
}
