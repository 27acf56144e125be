//! The format of wg(8) and wg-quick(8), with the additional section `[Watm]`.

use std::time::Duration;

use boringtun::x25519::{PublicKey, StaticSecret};
use watm_core::ConfigError;
use watm_netem::Uploader;
use watm_netstack::Algorithm;
use watm_schema::{Field, names};

use super::fields::{DEFAULT_DNS, OF_INTERFACE, OF_PEER, OF_WATM};
use super::{AllowedIps, ClientSettings, Config, Limits, PeerConfig, check, value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Interface,
    Peer,
    Watm,
}

impl Section {
    const ALL: [Section; 3] = [Section::Interface, Section::Peer, Section::Watm];

    fn name(self) -> &'static str {
        match self {
            Section::Interface => "Interface",
            Section::Peer => "Peer",
            Section::Watm => "Watm",
        }
    }

    fn fields(self) -> &'static [Field] {
        match self {
            Section::Interface => &OF_INTERFACE,
            Section::Peer => &OF_PEER,
            Section::Watm => &OF_WATM,
        }
    }
}

/// Fields of wg(8) and wg-quick(8) that change the system around the tunnel. Files from providers
/// contain them, so they are no error.
const WITHOUT_EFFECT: &[&str] = &[
    "PreUp",
    "PostUp",
    "PreDown",
    "PostDown",
    "Table",
    "FwMark",
    "SaveConfig",
];

/// Fields of other programs that restrict traffic, and that cannot be enforced here.
const REFUSED: &[(&str, &str)] = &[("AllowedApps", NO_APPS), ("DisallowedApps", NO_APPS)];
const NO_APPS: &str = "a module does not know which application opened a connection, so it cannot \
                       enforce this; remove the line, or use `watm tunnel --exec`, a mitmproxy \
                       upstream or Python, which enforce it";

/// The prefix of comments in which WireSock hides its own fields from wg(8). Ignoring such a
/// comment would ignore a setting of the file.
const HIDDEN: &str = "#@ws:";

/// A `key = value` line.
struct Entry<'a> {
    line: usize,
    section: Section,
    /// The name, as [`Section::fields`] spells it.
    field: &'static str,
    value: &'a str,
}

/// A section with its entries.
struct Block<'a> {
    line: usize,
    section: Section,
    entries: Vec<Entry<'a>>,
}

/// Reads a configuration in this format.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let (blocks, without_effect) = blocks(text)?;
    let mut warnings = Vec::new();
    let peer_blocks: Vec<_> = blocks
        .iter()
        .filter(|block| block.section == Section::Peer)
        .collect();
    let mut peers = Vec::new();
    for block in &peer_blocks {
        let peer = peer(block)?;
        if peer.allowed_ips == AllowedIps::Networks(Vec::new()) {
            warnings.push(format!(
                "line {}: [Peer] has no AllowedIPs, so all packets from this peer are dropped",
                block.line
            ));
        }
        peers.push(peer);
    }
    if peers.is_empty() {
        warnings.push(
            "no [Peer] section, so no peer can connect or be connected to; add one with the \
             peer's PublicKey and AllowedIPs"
                .to_owned(),
        );
    }

    let interface = the_only(&blocks, Section::Interface)?.ok_or_else(|| {
        ConfigError::Syntax(
            "no [Interface] section; add one with the server's PrivateKey".to_owned(),
        )
    })?;
    let private_key = StaticSecret::from(
        interface
            .one("PrivateKey", value::key)?
            .ok_or_else(|| interface.missing("PrivateKey", "make one with 'wg genkey'"))?,
    );
    let public_key = PublicKey::from(&private_key);
    check::peers(public_key.as_bytes(), &peers, |position| {
        format!("the peer in line {}", peer_blocks[position].line)
    })
    .map_err(|error| peer_blocks[error.position].error(error.field, error.why))?;

    let watm = the_only(&blocks, Section::Watm)?;
    let dns: Vec<_> = interface.words("DNS", value::dns)?;
    let connects = !peers.is_empty() && peers.iter().all(|peer| peer.endpoint.is_some());
    let uploader = match connects {
        true => Uploader::Own,
        false => Uploader::Peer,
    };
    Ok(Config {
        private_key,
        public_key,
        listen_port: interface
            .number("ListenPort")?
            // The range is that of the type. 0 is wg's notation for any port.
            .and_then(|port| u16::try_from(port).ok())
            .filter(|&port| port != 0),
        mtu: interface
            .number("MTU")?
            .and_then(|mtu| u16::try_from(mtu).ok()),
        addresses: interface.words("Address", value::network)?,
        target: match &watm {
            Some(block) => block.one("Target", value::address)?,
            None => None,
        },
        client: ClientSettings {
            // The interface's addresses belong to no client.
            addresses: Vec::new(),
            dns: if dns.is_empty() {
                vec![DEFAULT_DNS.to_owned()]
            } else {
                dns
            },
        },
        peers,
        congestion: match &watm {
            Some(block) => block.congestion_control()?.unwrap_or_default(),
            None => Algorithm::default(),
        },
        limits: limits(watm)?,
        network: match watm {
            Some(block) => block.each("Network", |text| watm_netem::parse(text, uploader))?,
            None => Vec::new(),
        },
        warnings,
        without_effect,
    })
}

