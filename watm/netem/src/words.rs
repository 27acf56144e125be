//! The text of a bad network: words such as `3g`, `delay=100ms` and `loss=1%`. Parsers of
//! configurations call it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_schema::{Described, Field, Kind, fields, names};

use crate::presets::{PRESETS, Preset};
use crate::rule::{Aqm, Direction, Distribution, Hosts, Path, Rule};

/// The most rules of a network.
const MOST_RULES: usize = 64;

/// The longest time.
const LONGEST: Duration = Duration::from_secs(60);

/// The least and the largest rate, in bits per second.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e11;

/// The most text that an error repeats, in characters.
const QUOTED: usize = 60;

const SHARE: Kind = Kind::Text("a share such as `1%`, from 0% to 100%");
const TIME: Kind = Kind::Text("a time such as `100ms` or `1.5s`, up to 60s");
const RATE: Kind =
    Kind::Text("a rate such as `750kbit`, `1.6mbit` or `1gbit`, from 1kbit to 100gbit");
const HOST: Kind = Kind::Text(
    "an address or a network, or an address with a port, such as `10.0.0.0/8`, `2001:db8::1` or `192.0.2.1:443`",
);

/// The words, for errors and for the page of the book.
pub const WORDS: [Described; 17] = [
    (
        Field::new("peer", Kind::Text("the name of a peer")).or_else("all peers"),
        "The peer whose packets are concerned.",
    ),
    (
        Field::new("host", HOST).or_else("all hosts"),
        "The hosts at either end of the packets.",
    ),
    (
        Field::choice("direction", &["from-peer", "to-peer", "both"]).or("both"),
        "The direction of the packets.",
    ),
    (Field::new("delay", TIME).or("0s"), "The mean delay."),
    (
        Field::new("jitter", TIME).or("0s"),
        "The spread of the delay. Packets keep their order.",
    ),
    (
        Field::choice("distribution", &["uniform", "normal"]).or("uniform"),
        "The shape of the jitter: even on both sides of the delay, or normal with the jitter as its standard deviation.",
    ),
    (
        Field::new("correlation", SHARE).or("0%"),
        "The correlation of a packet's jitter with that of the packet before; below 100%.",
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
        "The share of packets in whose payload one bit flips.",
    ),
    (
        Field::new("rate", RATE).or_else("unlimited"),
        "The rate of the link, in bits per second.",
    ),
    (
        Field::number("queue", "packets", 1, 10_000).or_number(100),
        "The packets that may wait for the link.",
    ),
    (
        Field::choice("aqm", &["droptail", "codel"]).or("droptail"),
        "The management of the queue: drop packets that arrive at a full one, or also those that waited too long (RFC 8289).",
    ),
];

static OF_RULE: [Field; 17] = fields(&WORDS);

/// The end of a tunnel whose connection a named network describes. The network's upload is the traffic
/// that this end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploader {
    /// The peer, such as a phone.
    Peer,
    /// The end that runs this code, such as a client of a server.
    Own,
}

/// Parses the rules of a text, separated by commas, each of words separated by blanks. `off` and an
/// empty text have none. A name stands for the connection of `uploader`. The error names the word and the
/// right values.
pub fn parse(text: &str, uploader: Uploader) -> Result<Vec<Rule>, String> {
    if ["", "off"].contains(&text.trim()) {
        return Ok(Vec::new());
    }
    let mut rules = Vec::new();
    for part in text.split(',') {
        rules.extend(parse_rule(part, uploader)?);
    }
    match rules.len() <= MOST_RULES {
        true => Ok(rules),
        false => Err(format!("more than {MOST_RULES} rules")),
    }
}

