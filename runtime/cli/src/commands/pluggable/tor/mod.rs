//! `watm pt`: a pluggable transport that Tor manages, <https://spec.torproject.org/pt-spec/>,
//! version 1.
//!
//! Tor passes its requests in the environment and reads the answers from standard output, a line
//! for each transport. Modules carry both ends: connections of a client arrive by SOCKS5 and leave
//! through a [dialer](client), connections of a server arrive through a listener and continue to
//! Tor's own port.

mod client;
mod environment;
mod server;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::failure::{Failure, Outcome};
use crate::inputs::read;
use crate::loading::LoadingOptions;
use crate::logging;
use environment::{Environment, Side};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Transport by its name in torrc, and its module; may be given several times.
    #[arg(value_name = "NAME=MODULE", required = true, value_parser = named)]
    transports: Vec<(String, PathBuf)>,
    /// Configuration file for a transport's module, in its own format; may be given several times.
    /// The arguments of a bridge line, and the options of ServerTransportOptions, are added to it
    /// as lines of TOML.
    #[arg(long, value_name = "NAME=FILE", value_parser = named)]
    config: Vec<(String, PathBuf)>,
    #[command(flatten)]
    log: logging::Options,
    #[command(flatten)]
    loading: LoadingOptions,
}

/// A transport's name, module and configuration.
struct Transport {
    name: String,
    module: PathBuf,
    config: Option<PathBuf>,
}

impl Transport {
    fn read_config(&self) -> Result<Option<Vec<u8>>, Failure> {
        let config = self.config.as_deref().map(read).transpose()?;
        Ok(config)
    }
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let valid = |name: &str| {
        let mut characters = name.chars();
        let first = characters.next();
        first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match text.split_once('=') {
        Some((name, path)) if valid(name) && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("must be a name of letters, digits and _, then = and a path".to_owned()),
    }
}

/// Serves until Tor ends this program, or standard input ends if Tor requests that.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    logging::start(&arguments.log);
    let mut configs: BTreeMap<_, _> = arguments.config.iter().cloned().collect();
    let transports: Vec<Transport> = arguments
        .transports
        .iter()
        .map(|(name, module)| Transport {
            name: name.clone(),
            module: module.clone(),
            config: configs.remove(name),
        })
        .collect();
    if let Some(name) = configs.keys().next() {
        return Err(Failure::unusable(format!(
            "--config: no transport {name} is given; must be the name of one"
        )));
    }
    let environment = match Environment::read(|name| std::env::var(name).ok()) {
        Ok(environment) => environment,
        Err(refused) => {
            say(&refused.line)?;
            return Err(Failure::unusable(refused.line));
        }
    };
    say("VERSION 1")?;
    match &environment.side {
        Side::Client(wanted) => client::run(
            wanted,
            &transports,
            &arguments.loading,
            environment.exit_with_input,
        ),
        Side::Server(wanted) => server::run(
            wanted,
            &transports,
            &arguments.loading,
            environment.exit_with_input,
        ),
    }
}

/// Writes a line to Tor.
fn say(line: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|error| Failure::failed(format!("standard output: {error}")))
}

/// Makes Tor log a warning (pt-spec, section 3.3.4).
fn warn(message: &str) {
    // An error means that nobody reads. Other code reports the end of the program.
    let _ = say(&format!("LOG SEVERITY=warning MESSAGE={}", quoted(message)));
}

/// Quotes a string as C does, which messages to Tor require.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            other if other.is_control() => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Adds Tor's options to a configuration, as strings of TOML.
fn with_options(config: &[u8], options: &[(String, String)]) -> Vec<u8> {
    let mut all = config.to_vec();
    if all.last().is_some_and(|last| *last != b'\n') {
        all.push(b'\n');
    }
    for (key, value) in options {
        let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        // A JSON string is a TOML string. Plain keys stay unquoted, as modules need not read quoted
        // ones.
        let key = match !key.is_empty() && key.bytes().all(is_bare) {
            true => key.clone(),
            false => serde_json::Value::from(key.as_str()).to_string(),
        };
        let value = serde_json::Value::from(value.as_str());
        all.extend(format!("{key} = {value}\n").bytes());
    }
    all
}

/// Replaces line breaks, so that a reason fits into one line.
fn one_line(reason: &Failure) -> String {
    reason.to_string().replace(['\n', '\r'], " ")
}

/// Waits for the end of standard input if `asked`, or forever.
async fn input_ends(asked: bool) {
    use tokio::io::AsyncReadExt;

    if !asked {
        return std::future::pending().await;
    }
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 256];
    // An error counts as the end.
    while matches!(input.read(&mut ignored).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_lines_of_the_configuration() {
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let options = [option("cert", "a\"b\\"), option("iat mode", "0")];
        let all = with_options(b"x = 1", &options);
        assert!(all.starts_with(b"x = 1\ncert = \"a"));
        let table: toml::Table = toml::from_str(str::from_utf8(&all).expect("text")).expect("TOML");
        assert_eq!(table["cert"].as_str(), Some("a\"b\\"));
        assert_eq!(table["iat mode"].as_str(), Some("0"));
        assert_eq!(table["x"].as_integer(), Some(1));
    }

    #[test]
    fn messages_to_tor_are_one_line() {
        assert_eq!(quoted("a \"b\"\\\n\x07c"), r#""a \"b\"\\\n c""#);
    }
}