fn peer(block: &Block<'_>) -> Result<PeerConfig, ConfigError> {
    let public_key = block
        .one("PublicKey", value::key)?
        .ok_or_else(|| block.missing("PublicKey", "it is the peer's, from 'wg pubkey'"))?;
    Ok(PeerConfig {
        public_key: PublicKey::from(public_key),
        private_key: None,
        preshared_key: block.one("PresharedKey", value::key)?,
        allowed_ips: AllowedIps::Networks(block.many("AllowedIPs", value::network)?),
        disallowed_ips: block.many("DisallowedIPs", value::network)?,
        persistent_keepalive: block
            .one("PersistentKeepalive", value::keepalive)?
            .flatten(),
        endpoint: block.one("Endpoint", value::endpoint)?,
    })
}

fn limits(block: Option<&Block<'_>>) -> Result<Limits, ConfigError> {
    let mut limits = Limits::default();
    let Some(block) = block else {
        return Ok(limits);
    };
    if let Some(seconds) = block.number("UdpIdleTimeout")? {
        limits.udp_idle_timeout = Duration::from_secs(seconds.into());
    }
    if let Some(flows) = block.number("MaxFlows")? {
        limits.max_flows = flows;
    }
    if let Some(handshakes) = block.number("HandshakesPerSecond")? {
        limits.handshakes_per_second = handshakes;
    }
    Ok(limits)
}

