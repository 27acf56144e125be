//! The text of a bad network: words such as `3g`, `delay=100ms` and `loss=1%`. The parsers of
//! configurations call it.

use std::net::IpAddr;
use std::time::Duration;

use watm_schema::{Described, Field, Kind};

use super::presets::PRESETS;
use super::rule::{Aqm, Burst, Distribution, Hosts, Path, Rule};
use super::Way;

/// The most rules of a text.
const RULES: usize = 64;

const SHARE: Kind = Kind::Text("a share such as `1%`, from 0% to 100%");
const TIME: Kind = Kind::Text("a time such as `100ms` or `1.5s`, up to 60s");

/// The words, for the parser's errors and the page of the book.
pub const WORDS: [Described; 18] = [
    (
        Field::new("peer", Kind::Text("the name of a peer: for WireGuard its public key")).or_else("all"),
        "The peer whose packets are concerned.",
    ),
    (
        Field::new(
            "host",
            Kind::Text("an address or a network, with a port or without, such as `10.0.0.0/8`, `192.0.2.1:443` or `[2001:db8::1]:443`"),
        )
        .or_else("all"),
        "The hosts at either end of the packets.",
    ),
    (
        Field::new("direction", Kind::Text("`from-peer`, `to-peer` or `both`")).or("both"),
        "The direction of the packets.",
    ),
    (Field::new("delay", TIME).or("0s"), "The mean delay."),
    (
        Field::new("jitter", TIME).or("0s"),
        "The spread of the delay. Packets overtake each other by it, as in tc-netem.",
    ),
    (
        Field::new("distribution", Kind::Text("`uniform` or `normal`")).or("uniform"),
        "The shape of the jitter: even on both sides of the delay, or normal, with the jitter as its standard deviation.",
    ),
    (
        Field::new("correlation", Kind::Text("a share such as `25%`, below 100%")).or("0%"),
        "The correlation of a packet's jitter with that of the packet before.",
    ),
    (
        Field::new("loss", SHARE).or("0%"),
        "The share of lost packets; with bursts, that of good times.",
    ),
    (
        Field::new("burst_enter", SHARE).or("0%"),
        "The chance at each packet that bad times begin (Gilbert-Elliott).",
    ),
    (
        Field::new("burst_leave", SHARE).or("100%"),
        "The chance at each packet that bad times end.",
    ),
    (
        Field::new("burst_loss", SHARE).or("100%"),
        "The share of lost packets in bad times.",
    ),
    (
        Field::new("reorder", SHARE).or("0%"),
        "The share of packets that skip the delay, and so overtake others.",
    ),
    (
        Field::new("duplicate", SHARE).or("0%"),
        "The share of packets that arrive twice.",
    ),
    (
        Field::new("corrupt", SHARE).or("0%"),
        "The share of packets in which one bit flips.",
    ),
    (
        Field::new("rate", Kind::Text("a rate such as `750kbit`, `1.6mbit` or `1gbit`, from 1kbit to 100gbit")).or_else("unlimited"),
        "The rate of the link, in bits per second.",
    ),
    (
        Field::number("queue", "packets", 1, 10_000).or_number(100),
        "The packets that may wait for the link.",
    ),
    (
        Field::new("aqm", Kind::Text("`droptail` or `codel`")).or("droptail"),
        "The management of the queue: drop what arrives at a full one, or also what has waited too long (RFC 8289).",
    ),
    (
        Field::new("seed", Kind::Text("a number up to 18446744073709551615")).or_else("another one each time"),
        "The seed of the chances, to repeat a run.",
    ),
];

/// Parses the rules of a text, separated by `|`, each of words separated by blanks or commas. An
/// empty text and `off` have none. The error names the word, and the right values.
pub fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    if ["", "off"].contains(&text.trim()) {
        return Ok(rules);
    }
    for part in text.split('|') {
        rules.extend(rule(part)?);
        if rules.len() > RULES {
            return Err(format!("more than {RULES} rules"));
        }
    }
    Ok(rules)
}

/// Parses a rule. A preset makes a rule for each direction.
fn rule(text: &str) -> Result<Vec<Rule>, String> {
    let words: Vec<&str> = text
        .split(|character: char| character.is_whitespace() || character == ',')
        .filter(|word| !word.is_empty())
        .collect();
    let Some(first) = words.first() else {
        return Err("a rule without words; remove the '|' beside it".to_owned());
    };
    let preset = PRESETS.iter().find(|preset| preset.name == *first);
    let mut rules = match preset {
        Some(preset) => {
            let mut both = rule(preset.from_peer)?;
            both.extend(rule(preset.to_peer)?);
            both[0].way = Some(Way::FromPeer);
            both[1].way = Some(Way::ToPeer);
            both
        }
        None => vec![Rule {
            peer: None,
            host: None,
            way: None,
            seed: None,
            path: Path::default(),
        }],
    };
    let rest = &words[usize::from(preset.is_some())..];
    let mut seen = Vec::new();
    for word in rest {
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!("'{}' is neither a word with '=' nor one of {}", quote(word), presets()));
        };
        if seen.contains(&name) {
            return Err(format!("{name}: given twice"));
        }
        seen.push(name);
        for rule in &mut rules {
            set(rule, name, value)?;
        }
    }
    if seen.contains(&"direction") {
        rules.retain(|rule| !matches!((rule.way, preset), (None, Some(_))));
    }
    if let Some(preset) = preset
        && let Some(way) = rest.iter().find_map(|word| word.strip_prefix("direction="))
    {
        let both = [Some(Way::FromPeer), Some(Way::ToPeer)];
        let wanted = direction(way)?;
        let texts = [preset.from_peer, preset.to_peer];
        let kept = both.iter().zip(texts).filter(|(way, _)| wanted.is_none() || **way == wanted);
        let others: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with("direction=")).collect();
        let mut made = Vec::new();
        for (way, text) in kept {
            let mut one = rule(text)?;
            one[0].way = *way;
            for word in &others {
                let (name, value) = word.split_once('=').unwrap_or_default();
                set(&mut one[0], name, value)?;
            }
            made.extend(one);
        }
        rules = made;
    }
    for rule in &rules {
        check(&rule.path)?;
    }
    Ok(rules)
}
