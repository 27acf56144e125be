//! `watm plugin`: a plugin of shadowsocks, <https://shadowsocks.org/doc/sip003.html>.

use std::env;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use watm_runtime::Destination;

use super::options;
use crate::commands::dial;
use crate::commands::serve::{self, Front, Place, Upstream};
use crate::failure::{Failure, Outcome};
use crate::inputs::destination;
use crate::options::ModuleOptions;
use crate::stop;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Act as a server's plugin, which listens for clients.
    #[arg(long)]
    server: bool,
}

/// The environment that shadowsocks sets.
struct Surroundings {
    /// The address where the two plugins meet, on both sides.
    remote: (String, u16),
    /// The address that shadowsocks itself connects to, or listens on.
    local: (String, u16),
}

/// Returns the arguments of the command `plugin` if shadowsocks starts this program, which passes
/// none itself, or `None` if it does not. In the plugin's options `module=FILE` is the module, and
/// all others are options of the command: `server`, `config=FILE`, `unsealed` and so on. An error
/// comes with the valid arguments, which may set the format of the log.
pub(crate) fn arguments(
    given: &[OsString],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Vec<OsString>>, (Failure, Vec<OsString>)> {
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
    let unusable = |reason: String| Failure::unusable(format!("SS_PLUGIN_OPTIONS: {reason}"));
    let pairs = match options::parse(&text) {
        Ok(pairs) => pairs,
        Err(reason) => return Err((unusable(reason), all)),
    };
    let mut wrong = None;
    for (key, value) in pairs {
        match argument(&key, &value) {
            Ok(argument) => all.push(argument),
            Err(reason) => {
                wrong.get_or_insert_with(|| unusable(format!("{key:?}: {reason}")));
            }
        }
    }
    match wrong {
        None => Ok(Some(all)),
        Some(failure) => Err((failure, all)),
    }
}

/// Returns the command's argument for an option of the plugin.
fn argument(key: &str, value: &str) -> Result<OsString, String> {
    if key == "module" {
        return match value.is_empty() {
            true => Err("needs a value, as module=FILE".to_owned()),
            false => Ok(value.into()),
        };
    }
    let command = Arguments::augment_args(clap::Command::new("plugin"));
    let options = command.get_arguments().filter_map(|option| {
        let names = option.get_long_and_visible_aliases()?;
        Some((names, option))
    });
    let options: Vec<_> = options.collect();
    let found = options.iter().find(|(names, _)| names.contains(&key));
    let Some((_, option)) = found else {
        let names = options
            .iter()
            .filter_map(|(names, _)| names.first().copied());
        let mut names: Vec<&str> = names.chain(["module"]).collect();
        names.sort_unstable();
        names.dedup();
        return Err(format!("no such option; available: {}", names.join(", ")));
    };
    let takes_value = option.get_action().takes_values();
    match (takes_value, value.is_empty()) {
        (true, true) => {
            let names = option.get_value_names().unwrap_or_default();
            let name = names.first().map_or("VALUE", |name| name.as_str());
            Err(format!("needs a value, as {key}={name}"))
        }
        (false, false) => Err(format!("takes no value; expected {key} alone")),
        (true, false) => Ok(format!("--{key}={value}").into()),
        (false, true) => Ok(format!("--{key}").into()),
    }
}

/// Carries connections until shadowsocks ends this program: for a client from `SS_LOCAL_…` through
/// the module to `SS_REMOTE_…`, for a server the other way.
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
    // Several addresses are separated by `|`.
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
    serve::in_front(&arguments.module, front)
}

impl Surroundings {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Surroundings, Failure> {
        let required = |name: &str| {
            variable(name)
                .filter(|text| !text.is_empty())
                .ok_or_else(|| {
                    Failure::unusable(format!(
                        "{name}: is not set; shadowsocks sets it when it starts a plugin (SIP003)"
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
            let all = arguments(&given, find).map_err(|(failure, _)| failure.to_string());
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
        for (options, reason) in [
            ("colour=red", "\"colour\": no such option; available: "),
            ("h", "\"h\": no such option"),
            (
                "server=1",
                "\"server\": takes no value; expected server alone",
            ),
            ("config", "\"config\": needs a value, as config=FILE"),
            ("module", "\"module\": needs a value, as module=FILE"),
        ] {
            let error = of(&["watm"], Some(options)).expect_err(options);
            let expected = format!("SS_PLUGIN_OPTIONS: {reason}");
            assert!(error.contains(&expected), "{options}: {error}");
        }
        let error = of(&["watm"], Some("x")).expect_err("no such option");
        assert!(
            ["module", "server", "config", "unsealed"]
                .iter()
                .all(|name| error.contains(name)),
            "{error}"
        );
    }
}
