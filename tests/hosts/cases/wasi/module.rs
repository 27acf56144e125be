//! Uses the wall clock and the random numbers of WASI.

use watm_host_kit::{Case, ConfigError, StartOptions, case, check, done, same};

wit_bindgen::generate!({
    inline: "
        package kit:wasi;
        world services {
            import wasi:random/random@0.2.0;
            import wasi:clocks/wall-clock@0.2.0;
        }
        package wasi:random@0.2.0 {
            interface random {
                get-random-bytes: func(len: u64) -> list<u8>;
            }
        }
        package wasi:clocks@0.2.0 {
            interface wall-clock {
                record datetime { seconds: u64, nanoseconds: u32 }
                now: func() -> datetime;
            }
        }
    ",
    world: "services",
    generate_all,
});

/// The first second of 2024.
const BEGIN: u64 = 1_704_067_200;

struct Wasi;

impl Case for Wasi {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let draw = || wasi::random::random::get_random_bytes(32);
        let (one, other) = (draw(), draw());
        same(
            "the length of random bytes",
            &[one.len(), other.len()],
            &[32, 32],
        );
        check(one != other, "two draws of 32 bytes differ");
        let now = wasi::clocks::wall_clock::now();
        check(
            now.seconds > BEGIN && now.nanoseconds < 1_000_000_000,
            "the wall clock is set",
        );
        done();
        Ok(Wasi)
    }
}

case!(Wasi);
