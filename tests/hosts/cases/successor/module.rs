//! Hands a snapshot over to the next generation.

use watm_host_kit::{Case, ConfigError, StartOptions, case, check, done, same};

/// Neither text nor without zeros: the host must not interpret it.
const SNAPSHOT: &[u8] = b"kit\0\xff\xfe\0";

struct Successor;

impl Case for Successor {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        match options.generation {
            0 => check(
                options.predecessor.is_none(),
                "the first generation has no predecessor",
            ),
            generation => {
                same("the number", &generation, &1);
                same(
                    "the snapshot",
                    &options.predecessor.as_deref(),
                    &Some(SNAPSHOT),
                );
                same(
                    "the configuration",
                    &options.config.as_slice(),
                    &b"second".as_slice(),
                );
            }
        }
        Ok(Successor)
    }

    fn serving(&mut self, generation: u32) {
        if generation == 1 {
            done();
        }
    }

    fn snapshot(&mut self) -> Vec<u8> {
        SNAPSHOT.to_vec()
    }
}

case!(Successor);