/// Parses a rule. A preset makes one for each direction.
fn parse_rule(text: &str, uploader: Uploader) -> Result<Vec<Rule>, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let named = |preset: &&Preset| words.first() == Some(&preset.name);
    let preset = PRESETS.iter().find(named);
    let words = words.iter().skip(usize::from(preset.is_some()));
    let words: Vec<(&str, &str)> = words.map(|word| pair(word)).collect::<Result<_, _>>()?;
    if preset.is_none() && words.is_empty() {
        return Err("no words between two commas; remove one of them".to_owned());
    }
    for (index, (name, _)) in words.iter().enumerate() {
        if words[..index].iter().any(|(other, _)| other == name) {
            return Err(format!("{name}: given twice; remove one of the two"));
        }
    }
    let is_direction = |(name, _): &(&str, &str)| *name == "direction";
    let wanted = match words.iter().find(|word| is_direction(word)) {
        Some((name, value)) => choice(name, value)
            .map(direction)
            .map_err(|why| format!("{name}: {why}"))?,
        None => None,
    };
    let mut rules = match preset {
        Some(preset) => of_preset(preset, uploader)?,
        None => vec![Rule {
            direction: wanted,
            ..EMPTY
        }],
    };
    rules.retain(|rule| wanted.is_none() || rule.direction == wanted);
    for rule in &mut rules {
        for (name, value) in words.iter().filter(|word| !is_direction(word)) {
            set(rule, name, value).map_err(|why| format!("{name}: {why}"))?;
        }
        check(&rule.path)?;
    }
    Ok(rules)
}

const EMPTY: Rule = Rule {
    peer: None,
    host: None,
    direction: None,
    path: Path::PERFECT,
};

fn of_preset(preset: &Preset, uploader: Uploader) -> Result<Vec<Rule>, String> {
    let (from_peer, to_peer) = match uploader {
        Uploader::Peer => (preset.up, preset.down),
        Uploader::Own => (preset.down, preset.up),
    };
    [
        (Direction::FromPeer, from_peer),
        (Direction::ToPeer, to_peer),
    ]
    .into_iter()
    .map(|(direction, words)| {
        let mut rule = Rule {
            direction: Some(direction),
            ..EMPTY
        };
        for word in words.split_whitespace() {
            let (name, value) = pair(word)?;
            set(&mut rule, name, value)?;
        }
        Ok(rule)
    })
    .collect()
}

fn pair(word: &str) -> Result<(&str, &str), String> {
    let known = |name: &str| OF_RULE.iter().any(|field| field.name == name);
    match word.split_once('=') {
        Some((name, value)) if known(name) => Ok((name, value)),
        Some((name, _)) => Err(format!(
            "unknown word '{}'; expected one of {}",
            quoted(name),
            names(&OF_RULE)
        )),
        None => {
            let presets = PRESETS.map(|preset| preset.name).join(", ");
            Err(format!(
                "'{}' is not the name of a network; expected {presets}, or words such as delay=100ms",
                quoted(word)
            ))
        }
    }
}

fn set(rule: &mut Rule, name: &str, value: &str) -> Result<(), String> {
    let path = &mut rule.path;
    match name {
        "peer" => rule.peer = Some(value.to_owned()),
        "host" => rule.host = Some(hosts(value).ok_or_else(|| wrong(value, HOST))?),
        "delay" => path.delay = time(value)?,
        "jitter" => path.jitter = time(value)?,
        "distribution" => {
            path.distribution = match choice(name, value)? {
                "normal" => Distribution::Normal,
                _ => Distribution::Uniform,
            }
        }
        "correlation" => path.correlation = share(value)?,
        "loss" => path.loss = share(value)?,
        "burst_enter" => path.burst.enter = share(value)?,
        "burst_leave" => path.burst.leave = share(value)?,
        "burst_loss" => path.burst.loss = share(value)?,
        "reorder" => path.reorder = share(value)?,
        "duplicate" => path.duplicate = share(value)?,
        "corrupt" => path.corrupt = share(value)?,
        "rate" => path.rate = Some(rate(value).ok_or_else(|| wrong(value, RATE))?),
        "queue" => path.queue = watm_schema::field(&OF_RULE, name).parse_number(value)? as usize,
        _ => {
            path.aqm = match choice(name, value)? {
                "codel" => Aqm::Codel,
                _ => Aqm::DropTail,
            }
        }
    }
    Ok(())
}

