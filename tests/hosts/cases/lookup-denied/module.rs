//! Looks up a name that it may not send datagrams to.

use watm_host_kit::names::Lookup;
use watm_host_kit::{Case, ConfigError, ErrorCode, StartOptions, case, done, same};

struct LookupDenied;

impl Case for LookupDenied {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let denied = Some(ErrorCode::AccessDenied);
        same(
            "another port",
            &Lookup::start("localhost", 54, 1).err(),
            &denied,
        );
        same(
            "another name",
            &Lookup::start("host.example", 53, 2).err(),
            &denied,
        );
        done();
        Ok(LookupDenied)
    }
}

case!(LookupDenied);
