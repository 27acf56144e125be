//! Writes records above and below the level that it was given.

use watm_host_kit::log::{Level, log};
use watm_host_kit::{Case, ConfigError, StartOptions, case, done, same};

struct Logs;

impl Case for Logs {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        same("the level", &options.log_level, &Level::Warn);
        log(Level::Debug, "kit", "a record for nobody");
        log(Level::Info, "kit", "another record for nobody");
        log(Level::Warn, "kit", "a record for the user");
        done();
        Ok(Logs)
    }
}

case!(Logs);