/// Returns an error for words that have no effect beside each other.
fn check(path: &Path) -> Result<(), String> {
    if path.correlation >= 1.0 {
        return Err("correlation: expected less than 100%".to_owned());
    }
    let held = [
        (
            path.aqm == Aqm::Codel && path.rate.is_none(),
            "aqm",
            "a rate",
        ),
        (
            path.reorder > 0.0 && path.delay.is_zero(),
            "reorder",
            "a delay",
        ),
        (
            path.correlation > 0.0 && path.jitter.is_zero(),
            "correlation",
            "jitter",
        ),
    ];
    match held.into_iter().find(|(lacks, ..)| *lacks) {
        Some((_, name, needed)) => Err(format!("{name}: has no effect without {needed}; add one")),
        None => Ok(()),
    }
}

fn choice(name: &str, value: &str) -> Result<&'static str, String> {
    watm_schema::field(&OF_RULE, name).parse_choice(Some(value))
}

fn direction(word: &str) -> Option<Direction> {
    match word {
        "from-peer" => Some(Direction::FromPeer),
        "to-peer" => Some(Direction::ToPeer),
        _ => None,
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(number);
    number
        .map(|percent| percent / 100.0)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| wrong(text, SHARE))
}

fn time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    scaled(text, &units)
        .filter(|seconds| *seconds <= LONGEST.as_secs_f64())
        .map(Duration::from_secs_f64)
        .ok_or_else(|| wrong(text, TIME))
}

fn rate(text: &str) -> Option<u64> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    scaled(text, &units)
        .filter(|rate| RATES.contains(rate))
        .map(|rate| rate as u64)
}

/// Parses a number with the first of these units that it ends with.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (digits, scale) = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    number(digits).map(|number| number * scale)
}

/// Parses a decimal number without a sign and an exponent.
fn number(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain)
}

fn hosts(text: &str) -> Option<Hosts> {
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Some(Hosts {
            address: end.ip(),
            prefix: whole(end.ip()),
            port: Some(end.port()),
        });
    }
    let (address, prefix) = text
        .split_once('/')
        .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().ok()?;
    let prefix = match prefix {
        Some(prefix) => prefix.parse().ok()?,
        None => whole(address),
    };
    (prefix <= whole(address)).then_some(Hosts {
        address,
        prefix,
        port: None,
    })
}

fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn wrong(text: &str, kind: Kind) -> String {
    format!("'{}' is not {kind}", quoted(text))
}

