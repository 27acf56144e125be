//! Returns a file for a client.

use watm_host_kit::{
    Case, ClientConfig, ConfigError, Destination, ErrorCode, StartOptions, case, done, same,
};

struct ClientConfigs;

impl Case for ClientConfigs {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        Ok(ClientConfigs)
    }

    fn client_configs(&mut self, public: Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        let expected = Destination::Name(("vpn.example".to_owned(), 51820));
        same("the public name", &public, &expected);
        done();
        Ok(vec![ClientConfig {
            peer: Some("alice".to_owned()),
            name: "alice.conf".to_owned(),
            media_type: "text/plain".to_owned(),
            content: "server = vpn.example:51820\n".to_owned(),
        }])
    }
}

case!(ClientConfigs);