impl Block<'_> {
    /// The value of a field that appears at most once.
    fn one<T>(
        &self,
        field: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let mut entries = self.entries.iter().filter(|entry| entry.field == field);
        let Some(entry) = entries.next() else {
            return Ok(None);
        };
        if let Some(second) = entries.next() {
            return Err(second.error(format!(
                "already set in line {}; remove one of the two",
                entry.line
            )));
        }
        if entry.value.is_empty() {
            return Err(entry.error("has no value; add one or remove the line".to_owned()));
        }
        parse(entry.value).map(Some).map_err(|why| entry.error(why))
    }

    /// The number in a field that appears at most once.
    fn number(&self, field: &'static str) -> Result<Option<u32>, ConfigError> {
        let known = watm_schema::field(self.section.fields(), field);
        self.one(field, |text| value::number(text, &known))
    }

    fn congestion_control(&self) -> Result<Option<Algorithm>, ConfigError> {
        const NAME: &str = "CongestionControl";
        let known = watm_schema::field(self.section.fields(), NAME);
        self.one(NAME, |text| value::congestion_control(text, &known))
    }

    /// The values of a list field, which may appear several times.
    fn many<T>(
        &self,
        field: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, ConfigError> {
        self.each(field, |text| value::list(text, &parse))
    }

    /// Like [`many`](Self::many), for a field that only wg-quick reads.
    fn words<T>(
        &self,
        field: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, ConfigError> {
        self.each(field, |text| value::words(text, &parse))
    }

    fn each<T>(
        &self,
        field: &'static str,
        parse: impl Fn(&str) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, ConfigError> {
        let mut values = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.field == field) {
            values.extend(parse(entry.value).map_err(|why| entry.error(why))?);
        }
        Ok(values)
    }

    /// An error of a field: at its line, or at the section's line if the field is missing.
    fn error(&self, field: &str, why: String) -> ConfigError {
        let line = self
            .entries
            .iter()
            .find(|entry| entry.field == field)
            .map_or(self.line, |entry| entry.line);
        field_error(line, self.section, field, why)
    }

    fn missing(&self, field: &str, help: &str) -> ConfigError {
        self.error(field, format!("missing; {help}"))
    }
}

impl Entry<'_> {
    fn error(&self, why: String) -> ConfigError {
        field_error(self.line, self.section, self.field, why)
    }
}

fn field_error(line: usize, section: Section, field: &str, why: String) -> ConfigError {
    ConfigError::Field(format!("line {line}: [{}] {field}", section.name()), why)
}

/// The only section of this kind. Fails if there are several.
fn the_only<'a, 'b>(
    blocks: &'a [Block<'b>],
    section: Section,
) -> Result<Option<&'a Block<'b>>, ConfigError> {
    let mut found = blocks.iter().filter(|block| block.section == section);
    let first = found.next();
    match (first, found.next()) {
        (Some(first), Some(second)) => Err(ConfigError::Syntax(format!(
            "line {}: a second [{}] section, after the one in line {}; put its fields there",
            second.line,
            section.name(),
            first.line
        ))),
        _ => Ok(first),
    }
}

/// The sections and their entries, with every field name checked for its section, and a sentence on
/// the fields without effect, if there are any.
fn blocks(text: &str) -> Result<(Vec<Block<'_>>, Option<String>), ConfigError> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut ignored: Vec<(&str, usize)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = without_comment(line);
        if line.is_empty() {
            continue;
        }
        if let Some(heading) = line.strip_prefix('[') {
            blocks.push(Block {
                line: number,
                section: section(number, heading)?,
                entries: Vec::new(),
            });
            continue;
        }
        let Some(block) = blocks.last_mut() else {
            return Err(ConfigError::Syntax(format!(
                "line {number}: a field before the first section; begin with [Interface]"
            )));
        };
        let Some((name, value)) = line.split_once('=') else {
            return Err(ConfigError::Syntax(format!(
                "line {number}: neither a [Section] nor 'Field = value'"
            )));
        };
        if name.trim().is_empty() {
            return Err(ConfigError::Syntax(format!(
                "line {number}: no field's name before the '='"
            )));
        }
        match field(number, block.section, name.trim())? {
            Meaning::Known(field) => block.entries.push(Entry {
                line: number,
                section: block.section,
                field,
                value: value.trim(),
            }),
            // Each field is listed once, however often it appears.
            Meaning::WithoutEffect(field) if ignored.iter().any(|(known, _)| *known == field) => {}
            Meaning::WithoutEffect(field) => ignored.push((field, number)),
        }
    }
    Ok((blocks, no_effect(&ignored)))
}

/// The sentence that names the fields without effect.
fn no_effect(ignored: &[(&str, usize)]) -> Option<String> {
    let verb = match ignored {
        [] => return None,
        [_] => "has",
        _ => "have",
    };
    let named = ignored
        .iter()
        .map(|(field, line)| format!("{field} (line {line})"));
    Some(format!(
        "[Interface] {} {verb} no effect: a sandboxed module runs no commands, changes no routes \
         and writes no files",
        named.collect::<Vec<_>>().join(", ")
    ))
}