/// Returns text for an error: one line, not too long.
fn quoted(text: &str) -> String {
    let printable = |character: char| match character.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    text.chars().take(QUOTED).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Rule {
        let [rule] = parse(text, Uploader::Peer).unwrap().try_into().unwrap();
        rule
    }

    #[test]
    fn words_are_the_settings_of_a_path() {
        let rule = one(
            "delay=1.5s jitter=20ms distribution=normal correlation=25% loss=0.1% burst_enter=1% burst_leave=20% \
             burst_loss=90% reorder=2% duplicate=3% corrupt=4% rate=1.6mbit queue=7 aqm=codel",
        );
        let path = Path {
            delay: Duration::from_millis(1500),
            jitter: Duration::from_millis(20),
            distribution: Distribution::Normal,
            correlation: 0.25,
            loss: 0.001,
            burst: crate::rule::Burst {
                enter: 0.01,
                leave: 0.2,
                loss: 0.9,
            },
            reorder: 0.02,
            duplicate: 0.03,
            corrupt: 0.04,
            rate: Some(1_600_000),
            queue: 7,
            aqm: Aqm::Codel,
        };
        assert_eq!(rule, Rule { path, ..EMPTY });
        assert_eq!(parse("off", Uploader::Peer), Ok(Vec::new()));
        assert_eq!(parse(" ", Uploader::Peer), Ok(Vec::new()));
    }

    #[test]
    fn rules_name_peers_hosts_and_directions() {
        let rule = one("peer=abc= host=10.0.0.0/8 direction=to-peer loss=1%");
        assert_eq!(rule.peer.as_deref(), Some("abc="));
        assert_eq!(rule.direction, Some(Direction::ToPeer));
        let host = |text: &str| one(&format!("host={text} loss=1%")).host.unwrap();
        assert!(host("10.0.0.0/8").has(("10.1.2.3".parse().unwrap(), None)));
        assert!(!host("10.0.0.0/8").has(("11.1.2.3".parse().unwrap(), None)));
        assert!(!host("0.0.0.0/0").has(("::1".parse().unwrap(), None)));
        assert!(host("[2001:db8::1]:443").has(("2001:db8::1".parse().unwrap(), Some(443))));
        assert!(!host("[2001:db8::1]:443").has(("2001:db8::1".parse().unwrap(), Some(80))));
    }

    #[test]
    fn all_presets_are_rules_for_both_directions() {
        for preset in PRESETS {
            let rules = parse(preset.name, Uploader::Peer).unwrap();
            let ways = rules.iter().map(|rule| rule.direction);
            assert!(ways.eq([Some(Direction::FromPeer), Some(Direction::ToPeer)]));
            for rule in &rules {
                check(&rule.path).unwrap();
            }
        }
        let rates = |uploader| {
            let rules = parse("dsl", uploader).unwrap();
            rules.iter().map(|rule| rule.path.rate).collect::<Vec<_>>()
        };
        assert_eq!(rates(Uploader::Peer), [Some(1_000_000), Some(8_000_000)]);
        assert_eq!(rates(Uploader::Own), [Some(8_000_000), Some(1_000_000)]);
        let rules = parse("3g loss=2% host=192.0.2.1, delay=1ms", Uploader::Peer).unwrap();
        assert_eq!(rules.len(), 3);
        assert_eq!(rules[0].path.loss, 0.02);
        assert_eq!(rules[0].path.rate, Some(750_000));
        let [down] = parse("3g direction=to-peer", Uploader::Peer)
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!(down.path.rate, Some(1_600_000));
        assert_eq!(parse("3g direction=both", Uploader::Peer).unwrap().len(), 2);
    }

    #[test]
    fn errors_name_the_word_and_the_right_values() {
        for (text, expected) in [
            ("4h", "'4h' is not the name of a network; expected edge, 3g"),
            ("delay=5", "delay: '5' is not a time such as \"100ms\""),
            ("delay=61s", "delay: '61s' is not a time"),
            ("loss=1", "loss: '1' is not a share such as \"1%\""),
            ("loss=101%", "loss: '101%' is not a share"),
            ("loss=-1%", "loss: '-1%' is not a share"),
            ("loss=nan%", "loss: 'nan%' is not a share"),
            ("los=1%", "unknown word 'los'; expected one of peer, host"),
            ("loss=1% loss=2%", "loss: given twice"),
            ("rate=0kbit", "rate: '0kbit' is not a rate"),
            ("rate=1mb", "rate: '1mb' is not a rate such as \"750kbit\""),
            (
                "queue=0 rate=1mbit",
                "queue: expected a number of packets from 1 to 10000",
            ),
            (
                "aqm=red rate=1mbit",
                "aqm: expected \"droptail\" or \"codel\"",
            ),
            ("aqm=codel", "aqm: has no effect without a rate"),
            ("reorder=1%", "reorder: has no effect without a delay"),
            (
                "jitter=1ms correlation=100%",
                "correlation: expected less than 100%",
            ),
            (
                "host=10.0.0.0/33 loss=1%",
                "host: '10.0.0.0/33' is not an address",
            ),
            ("loss=1%,,delay=1ms", "no words between two commas"),
            (
                "direction=up loss=1%",
                "direction: expected \"from-peer\", \"to-peer\" or \"both\"",
            ),
        ] {
            let error = parse(text, Uploader::Peer).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let many = vec!["loss=1%"; MOST_RULES + 1].join(",");
        assert_eq!(
            parse(&many, Uploader::Peer).unwrap_err(),
            "more than 64 rules"
        );
    }
}
