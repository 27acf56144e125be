//! Connects to an address that it may not reach.

use watm_host_kit::{
    Case, ConfigError, Destination, ErrorCode, StartOptions, case, done, parse_address, same,
    sockets,
};

struct ConnectDenied;

impl Case for ConnectDenied {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let server = Destination::Address(parse_address(&options.config)?);
        let denied = Some(ErrorCode::AccessDenied);
        same("an address", &sockets::connect(&server, 1).err(), &denied);
        let name = Destination::Name(("localhost".to_owned(), 9));
        same("a name", &sockets::connect(&name, 2).err(), &denied);
        done();
        Ok(ConnectDenied)
    }
}

case!(ConnectDenied);
