//! Checks that answers are routed back through this machine, with the help of `ip`.
//!
//! They run `ip -j` and do not speak netlink: the printed commands need `ip` anyway, its JSON is
//! stable, and five questions do not justify a netlink library.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use ipnet::IpNet;
use serde_json::Value;

use super::{Arguments, Check};
use crate::system::kernel_setting;

/// Makes a check from its outcome.
fn check(name: &'static str, upstream: SocketAddr, found: Result<String, Fault>) -> Check {
    let (ok, found, run) = match found {
        Ok(found) => (true, found, Vec::new()),
        Err(Fault { reason, run }) => (false, reason, run),
    };
    Check {
        name,
        upstream: Some(upstream),
        ok,
        found,
        run,
    }
}

struct Fault {
    reason: String,
    run: Vec<String>,
}

fn fault(reason: impl Into<String>, run: impl IntoIterator<Item = String>) -> Fault {
    Fault {
        reason: reason.into(),
        run: run.into_iter().collect(),
    }
}

/// Checks that the upstream is on this machine. An upstream elsewhere could reach the clients
/// directly with its answers.
pub(super) fn is_local(upstream: SocketAddr) -> Check {
    let found = way_to(upstream.ip()).and_then(|way| match way["type"].as_str() {
        Some("local") => Ok("it is an address of this machine".to_owned()),
        _ => Err(fault(
            "it is on another machine, which must route its answers to clients through this one",
            [
                "# route the answers of that machine through this one, or use an upstream on this \
                 machine"
                    .to_owned(),
            ],
        )),
    });
    check("upstream is local", upstream, found)
}

/// Checks that a rule looks up answers in a table of their own.
pub(super) fn rule(upstream: SocketAddr, arguments: &Arguments) -> Check {
    check(
        "rule",
        upstream,
        find_rule(upstream.ip(), arguments.mark).and_then(|rule| match rule {
            Some(rule) => marked(rule, arguments),
            None => Err(fault(
                "no routing rule sends answers to another table",
                advice(upstream.ip(), arguments),
            )),
        }),
    )
}

/// Checks that this table routes all addresses to this machine.
pub(super) fn route(upstream: SocketAddr, arguments: &Arguments) -> Check {
    let table = match find_rule(upstream.ip(), arguments.mark) {
        Ok(Some(rule)) => rule.table,
        _ => arguments.table.to_string(),
    };
    let family = family(upstream.ip());
    let all = if upstream.is_ipv4() {
        "0.0.0.0/0"
    } else {
        "::/0"
    };
    let run = [format!(
        "ip {family} route add local {all} dev lo table {table}"
    )];
    // A missing table is an error of `ip`, and contains no such route.
    let routes = ip(&[family, "route", "list", "table", &table]).unwrap_or(Value::Null);
    let here = |route: &&Value| {
        route["type"] == "local" && ["default", all].iter().any(|every| route["dst"] == *every)
    };
    let found = routes
        .as_array()
        .and_then(|routes| routes.iter().find(here));
    let found = match found {
        Some(_) => Ok(format!(
            "table {table} routes every address to this machine"
        )),
        None => Err(fault(
            format!("table {table} has no local route for {all}"),
            run,
        )),
    };
    check("route", upstream, found)
}

/// Checks that the kernel does not drop answers because of their source address.
pub(super) fn reverse_path(upstream: SocketAddr) -> Check {
    /// Strict filtering; 2 is loose.
    const STRICT: u64 = 1;
    let found = way_to(upstream.ip()).and_then(|way| {
        let device = match way["type"].as_str() {
            Some("local") => "lo",
            _ => way["dev"].as_str().unwrap_or("lo"),
        };
        if device == "lo" {
            return Ok("not applied on lo".to_owned());
        }
        if upstream.is_ipv6() {
            return Ok("not applied to IPv6".to_owned());
        }
        let setting = |name: &str| kernel_setting(&format!("net/ipv4/conf/{name}/rp_filter"));
        let value = setting(device).max(setting("all")).unwrap_or(0);
        match value {
            STRICT => Err(fault(
                format!("rp_filter of {device} is strict"),
                [format!("sysctl -w net.ipv4.conf.{device}.rp_filter=2")],
            )),
            _ => Ok(format!("rp_filter of {device} is {value}")),
        }
    });
    check("rp_filter", upstream, found)
}

/// A rule that brings answers back, if its table does.
struct Rule {
    table: String,
    by_mark: bool,
}

