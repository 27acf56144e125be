//! The fields of `watm.toml`: `settings` takes defaults from here, and the tests compare the rest with the types of `file`.

use watm_schema::{Described, Field, Kind};

const SECONDS: Kind = Kind::Any("seconds, up to a year");
const COUNT: Kind = Kind::Any("a number from 1");
const UPSTREAM: Kind = Kind::Any(
    "`host:port`, `unix:PATH`, one for each family as `{ ipv4 = \"…\", ipv6 = \"…\" }`, or `dynamic`",
);
const PATTERNS: Kind = Kind::List("a list of patterns");

/// The fields of `[[listener]]`.
pub(super) const LISTENER: [Described; 16] = [
    (
        Field::new("name", Kind::Text("a string")).or_else("its number in the file"),
        "The name in logs and metrics. Each listener has its own.",
    ),
    (
        Field::new("module", Kind::Text("a path")).required(),
        "The `.wasm` file of the module.",
    ),
    (
        Field::new(
            "addresses",
            Kind::List("a list of `address:port`, `tcp://address:port` or `udp://address:port`"),
        )
        .required(),
        "The addresses that clients connect to. Without a scheme it is TCP, or UDP for a module that takes datagrams \
         alone.",
    ),
    (
        Field::switch("ipv6-only"),
        "An IPv6 address leaves IPv4 alone.",
    ),
    (
        Field::new("upstream", UPSTREAM).required(),
        "The application. `dynamic` is the flow's own destination.",
    ),
    (
        Field::new("allow", PATTERNS),
        "The destinations that a dynamic upstream may have.",
    ),
    (
        Field::new("reach", PATTERNS),
        "The destinations that the module itself may connect to.",
    ),
    (
        Field::new("decoy", Kind::Any("`host:port` or `unix:PATH`")).or_else("none: refused"),
        "The upstream for clients that a module such as [TLS](tls.md) does not admit.",
    ),
    (
        Field::choice("proxy-header", &["v1", "v2"]),
        "A PROXY header before each connection, and before each datagram with `v2`.",
    ),
    (
        Field::new("transparent", Kind::Table("transparent")).or_else("off"),
        "Connections [from the client's address](#from-the-clients-address). The table may be empty.",
    ),
    (
        Field::new("config", Kind::Text("a string")),
        "The configuration of the module.",
    ),
    (
        Field::new("config-file", Kind::Text("a path")),
        "The file with the configuration of the module.",
    ),
    (
        Field::new("keys", Kind::Any("`{ NAME = \"FILE\" }`")),
        "Private keys that stay in the host.",
    ),
    (
        Field::new("workers", Kind::Any("`auto`, or a number from 1 to 256")).or("auto"),
        "The [workers](#workers) of each address.",
    ),
    (
        Field::new("backlog", COUNT).or_number(1024),
        "Connections that the kernel completes before `watm` accepts them.",
    ),
    (
        Field::new("limits", Kind::Any("the fields of [`[limits]`](#limits)"))
            .or_else("those of `[limits]`"),
        "The limits of this listener.",
    ),
];

/// The fields of `transparent`, for the tests alone: the types check them.
#[cfg(test)]
pub(super) const TRANSPARENT: [Described; 2] = [
    (
        Field::number("mark", "", 0, u32::MAX as u64),
        "The firewall mark of the connections.",
    ),
    (
        Field::switch("client-port"),
        "Connections come from the client's port too.",
    ),
];

/// The fields of `[limits]`.
pub(super) const LIMITS: [Described; 9] = [
    (
        Field::new("connections", COUNT).or_number(16_384),
        "Connections of a listener at once.",
    ),
    (
        Field::new("connections-per-client", COUNT).or_else("no limit"),
        "Connections of one client at once.",
    ),
    (
        Field::new("connect-timeout", SECONDS).or_number(10),
        "The time for the upstream to accept.",
    ),
    (
        Field::new("idle-timeout", SECONDS).or_number(3600),
        "The time without traffic before a connection ends; 0 for never.",
    ),
    (
        Field::new("datagram-idle-timeout", SECONDS).or_number(60),
        "The time without traffic before a flow of datagrams ends.",
    ),
    (
        Field::new("lifetime", SECONDS).or_number(0),
        "The longest time of a connection; 0 for no limit.",
    ),
    (
        Field::new("memory-mib", COUNT).or_else("the runtime's"),
        "The memory of an instance of the module.",
    ),
    (
        Field::new("descriptors", COUNT).or_else("half of the process's"),
        "Connections that a component has open at once.",
    ),
    (
        Field::new("log-records", COUNT).or_number(1000),
        "Log lines a second for connections that end; ten seconds' worth may come at once.",
    ),
];

