//! Modules that are garbage, or nearly valid.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use watm_runtime::{Dialer, Limits, Target, Wire, inspect};

use watm_test_support::water::Guest;
use watm_test_support::{engine, run};

const SEED: u64 = 0x5eed;
const MUTATIONS: usize = 400;

/// xorshift64*, whose state is a single number.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        number as usize % bound
    }
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Records every panic on this thread, including those of tasks, which the runtime would hide.
fn note_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            PANICKED.set(true);
            usual(panic);
        }));
    });
}

/// Runs a module. Returns true if it could be loaded.
async fn try_out(bytes: &[u8]) -> bool {
    let Ok(module) = engine().load("damaged", bytes) else {
        return false;
    };
    let limits = Limits {
        cpu_per_call: Duration::from_millis(20),
        handshake_timeout: Duration::from_millis(50),
        close_grace: Duration::from_millis(10),
        memory_bytes: 16 << 20,
        ..Limits::for_connections()
    };
    let connect = |_: Target| async {
        let (near, mut far) = duplex(100);
        tokio::spawn(async move {
            let _ = far.write_all(&[7; 1000]).await;
        });
        Ok(Wire::stream(near))
    };
    let dialer = Dialer::builder(&module)
        .limits(limits)
        .config("x")
        .connector(connect);
    let Ok(dialer) = dialer.build() else {
        return false;
    };
    if let Ok(mut connection) = dialer.dial("example.com:80").await {
        let _ = connection.write_all(&[7; 1000]).await;
        let mut buffer = [0; 1000];
        let read = connection.read(&mut buffer);
        let _ = tokio::time::timeout(Duration::from_millis(20), read).await;
        connection.close().await;
    }
    true
}

#[test]
fn a_module_with_bytes_changed_is_refused_or_runs_and_the_host_lives() {
    note_panics();
    let passing = wat::parse_str(watm_test_support::water::PLAIN).expect("valid text");
    let calling = Guest::v1()
        .with(r#"(data (i32.const 1024) "watm.cfg")"#)
        .init("(drop (call $open (i32.const 3) (i32.const 1024) (i32.const 8))) (i32.const 0)")
        .work(
            "(drop (call $write (i32.const 1) (i32.const 1024) (i32.const 8)))
            (drop (call $random_get (i32.const 1024) (i32.const 8)))
            (drop (call $sock_shutdown (global.get $net) (i32.const 2)))
            (call $tell (call $now (i32.const 1))) (call $pause (i32.const 1))",
        );
    let calling = wat::parse_str(calling.text()).expect("valid text");
    let mut numbers = Numbers(SEED);
    let mut ran = 0;
    run(async {
        for original in [&passing, &calling] {
            for _ in 0..MUTATIONS / 2 {
                let mut bytes = original.clone();
                for _ in 0..=numbers.below(3) {
                    let at = numbers.below(bytes.len());
                    bytes[at] = match numbers.below(3) {
                        0 => numbers.below(256) as u8,
                        1 => bytes[at] ^ (1 << numbers.below(8)),
                        _ => bytes[at].wrapping_add(1),
                    };
                }
                ran += usize::from(try_out(&bytes).await);
                assert!(!PANICKED.get(), "with {bytes:?}");
            }
        }
    });
    // Both happen.
    assert!(ran > 20 && ran < MUTATIONS, "{ran}");
}

#[test]
fn a_module_that_is_cut_short_within_its_code_is_refused() {
    note_panics();
    let whole = wat::parse_str(watm_test_support::water::PLAIN).expect("valid text");
    let loads = |len: &usize| {
        let cut = &whole[..*len];
        let loaded = engine().load("cut", cut).is_ok();
        // Inspection without compiling is no more generous than the compiler.
        assert!(!loaded || inspect(cut).is_ok_and(|info| info.problems.is_empty()));
        loaded
    };
    // A file that ends with its code, before its data and its names, is a module.
    assert!((0..whole.len()).filter(loads).count() <= 2);
}