/// The content of a line: up to a '#', as in wg(8), or to a ';' at its beginning or after a space,
/// as in other files of this kind.
fn without_comment(line: &str) -> &str {
    let line = line.trim();
    let hidden = line
        .get(..HIDDEN.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(HIDDEN));
    let line = if hidden { &line[HIDDEN.len()..] } else { line };
    let line = line.split_once('#').map_or(line, |(line, _)| line);
    let mut before = ' ';
    let comment = line.find(|character: char| {
        let begins = character == ';' && before.is_whitespace();
        before = character;
        begins
    });
    comment.map_or(line, |at| &line[..at]).trim()
}

fn section(line: usize, heading: &str) -> Result<Section, ConfigError> {
    let name = heading.strip_suffix(']').map(str::trim).ok_or_else(|| {
        ConfigError::Syntax(format!("line {line}: a section heading without its ']'"))
    })?;
    Section::ALL
        .into_iter()
        .find(|section| section.name().eq_ignore_ascii_case(name))
        .ok_or_else(|| {
            ConfigError::Syntax(format!(
                "line {line}: unknown section [{}]; expected [Interface], [Peer] or [Watm]",
                value::quote(name)
            ))
        })
}

/// The meaning of a field's name.
enum Meaning {
    /// A field of the section, as [`Section::fields`] spells it.
    Known(&'static str),
    /// A field without effect, as [`WITHOUT_EFFECT`] spells it.
    WithoutEffect(&'static str),
}

fn field(line: usize, section: Section, name: &str) -> Result<Meaning, ConfigError> {
    let matches = |known: &&'static str| known.eq_ignore_ascii_case(name);
    let of = |section: Section| {
        section
            .fields()
            .iter()
            .map(|field| field.name)
            .find(&matches)
    };
    if let Some(field) = of(section) {
        return Ok(Meaning::Known(field));
    }
    if let Some((field, why)) = REFUSED.iter().find(|(known, _)| matches(known)) {
        return Err(field_error(line, section, field, (*why).to_owned()));
    }
    let ignored = WITHOUT_EFFECT.iter().copied().find(&matches);
    if let (Some(field), Section::Interface) = (ignored, section) {
        return Ok(Meaning::WithoutEffect(field));
    }
    let of_interface = ignored.map(|_| Section::Interface);
    let elsewhere = of_interface.or_else(|| {
        let mut sections = Section::ALL.into_iter();
        sections.find(|section| of(*section).is_some())
    });
    let why = match elsewhere {
        Some(other) => format!("belongs in [{}]", other.name()),
        None => format!(
            "unknown; [{}] has {}",
            section.name(),
            names(section.fields())
        ),
    };
    Err(field_error(line, section, &value::quote(name), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    const OTHER: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
    const PEER: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

    /// Returns the rates from the peers and to them, with these lines in each `[Peer]`.
    fn rates(peers: &[(&str, &str)]) -> Vec<Option<u64>> {
        let mut text = format!("[Interface]\nPrivateKey = {KEY}\n[Watm]\nNetwork = dsl\n");
        for (key, line) in peers {
            text.push_str(&format!("[Peer]\nPublicKey = {key}\n{line}\n"));
        }
        let config = parse(&text).unwrap();
        config.network.iter().map(|rule| rule.path.rate).collect()
    }

    #[test]
    fn a_network_by_name_is_that_of_the_end_that_connects() {
        let (up, down) = (Some(1_000_000), Some(8_000_000));
        let endpoint = "Endpoint = 192.0.2.1:51820";
        assert_eq!(rates(&[(PEER, endpoint)]), [down, up]);
        assert_eq!(rates(&[(PEER, endpoint), (OTHER, endpoint)]), [down, up]);
        assert_eq!(rates(&[(PEER, endpoint), (OTHER, "")]), [up, down]);
        assert_eq!(rates(&[]), [up, down]);
    }
}
