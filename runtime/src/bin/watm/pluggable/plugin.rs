//! A plugin of shadowsocks: <https://shadowsocks.org/doc/sip003.html>.

use std::env;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};

use watm_runtime::Destination;

use super::options;
use crate::failure::Failure;
use crate::options::{ModuleOptions, destination};
use crate::serving::{self, Front, Place, Upstream};
use crate::{Outcome, dial, stop};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Of a server, which listens where clients come from.
    #[arg(long)]
    server: bool,
}

/// What shadowsocks says, in its environment.
struct Surroundings {
    /// Of both sides: where the two plugins meet.
    remote: (String, u16),
    /// Where shadowsocks itself is to connect to, or listens.
    local: (String, u16),
}

/// The arguments of this program where shadowsocks starts it, which it does without any of its own:
/// those of the command `plugin`. In the plugin's options `module=FILE` is the module, and all
/// others are options of the command: `server`, `config=FILE`, `unsealed` and so on. `None`: nobody
/// wants a plugin.
pub(crate) fn arguments(
    given: &[OsString],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Vec<OsString>>, Failure> {
    let wanted = match given {
        [_] => variable("SS_REMOTE_HOST").is_some(),
        [_, command, ..] => command == "plugin",
        [] => false,
    };
    if !wanted {
        return Ok(None);
    }
    let mut all: Vec<OsString> = vec!["watm".into(), "plugin".into()];
    all.extend(given.iter().skip(2).cloned());
    let text = variable("SS_PLUGIN_OPTIONS").unwrap_or_default();
    let pairs = options::parse(&text)
        .map_err(|reason| Failure::unusable(format!("SS_PLUGIN_OPTIONS: {reason}")))?;
    for (key, value) in pairs {
        all.push(match (key.as_str(), value.is_empty()) {
            ("module", _) => value.into(),
            (_, true) => format!("--{key}").into(),
            (_, false) => format!("--{key}={value}").into(),
        });
    }
    Ok(Some(all))
}

/// Carry connections until shadowsocks ends this program: of a client from `SS_LOCAL_…` through the
/// module to `SS_REMOTE_…`, of a server the other way.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let around = Surroundings::read(|name| env::var(name).ok())?;
    if arguments.server {
        return serve(arguments, &around);
    }
    let loaded = arguments.module.load(false)?;
    let address = one_address("SS_LOCAL_HOST", &around.local)?;
    dial::for_program(loaded, to(&around.remote)?, address)
}

fn serve(arguments: &Arguments, around: &Surroundings) -> Result<Outcome, Failure> {
    let (hosts, port) = &around.remote;
    // Several addresses have a line between them.
    let places = hosts
        .split('|')
        .map(|host| one_address("SS_REMOTE_HOST", &(host.to_owned(), *port)))
        .map(|address| address.map(Place::tcp))
        .collect::<Result<Vec<_>, _>>()?;
    let upstream = Upstream::Tcp(to(&around.local)?);
    let front = Front {
        listen: places,
        upstream,
        decoy: None,
        transparent: None,
        drain: stop::DRAIN,
    };
    serving::in_front(&arguments.module, front)
}

impl Surroundings {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Surroundings, Failure> {
        let required = |name: &str| {
            variable(name)
                .filter(|text| !text.is_empty())
                .ok_or_else(|| {
                    Failure::unusable(format!(
                        "{name}: is not set; shadowsocks starts plugins with it (SIP003)"
                    ))
                })
        };
        let place = |host: &str, port: &str| {
            let number = required(port)?;
            let number = number.parse().map_err(|_| {
                Failure::unusable(format!("{port}: {number:?} must be a port from 0 to 65535"))
            })?;
            Ok::<_, Failure>((required(host)?, number))
        };
        Ok(Surroundings {
            remote: place("SS_REMOTE_HOST", "SS_REMOTE_PORT")?,
            local: place("SS_LOCAL_HOST", "SS_LOCAL_PORT")?,
        })
    }
}

fn to((host, port): &(String, u16)) -> Result<Destination, Failure> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(Destination::Address(SocketAddr::new(ip, *port))),
        Err(_) => destination(&format!("{host}:{port}")).map_err(Failure::unusable),
    }
}

fn one_address(variable: &str, place: &(String, u16)) -> Result<SocketAddr, Failure> {
    let (host, port) = place;
    match host.as_str() {
        // A plugin serves its own machine.
        "localhost" => Ok(SocketAddr::from(([127, 0, 0, 1], *port))),
        _ => host
            .parse()
            .map(|ip: IpAddr| SocketAddr::new(ip, *port))
            .map_err(|_| {
                Failure::unusable(format!(
                    "{variable}: {host:?} must be an address of this machine"
                ))
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_missing_is_named() {
        let all = [
            ("SS_REMOTE_HOST", "::|0.0.0.0"),
            ("SS_REMOTE_PORT", "8388"),
            ("SS_LOCAL_HOST", "127.0.0.1"),
            ("SS_LOCAL_PORT", "1080"),
        ];
        for (without, _) in all {
            let find = |name: &str| {
                let mut others = all.iter().filter(|(known, _)| *known != without);
                let found = others.find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let error = Surroundings::read(find).err().expect(without).to_string();
            assert!(
                error.starts_with(&format!("{without}: is not set")),
                "{error}"
            );
        }
        let error = Surroundings::read(|_| Some("x".to_owned())).err();
        let error = error.expect("no port").to_string();
        assert!(
            error.starts_with("SS_REMOTE_PORT: \"x\" must be a port"),
            "{error}"
        );
    }

    #[test]
    fn options_are_those_of_the_command() {
        let of = |given: &[&str], options: Option<&str>| {
            let given: Vec<OsString> = given.iter().map(OsString::from).collect();
            let find = |name: &str| match name {
                "SS_PLUGIN_OPTIONS" => options.map(str::to_owned),
                _ => options.map(|_| "a".to_owned()),
            };
            let all = arguments(&given, find).map_err(|failure| failure.to_string());
            all.map(|all| all.map(|all| all.join(" ".as_ref()).into_string().expect("text")))
        };
        let all = of(&["watm"], Some("server;module=a\\;b.wasm;config=c"));
        assert_eq!(
            all,
            Ok(Some("watm plugin --server a;b.wasm --config=c".to_owned()))
        );
        let all = of(&["w", "plugin", "m"], Some("server"));
        assert_eq!(all, Ok(Some("watm plugin m --server".to_owned())));
        assert_eq!(of(&["watm"], None), Ok(None));
        assert_eq!(of(&["watm", "dial"], Some("server")), Ok(None));
        assert!(of(&["watm"], Some("=")).is_err_and(|error| error.contains("SS_PLUGIN_OPTIONS")));
    }
}