fn find_rule(upstream: IpAddr, mark: Option<u32>) -> Result<Option<Rule>, Fault> {
    let rules = ip(&[family(upstream), "rule", "list"])?;
    let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
    let rule = |rule: &Value| {
        let table = rule["table"].as_str()?.to_owned();
        let by_mark = rule["fwmark"].as_str().and_then(number);
        let by_mark = mark.is_some() && by_mark.map(u64::from) == mark.map(u64::from);
        let by_source = rule["fwmark"].is_null() && rule["iif"] == "lo" && covers(rule, upstream);
        (by_mark || by_source).then_some(Rule { table, by_mark })
    };
    Ok(rules.iter().find_map(rule))
}

/// Checks that the kernel copies the marks of packets to the answers, which a rule for a mark
/// requires.
fn marked(rule: Rule, arguments: &Arguments) -> Result<String, Fault> {
    let table = rule.table;
    if !rule.by_mark {
        return Ok(format!("packets of the upstream use table {table}"));
    }
    if arguments.udp {
        let reason = "answers to datagrams have no mark; add a rule for the upstream's address";
        return Err(fault(reason, []));
    }
    match kernel_setting("net/ipv4/tcp_fwmark_accept") {
        Some(1) => Ok(format!("marked packets use table {table}")),
        _ => Err(fault(
            "there is a rule for the mark, but answers do not carry it",
            ["sysctl -w net.ipv4.tcp_fwmark_accept=1".to_owned()],
        )),
    }
}

fn advice(upstream: IpAddr, arguments: &Arguments) -> Vec<String> {
    let (family, table) = (family(upstream), arguments.table);
    match arguments.mark.filter(|_| !arguments.udp) {
        Some(mark) => vec![
            format!("ip {family} rule add fwmark {mark} lookup {table}"),
            "sysctl -w net.ipv4.tcp_fwmark_accept=1".to_owned(),
        ],
        None => {
            let own = match upstream {
                IpAddr::V4(ip) if ip.is_loopback() => "127.0.0.0/8".to_owned(),
                ip => ip.to_string(),
            };
            vec![format!(
                "ip {family} rule add from {own} iif lo table {table}"
            )]
        }
    }
}

fn covers(rule: &Value, address: IpAddr) -> bool {
    let Some(source) = rule["src"].as_str() else {
        return false;
    };
    if source == "all" {
        // Such a rule has another condition. The addresses of this machine are in the table
        // `local`.
        return false;
    }
    let Ok(source) = source.parse::<IpAddr>() else {
        return false;
    };
    let all = if source.is_ipv4() { 32 } else { 128 };
    let bits = rule["srclen"].as_u64().unwrap_or(all);
    let network = u8::try_from(bits)
        .ok()
        .and_then(|bits| IpNet::new(source, bits).ok());
    network.is_some_and(|network| network.contains(&address))
}

/// Parses numbers such as `0x7b`, with or without a mask behind them.
fn number(text: &str) -> Option<u32> {
    let text = text.split('/').next()?;
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn way_to(address: IpAddr) -> Result<Value, Fault> {
    let ways = ip(&["route", "get", &address.to_string()])?;
    ways.get(0)
        .cloned()
        .ok_or_else(|| fault(format!("there is no route to {address}"), []))
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "-4" } else { "-6" }
}

/// Runs `ip` with a question, which needs no privileges.
fn ip(question: &[&str]) -> Result<Value, Fault> {
    let output = Command::new("ip")
        .arg("-j")
        .args(question)
        .output()
        .map_err(|error| {
            fault(
                format!("ip: {error}"),
                ["apt-get install iproute2".to_owned()],
            )
        })?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(fault(
            format!("ip {}: {}", question.join(" "), reason.trim()),
            [],
        ));
    }
    // `ip` prints nothing for an empty list.
    let text = match output.stdout.trim_ascii() {
        b"" => b"[]",
        text => text,
    };
    serde_json::from_slice(text)
        .map_err(|error| fault(format!("ip {}: {error}", question.join(" ")), []))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_cover_what_they_say() {
        let rule = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let loopback = rule(r#"{"src":"127.0.0.0","srclen":8,"iif":"lo","table":"100"}"#);
        assert!(covers(&loopback, [127, 0, 0, 1].into()));
        assert!(!covers(&loopback, [10, 0, 0, 1].into()));
        let one = rule(r#"{"src":"::1","table":"100"}"#);
        assert!(covers(&one, std::net::Ipv6Addr::LOCALHOST.into()));
        assert!(!covers(
            &rule(r#"{"src":"all","table":"main"}"#),
            [127, 0, 0, 1].into()
        ));
        for (text, expected) in [
            ("0x7b", Some(123)),
            ("123", Some(123)),
            ("0x7b/0xff", Some(123)),
            ("x", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
