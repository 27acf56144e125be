//! The text of a configuration, in either format.

use watm_core::{ConfigError, Destination, Instant, Transport};
use watm_wireguard::WireGuard;

use crate::support::{self, SimHost, base64, private_key};

/// The longest error, in characters: a line for people.
const LONGEST: usize = 500;

/// A word of this many characters of base64 may be a key.
const KEY: usize = 43;

/// The text that stands where the client's own key belongs.
const NO_KEY: &str = "# PrivateKey = ";

pub fn run(input: &[u8]) {
    match start(input) {
        Ok(server) => check_accepted(&server),
        Err(error) => check_refused(input, &error),
    }
}

fn start(config: &[u8]) -> Result<WireGuard, ConfigError> {
    support::seed(1);
    let mut host = SimHost::new(support::SERVER.parse().expect("an address"), Instant(1));
    let options = watm_core::StartOptions {
        config: config.to_vec(),
        log_level: watm_core::Level::Trace,
        generation: 0,
        predecessor: None,
    };
    WireGuard::start(options, &mut host)
}

/// Checks the clients' configurations: each of them starts a server too, with this server as its
/// only peer, and the same MTU.
fn check_accepted(server: &WireGuard) {
    let peers = server.status(Instant(1)).peers;
    let public = Destination::Name("vpn.example.org".to_owned(), 51820);
    let configs = server.client_configs(&public).expect("there are some");
    assert_eq!(configs.len(), peers.len());
    for (config, peer) in configs.iter().zip(&peers) {
        assert_eq!(config.peer.as_ref(), Some(&peer.name));
        assert!(
            config
                .content
                .ends_with("Endpoint = vpn.example.org:51820\n")
        );
        let client = config.content.replace("vpn.example.org", "192.0.2.1");
        let client: String = client.lines().map(with_key).collect();
        let client = match start(client.as_bytes()) {
            Ok(client) => client,
            Err(error) => panic!("{error}, in what a client is told"),
        };
        let told = client.client_configs(&public).expect("there are some");
        assert_eq!(told.len(), 1, "a client has one peer");
        assert_eq!(line(&told[0].content, "MTU"), line(&config.content, "MTU"));
        assert_eq!(line(&told[0].content, "DNS"), line(&config.content, "DNS"));
        let psk = "PresharedKey";
        assert_eq!(line(&told[0].content, psk), line(&config.content, psk));
    }
}

/// The line, with a key where the client's own belongs.
fn with_key(line: &str) -> String {
    match line.starts_with(NO_KEY) {
        true => format!("PrivateKey = {}\n", base64(private_key(50).as_bytes())),
        false => format!("{line}\n"),
    }
}

/// The line of this field.
fn line<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    text.lines().find(|line| line.starts_with(field))
}

/// An error is one line, which says where, and repeats no key.
fn check_refused(input: &[u8], error: &ConfigError) {
    let text = error.to_string();
    assert!(
        !text.chars().any(char::is_control),
        "not one line: {text:?}"
    );
    assert!(text.chars().count() <= LONGEST, "too long: {text}");
    match error {
        ConfigError::Field(path, why) => {
            assert!(!path.is_empty() && !why.is_empty(), "no place or no reason");
        }
        ConfigError::Syntax(why) => assert!(
            why.starts_with("line ")
                || why.starts_with("not JSON")
                || why.starts_with("not a configuration")
                || why.starts_with("no [Interface] section"),
            "no place: {why}"
        ),
        ConfigError::Other(why) => panic!("a configuration is not to blame for: {why}"),
    }
    let words = input.split(|byte| !byte.is_ascii_alphanumeric() && !b"+/".contains(byte));
    for word in words.filter(|word| word.len() >= KEY) {
        let word = std::str::from_utf8(word).expect("it is ASCII");
        assert!(!text.contains(word), "a key is repeated: {text}");
    }
}
