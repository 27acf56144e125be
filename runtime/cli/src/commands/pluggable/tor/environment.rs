//! Tor's requests in the environment (section 3.2), for both sides of `watm pt`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::super::options;

/// The supported version of the protocol.
const VERSION: &str = "1";

pub(super) struct Environment {
    pub(super) side: Side,
    /// True if the end of standard input must end the program.
    pub(super) exit_with_input: bool,
}

pub(super) enum Side {
    Client(Client),
    Server(Server),
}

pub(super) struct Client {
    /// The names of the requested transports.
    pub(super) transports: Vec<String>,
    /// A proxy for all connections, if Tor requires one.
    pub(super) proxy: Option<String>,
}

pub(super) struct Server {
    pub(super) transports: Vec<Wanted>,
    pub(super) or_port: SocketAddr,
    /// Tor's extended port and the file with its cookie.
    pub(super) extended: Option<(SocketAddr, PathBuf)>,
}

/// A transport that a server must offer.
pub(super) struct Wanted {
    pub(super) name: String,
    /// The address to listen on, if Tor names one.
    pub(super) place: Option<SocketAddr>,
    /// Options of torrc (`ServerTransportOptions`), in order.
    pub(super) options: Vec<(String, String)>,
}

/// The answer to Tor if the environment is unusable.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) line: String,
}

impl Refused {
    fn environment(reason: &str) -> Refused {
        Refused {
            line: format!("ENV-ERROR {reason}"),
        }
    }
}

impl Environment {
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Environment, Refused> {
        let given = |name: &str| variable(name).filter(|text| !text.is_empty());
        let required = |name: &str| {
            given(name).ok_or_else(|| {
                Refused::environment(&format!(
                    "{name} is not set; Tor sets it when it starts a transport"
                ))
            })
        };
        let versions = required("TOR_PT_MANAGED_TRANSPORT_VER")?;
        if !versions.split(',').any(|version| version == VERSION) {
            return Err(Refused {
                line: "VERSION-ERROR no-version".to_owned(),
            });
        }
        // Transports keep no state, so the folder stays unused.
        required("TOR_PT_STATE_LOCATION")?;
        let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let side = match (
            given("TOR_PT_CLIENT_TRANSPORTS"),
            given("TOR_PT_SERVER_TRANSPORTS"),
        ) {
            (Some(names), None) => Side::Client(Client {
                transports: list(names),
                proxy: given("TOR_PT_PROXY"),
            }),
            (None, Some(names)) => Side::Server(Server::read(list(names), &given)?),
            _ => {
                return Err(Refused::environment(
                    "one of TOR_PT_CLIENT_TRANSPORTS and TOR_PT_SERVER_TRANSPORTS must be set",
                ));
            }
        };
        Ok(Environment {
            side,
            exit_with_input: given("TOR_PT_EXIT_ON_STDIN_CLOSE").as_deref() == Some("1"),
        })
    }
}

impl Server {
    fn read(
        names: Vec<String>,
        given: &impl Fn(&str) -> Option<String>,
    ) -> Result<Server, Refused> {
        let address = |name: &str, text: &str| {
            text.parse().map_err(|_| {
                Refused::environment(&format!("{name}: {text:?} must be an address and a port"))
            })
        };
        let mut places = BTreeMap::new();
        const BIND: &str = "TOR_PT_SERVER_BINDADDR";
        for entry in given(BIND).iter().flat_map(|text| text.split(',')) {
            let Some((name, place)) = entry.split_once('-') else {
                let reason = format!("{BIND}: {entry:?} must be a name, -, an address and a port");
                return Err(Refused::environment(&reason));
            };
            places.insert(name.to_owned(), address(BIND, place)?);
        }
        let mut options = server_options(given(OPTIONS).as_deref().unwrap_or_default())?;
        const OR_PORT: &str = "TOR_PT_ORPORT";
        const EXTENDED: &str = "TOR_PT_EXTENDED_SERVER_PORT";
        const COOKIE: &str = "TOR_PT_AUTH_COOKIE_FILE";
        let extended = match (given(EXTENDED), given(COOKIE)) {
            (Some(port), Some(cookie)) => Some((address(EXTENDED, &port)?, cookie.into())),
            (Some(_), None) => {
                let reason = format!("{COOKIE} is not set; {EXTENDED} needs it");
                return Err(Refused::environment(&reason));
            }
            (None, _) => None,
        };
        let or_port = match (given(OR_PORT), &extended) {
            (Some(port), _) => address(OR_PORT, &port)?,
            // Without it, the extended port is used.
            (None, Some((port, _))) => *port,
            (None, None) => {
                return Err(Refused::environment(&format!("{OR_PORT} is not set")));
            }
        };
        let wanted = |name: String| Wanted {
            place: places.get(&name).copied(),
            options: options.remove(&name).unwrap_or_default(),
            name,
        };
        Ok(Server {
            transports: names.into_iter().map(wanted).collect(),
            or_port,
            extended,
        })
    }
}

