//! Refuses a configuration, and takes another.

use watm_host_kit::{Case, ConfigError, StartOptions, case, check, done, same};

struct Reconfigure {
    refused: bool,
}

impl Case for Reconfigure {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        same(
            "the first configuration",
            &options.config.as_slice(),
            &b"first".as_slice(),
        );
        Ok(Reconfigure { refused: false })
    }

    fn reconfigure(&mut self, config: Vec<u8>) -> Result<(), ConfigError> {
        if config == b"bad" {
            self.refused = true;
            return Err(ConfigError::Field((
                "word".to_owned(),
                "is not good".to_owned(),
            )));
        }
        check(
            self.refused,
            "the instance that refused a configuration is asked again",
        );
        same(
            "the next configuration",
            &config.as_slice(),
            &b"good".as_slice(),
        );
        done();
        Ok(())
    }
}

case!(Reconfigure);
