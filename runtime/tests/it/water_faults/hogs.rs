//! Guests that want all memory or all time.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use watm_runtime::{Dialer, Error, Limits};

use crate::water::{echo, plain};
use watm_test_support::water::Guest;
use watm_test_support::{engine, guest_bytes, run};

/// Requests 1 GiB at once, or page by page, and writes to it.
const AT_ONCE: &str = "(drop (memory.grow (i32.const 16384)))
    (memory.fill (i32.const 131072) (i32.const 1) (i32.const 1073741824)) (i32.const 0)";
const BY_AND_BY: &str = "(loop $again
        (i32.store (i32.mul (i32.const 65536) (memory.grow (i32.const 1))) (i32.const 1))
        (br $again)) (i32.const 0)";

#[test]
fn a_module_that_wants_too_much_memory_fails_with_the_limit_named() {
    run(async {
        for code in [AT_ONCE, BY_AND_BY] {
            let limits = Limits {
                memory_bytes: 16 << 20,
                ..Limits::for_connections()
            };
            let Err(Error::Trap { reason, .. }) = Guest::v1()
                .init(code)
                .limits(limits.clone())
                .try_dial()
                .await
            else {
                panic!("it starts");
            };
            assert!(
                reason.contains("ran out of memory (limit 16 MiB)"),
                "{reason}"
            );
            // The same during a connection.
            let mut scene = Guest::v1().ends(code).limits(limits).dial().await;
            let error = scene.app.read(&mut [0; 1]).await.expect_err("ended");
            assert!(error.to_string().contains("limit 16 MiB"), "{error}");
        }
    });
}

#[test]
fn a_module_that_starts_with_too_much_memory_is_no_connection() {
    run(async {
        let text = Guest::v1().text().replace(
            "(memory (export \"memory\") 2)",
            "(memory (export \"memory\") 16384)",
        );
        let bytes = wat::parse_str(text).expect("valid text");
        let module = engine().load("large", &bytes).expect("loads");
        let dialer = Dialer::builder(&module).build().expect("a dialer");
        let error = dialer.dial("127.0.0.1:9").await.expect_err("too much");
        assert!(error.to_string().contains("limit 64 MiB"), "{error}");
    });
}

#[test]
fn a_memory_of_64_bits_is_refused() {
    // One page, 4 GiB, and as many pages as there can be.
    let sizes = ["1", "65536", "281474976710656"];
    for size in sizes {
        let core = wat::parse_str(format!("(module (memory i64 {size}))")).expect("valid text");
        let water = Guest::v1().with(&format!("(memory i64 {size})")).text();
        let water = wat::parse_str(water).expect("valid text");
        for bytes in [water, with_core_module(&core)] {
            let error = engine().load("wide", &bytes).expect_err("refused");
            let text = error.to_string();
            let reasons = ["memory64", "invalid var_u32"];
            let named = text.starts_with("wide: not a valid ");
            assert!(
                named && reasons.iter().any(|reason| text.contains(reason)),
                "{text}"
            );
        }
    }
    let core = wat::parse_str("(module (memory 1))").expect("valid text");
    engine()
        .load("narrow", &with_core_module(&core))
        .expect("loads");
}

/// Adds a core module to the component of the tests.
fn with_core_module(core: &[u8]) -> Vec<u8> {
    let length = u8::try_from(core.len()).expect("a small module");
    assert!(length < 0x80, "one byte of LEB128");
    [guest_bytes(), &[1, length], core].concat()
}

#[test]
fn a_module_that_may_have_it_can_use_it() {
    run(async {
        let code = "(call $tell (memory.grow (i32.const 1000))) (call $tell (memory.grow (i32.const 1000)))";
        let mut scene = Guest::v1().work(code).dial().await;
        // 64 MiB, of which it had two pages.
        assert_eq!(scene.told().await, [2, -1]);
    });
}

#[test]
fn a_module_that_calculates_too_long_is_stopped_wherever_it_does() {
    run(async {
        let limits = Limits {
            cpu_per_call: Duration::from_millis(50),
            ..Limits::for_connections()
        };
        let spin = "(loop $for_ever (br $for_ever)) (i32.const 0)";
        for guest in [
            Guest::v1().with("(func (export \"_start\") (loop $for_ever (br $for_ever)))"),
            Guest::v1().init(spin),
            Guest::v1().connect(spin),
            Guest::v1().control(spin),
        ] {
            let refusal = guest.limits(limits.clone()).refusal().await;
            assert!(refusal.contains("50ms of CPU time"), "{refusal}");
        }
        let mut scene = Guest::v1().ends(spin).limits(limits).dial().await;
        let error = scene.app.read(&mut [0; 1]).await.expect_err("stopped");
        assert!(error.to_string().contains("50ms of CPU time"), "{error}");
        assert_eq!(scene.peer.read(&mut [0; 1]).await.expect("the end"), 0);
    });
}

#[test]
fn a_good_connection_goes_on_beside_hogs_on_the_same_thread() {
    run(async {
        let echo = echo().await.to_string();
        let dialer = Dialer::builder(&plain()).build().expect("a dialer");
        let mut good = dialer.dial(&echo).await.expect("connects");
        let limits = Limits {
            cpu_per_call: Duration::from_secs(60),
            close_grace: Duration::from_millis(50),
            ..Limits::for_connections()
        };
        let mut hogs = Vec::new();
        for code in [
            "(loop $for_ever (br $for_ever)) (i32.const 0)",
            // It loops through calls.
            "(loop $for_ever (drop (call $now (i32.const 0))) (br $for_ever)) (i32.const 0)",
            "(loop $for_ever (drop (call $random_get (i32.const 1024) (i32.const 60000)))
                (br $for_ever)) (i32.const 0)",
        ] {
            hogs.push(Guest::v1().ends(code).limits(limits.clone()).dial().await);
        }
        let begin = Instant::now();
        for round in 0..10 {
            let mut answer = [0; 1];
            good.write_all(&[round]).await.expect("written");
            good.read_exact(&mut answer).await.expect("read");
            assert_eq!(answer, [round]);
        }
        let took = begin.elapsed();
        // A turn of each hog is 10 ms, and a round trip is a few turns.
        assert!(took < Duration::from_secs(10), "{took:?}");
        for hog in hogs {
            hog.app.close().await;
        }
    });
}

#[test]
fn a_module_has_one_memory_and_its_tables_count() {
    run(async {
        let limits = Limits {
            memory_bytes: 1 << 20,
            ..Limits::for_connections()
        };
        for (more, expected) in [
            ("(memory 0)", "memory"),
            // Of 8 bytes each, beside two pages.
            ("(table 120000 funcref)", "limit 1 MiB"),
        ] {
            let guest = Guest::v1().with(more).limits(limits.clone());
            let error = guest.try_dial().await.err().expect("refused");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let fits = Guest::v1().with("(table 100000 funcref)").limits(limits);
        fits.dial().await;
    });
}