const OPTIONS: &str = "TOR_PT_SERVER_TRANSPORT_OPTIONS";

/// Parses the options of each transport: `name:key=value;name:key=value`, with a backslash before a
/// colon, a semicolon or a backslash of a value.
fn server_options(text: &str) -> Result<BTreeMap<String, Vec<(String, String)>>, Refused> {
    let refused = |reason: String| Refused::environment(&format!("{OPTIONS}: {reason}"));
    let mut all = BTreeMap::<String, Vec<(String, String)>>::new();
    for (key, value) in options::parse(text).map_err(refused)? {
        // Names of transports contain no colon.
        let Some((name, key)) = key.split_once(':') else {
            return Err(refused(format!(
                "{key:?} must be the name of a transport, a colon and an option"
            )));
        };
        let of_name = all.entry(name.to_owned()).or_default();
        of_name.push((key.to_owned(), value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: [(&str, &str); 2] = [
        ("TOR_PT_MANAGED_TRANSPORT_VER", "1,2"),
        ("TOR_PT_STATE_LOCATION", "/nowhere"),
    ];

    fn read(more: &[(&str, &str)]) -> Result<Environment, String> {
        let find = |name: &str| {
            let mut all = more.iter().chain(&COMMON);
            let found = all.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Environment::read(find).map_err(|refused| refused.line)
    }

    #[test]
    fn a_server_is_told_where_to_listen_and_where_tor_is() {
        let environment = read(&[
            ("TOR_PT_SERVER_TRANSPORTS", "a,b"),
            ("TOR_PT_SERVER_BINDADDR", "a-127.0.0.1:1,b-[::1]:2"),
            (
                "TOR_PT_SERVER_TRANSPORT_OPTIONS",
                r"a:x=1;b:to=[\:\:1]\:2;b:path=c\\",
            ),
            ("TOR_PT_ORPORT", "127.0.0.1:3"),
            ("TOR_PT_EXTENDED_SERVER_PORT", "127.0.0.1:4"),
            ("TOR_PT_AUTH_COOKIE_FILE", "/cookie"),
            ("TOR_PT_EXIT_ON_STDIN_CLOSE", "1"),
        ]);
        let environment = environment.expect("complete");
        assert!(environment.exit_with_input);
        let Side::Server(server) = environment.side else {
            panic!("not a server");
        };
        let [first, second] = &server.transports[..] else {
            panic!("not two transports");
        };
        assert_eq!(second.name, "b");
        assert_eq!(second.place, Some("[::1]:2".parse().expect("one")));
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(first.options, [option("x", "1")]);
        let expected = [option("to", "[::1]:2"), option("path", r"c\")];
        assert_eq!(second.options, expected);
        assert_eq!(server.extended.expect("given").1, PathBuf::from("/cookie"));
    }

    #[test]
    fn what_is_wrong_is_said_in_tors_words() {
        for (more, expected) in [
            (
                &[("TOR_PT_MANAGED_TRANSPORT_VER", "2")][..],
                "VERSION-ERROR no-version",
            ),
            (&[], "ENV-ERROR one of TOR_PT_CLIENT_TRANSPORTS"),
            (
                &[("TOR_PT_STATE_LOCATION", "")],
                "ENV-ERROR TOR_PT_STATE_LOCATION is not set",
            ),
            (
                &[("TOR_PT_SERVER_TRANSPORTS", "a")],
                "ENV-ERROR TOR_PT_ORPORT is not set",
            ),
            (
                &[("TOR_PT_SERVER_TRANSPORTS", "a"), ("TOR_PT_ORPORT", "x")],
                "ENV-ERROR TOR_PT_ORPORT: \"x\" must be",
            ),
            (
                &[
                    ("TOR_PT_SERVER_TRANSPORTS", "a"),
                    ("TOR_PT_SERVER_BINDADDR", "a"),
                ],
                "ENV-ERROR TOR_PT_SERVER_BINDADDR: \"a\" must be",
            ),
            (
                &[
                    ("TOR_PT_SERVER_TRANSPORTS", "a"),
                    ("TOR_PT_SERVER_TRANSPORT_OPTIONS", "rule=1"),
                ],
                "ENV-ERROR TOR_PT_SERVER_TRANSPORT_OPTIONS: \"rule\" must be",
            ),
            (
                &[
                    ("TOR_PT_SERVER_TRANSPORTS", "a"),
                    ("TOR_PT_EXTENDED_SERVER_PORT", "[::1]:1"),
                ],
                "ENV-ERROR TOR_PT_AUTH_COOKIE_FILE is not set",
            ),
        ] {
            let line = read(more).err().expect(expected);
            assert!(line.starts_with(expected), "{line}");
        }
    }
}
