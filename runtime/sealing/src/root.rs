//! Roots in JSON, as people write them for `watm root new` and `watm root show` prints them.

use serde_derive::{Deserialize, Serialize};
use watm_seal::{Capabilities, Delegation, Moment, Purpose, Refused, Root, RootRecord, SignedRoot};

use crate::capabilities::{CapabilitiesText, texts};

/// A root as a person writes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RootText {
    #[serde(default = "one")]
    epoch: u32,
    /// A date such as `2027-11-21`.
    expires: String,
    threshold: u8,
    /// Root keys in hexadecimal, as `watm keygen` prints them.
    keys: Vec<String>,
    #[serde(default)]
    delegations: Vec<DelegationText>,
    #[serde(default)]
    revoked: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DelegationText {
    name: String,
    #[serde(default)]
    purpose: PurposeText,
    threshold: u8,
    keys: Vec<String>,
    /// Patterns of names: `wireguard`, `team-a/*`, `*`.
    names: Vec<String>,
    /// The most capabilities. Without it there is no ceiling; for notes it has no use.
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<CapabilitiesText>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PurposeText {
    #[default]
    Modules,
    Freshness,
}

fn one() -> u32 {
    1
}

impl RootText {
    /// Makes version 1, or the version after `previous`.
    pub fn parse(&self, previous: Option<&Root>) -> Result<RootRecord, Refused> {
        let mut delegations = self
            .delegations
            .iter()
            .map(DelegationText::parse)
            .collect::<Result<Vec<_>, _>>()?;
        delegations.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(RootRecord {
            version: previous.map_or(1, |root| root.record().version.saturating_add(1)),
            first: previous.map(Root::id),
            epoch: self.epoch,
            expires: self.expires.parse::<Moment>()?.0,
            threshold: self.threshold,
            keys: parse_all(&self.keys)?,
            delegations,
            revoked: parse_all(&self.revoked)?,
        })
    }

    /// Describes the root for people: lines, each with its subject before it.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![
            ("epoch", self.epoch.to_string()),
            ("expires", self.expires.clone()),
            (
                "takes",
                format!("{} of {} root keys", self.threshold, self.keys.len()),
            ),
        ];
        words.extend(self.keys.iter().map(|key| ("root key", key.clone())));
        for delegation in &self.delegations {
            let what = match delegation.purpose {
                PurposeText::Modules => "modules",
                PurposeText::Freshness => "notes",
            };
            words.push((
                "delegates",
                format!(
                    "{what} {} to {}, {} of {} keys",
                    delegation.names.join(", "),
                    delegation.name,
                    delegation.threshold,
                    delegation.keys.len()
                ),
            ));
            words.extend(delegation.keys.iter().map(|key| ("  key", key.clone())));
            if let Some(ceiling) = &delegation.ceiling {
                let ceiling = ceiling.words().into_iter();
                words.extend(ceiling.map(|line| ("  at most", line)));
            }
        }
        words.extend(self.revoked.iter().map(|key| ("revoked", key.clone())));
        words
    }
}

impl DelegationText {
    fn parse(&self) -> Result<Delegation, Refused> {
        let purpose = match self.purpose {
            PurposeText::Modules => Purpose::Seal,
            PurposeText::Freshness => Purpose::Freshness,
        };
        Ok(Delegation {
            name: self.name.parse()?,
            purpose,
            threshold: self.threshold,
            keys: parse_all(&self.keys)?,
            names: parse_all(&self.names)?,
            ceiling: match (&self.ceiling, purpose) {
                (Some(ceiling), _) => ceiling.parse()?,
                (None, Purpose::Seal) => Capabilities::unlimited(),
                (None, Purpose::Freshness) => Capabilities::default(),
            },
        })
    }
}

/// Parses the items of a list into a collection.
fn parse_all<T, S>(texts: &[String]) -> Result<S, Refused>
where
    T: std::str::FromStr<Err = Refused>,
    S: FromIterator<T>,
{
    texts.iter().map(|text| text.parse()).collect()
}

impl From<&SignedRoot> for RootText {
    fn from(signed: &SignedRoot) -> RootText {
        let record = signed.record();
        RootText {
            epoch: record.epoch,
            expires: Moment(record.expires).to_string(),
            threshold: record.threshold,
            keys: texts(&record.keys),
            delegations: record
                .delegations
                .iter()
                .map(DelegationText::from)
                .collect(),
            revoked: texts(&record.revoked),
        }
    }
}

impl From<&Delegation> for DelegationText {
    fn from(delegation: &Delegation) -> DelegationText {
        let (purpose, none) = match delegation.purpose {
            Purpose::Seal => (PurposeText::Modules, Capabilities::unlimited()),
            Purpose::Freshness => (PurposeText::Freshness, Capabilities::default()),
        };
        DelegationText {
            name: delegation.name.to_string(),
            purpose,
            threshold: delegation.threshold,
            keys: texts(&delegation.keys),
            names: texts(&delegation.names),
            ceiling: (delegation.ceiling != none).then(|| (&delegation.ceiling).into()),
        }
    }
}