/// The fields of `[metrics]`.
pub(super) const METRICS: [Described; 3] = [
    (
        Field::new("listen", Kind::Text("an address and a port")).required(),
        "The address of `/metrics`, `/status` and `/readyz`.",
    ),
    (
        Field::new("hosts", Kind::List("a list of names")),
        "Names that requests may have in `Host`, beside addresses and `localhost`.",
    ),
    (
        // More clients would make a page of metrics too large for collectors.
        Field::number("clients", "", 1, 10_000).or_number(1000),
        "Clients whose bytes are counted one by one.",
    ),
];

/// The fields of `[logs]`, for the tests alone: the types check them.
#[cfg(test)]
pub(super) const LOGS: [Described; 3] = [
    (
        Field::choice("level", &["off", "error", "warn", "info", "debug", "trace"])
            .or_else("`info`, or `warn` without `connections`"),
        "The least level of log lines.",
    ),
    (
        Field::choice("format", &["text", "json"]).or("text"),
        "The format of log lines.",
    ),
    (
        Field::new("connections", Kind::Switch).or("true"),
        "A log line for each connection that ends.",
    ),
];

/// The fields of `[drain]`.
pub(super) const DRAIN: [Described; 1] = [(
    Field::new("timeout", SECONDS).or_number(30),
    "The time for connections to end after SIGTERM.",
)];

/// Returns the default of a field for numbers. In a `const`, the compiler stops if there is none.
pub(super) const fn default_of<const N: usize>(table: &[Described; N], name: &str) -> u64 {
    watm_schema::field(&watm_schema::fields(table), name).default_number()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use serde::de::DeserializeOwned;
    use watm_schema::{Absent, page};

    use super::super::file;
    use super::*;

    fn refused<T: DeserializeOwned>(text: &str) -> String {
        match toml::from_str::<T>(text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.message().to_owned(),
        }
    }

    /// The names that serde would have expected.
    fn expected(error: &str) -> BTreeSet<&str> {
        let (_, list) = error.split_once(", expected ").expect(error);
        list.split('`').skip(1).step_by(2).collect()
    }

    /// The required fields of a table, except one.
    fn required(table: &[Described], except: &str) -> String {
        let mut text = String::new();
        for (field, _) in table {
            if field.absent == Absent::Refused && field.name != except {
                let value = match field.name {
                    "addresses" => "[]",
                    "upstream" => "\"a:1\"",
                    _ => "\"127.0.0.1:1\"",
                };
                writeln!(text, "{} = {value}", field.name).expect("a string takes any text");
            }
        }
        text
    }

    /// Compares a type with its table: the names, the required fields, and the kinds.
    fn compare<T: DeserializeOwned>(table: &[Described]) {
        let all = required(table, "");
        assert!(toml::from_str::<T>(&all).is_ok(), "{all}");
        let names = table.iter().map(|(field, _)| field.name).collect();
        assert_eq!(expected(&refused::<T>(&format!("{all}odd = 1\n"))), names);
        for (field, _) in table {
            let others = required(table, field.name);
            if field.absent == Absent::Refused {
                let error = refused::<T>(&others);
                assert_eq!(error, format!("missing field `{}`", field.name));
            }
            let with = |value: &str| format!("{others}{} = {value}\n", field.name);
            match field.kind {
                Kind::Choice(words) => {
                    let words = words.iter().copied().collect();
                    assert_eq!(expected(&refused::<T>(&with("\"odd\""))), words);
                }
                Kind::Number { least, most, .. } => {
                    assert!(toml::from_str::<T>(&with(&least.to_string())).is_ok());
                    assert!(toml::from_str::<T>(&with(&most.to_string())).is_ok());
                    refused::<T>(&with("\"x\""));
                }
                Kind::Switch => {
                    assert!(refused::<T>(&with("1")).contains("expected a boolean"));
                }
                Kind::Text(_) | Kind::List(_) | Kind::Table(_) | Kind::Any(_) => {
                    refused::<T>(&with("true"));
                }
            }
        }
    }

    #[test]
    fn the_types_have_the_fields_of_the_tables() {
        compare::<file::Listener>(&LISTENER);
        compare::<file::Transparent>(&TRANSPARENT);
        compare::<file::Limits>(&LIMITS);
        compare::<file::Metrics>(&METRICS);
        compare::<file::Logs>(&LOGS);
        compare::<file::Drain>(&DRAIN);
    }

    #[test]
    fn the_page_has_the_fields() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/serve.md");
        let tables: [(&str, &[_]); 6] = [
            ("listener", &LISTENER),
            ("transparent", &TRANSPARENT),
            ("limits", &LIMITS),
            ("metrics", &METRICS),
            ("logs", &LOGS),
            ("drain", &DRAIN),
        ];
        page::check(page, &tables);
    }
}
