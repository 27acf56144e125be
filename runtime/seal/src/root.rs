use std::collections::BTreeSet;
use std::fmt;

use crate::bytes::{Reader, Writer, check_count, malformed};
use crate::capabilities::MAX_PATTERN;
use crate::key::{Domain, MAX_SIGNATURES, PrivateKey, Signatures};
use crate::manifest::{read_name, write_name};
use crate::{Capabilities, Digest, Name, NamePattern, PublicKey, Refused};

/// Of the encoding of a record.
const FORMAT: u8 = 1;
/// Before the record in a file of its own.
const MAGIC: &[u8] = b"watm/root-file/v1\0";
/// Large organisations have a handful of teams.
const MAX_DELEGATIONS: usize = 16;
const MAX_NAMES: usize = 16;
/// Everybody who ever left.
const MAX_REVOKED: usize = 64;

/// Who is trusted with what: version N of it, which replaces all earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRecord {
    /// 1, 2, 3, …
    pub version: u32,
    /// The [id](Root::id) of version 1. `None` in version 1 itself.
    pub first: Option<Digest>,
    /// The highest epoch that a module may have.
    pub epoch: u32,
    /// From when on nothing new is accepted under it, in seconds since 1970. A newer version
    /// still is.
    pub expires: u64,
    /// How many of its keys have to sign the root itself.
    pub threshold: u8,
    /// The root's own keys.
    pub keys: BTreeSet<PublicKey>,
    /// Who may sign what else.
    pub delegations: Vec<Delegation>,
    /// Keys that count for nothing any more, wherever they stand. At most 64.
    pub revoked: BTreeSet<PublicKey>,
}

/// Some keys that together may sign modules (or freshness notes) of some names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// What people call it; the delegations of a root are sorted by it.
    pub name: Name,
    /// What they may sign.
    pub purpose: Purpose,
    /// How many of the keys it takes.
    pub threshold: u8,
    /// Of whom. At most 16.
    pub keys: BTreeSet<PublicKey>,
    /// For modules of which names. At most 16.
    pub names: BTreeSet<NamePattern>,
    /// What such a module may ask for at most.
    pub ceiling: Capabilities,
}

/// What the keys of a delegation sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Modules.
    Seal,
    /// Notes of what the newest release is: [`Note`](crate::Note). Such a key can be kept on a
    /// machine that is always on, as all it can do is cause a warning.
    Freshness,
}

impl Purpose {
    /// The delegation that a signature for this purpose needs, for people who write roots.
    pub(crate) fn needed(self) -> &'static str {
        match self {
            Purpose::Seal => "sealing a module takes a delegation with \"purpose\": \"modules\"",
            Purpose::Freshness => {
                "signing a note takes a delegation with \"purpose\": \"freshness\""
            }
        }
    }
}

/// The words that descriptions of roots use.
impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Seal => "modules",
            Purpose::Freshness => "freshness",
        })
    }
}

impl RootRecord {
    /// The bytes that are signed, after the domain. Fails if a field is out of its bounds.
    fn encode(&self) -> Result<Vec<u8>, Refused> {
        self.check()?;
        let mut writer = Writer::default();
        writer
            .u8(FORMAT)
            .u32(self.version)
            .bytes(&self.first.map_or([0; 32], |first| first.0))
            .u32(self.epoch)
            .u64(self.expires)
            .u8(self.threshold);
        write_keys(&mut writer, &self.keys);
        writer.count(self.delegations.len());
        for delegation in &self.delegations {
            delegation.write(&mut writer);
        }
        write_keys(&mut writer, &self.revoked);
        let bytes = writer.finish();
        match u16::try_from(bytes.len()) {
            Ok(_) => Ok(bytes),
            Err(_) => Err(malformed("root record", "is over 64 KiB")),
        }
    }

    fn parse(bytes: &[u8]) -> Result<RootRecord, Refused> {
        let mut reader = Reader::new(bytes);
        match reader.u8("root format")? {
            FORMAT => {}
            other => {
                let reason = format!("{other}; this host knows {FORMAT}");
                return Err(malformed("root format", reason));
            }
        }
        let version = reader.u32("root version")?;
        let first: [u8; 32] = reader.array("first root")?;
        let epoch = reader.u32("root epoch")?;
        let expires = reader.u64("root expires")?;
        let threshold = reader.u8("root threshold")?;
        let keys = read_keys(&mut reader, "root keys", MAX_SIGNATURES)?;
        let count = usize::from(reader.u8("delegations")?);
        check_count("delegations", count, MAX_DELEGATIONS)?;
        let mut delegations = Vec::with_capacity(count);
        for _ in 0..count {
            delegations.push(Delegation::read(&mut reader)?);
        }
        let record = RootRecord {
            version,
            first: (first != [0; 32]).then_some(Digest(first)),
            epoch,
            expires,
            threshold,
            keys,
            delegations,
            revoked: read_keys(&mut reader, "revoked", MAX_REVOKED)?,
        };
        reader.end("root record")?;
        match record.encode()? == bytes {
            true => Ok(record),
            false => Err(malformed("root record", "is not in its one encoding")),
        }
    }

    /// Checks that this key is one of those that sign for this purpose and name. A threshold may
    /// take others beside it.
    pub fn check_signer(
        &self,
        purpose: Purpose,
        name: &Name,
        key: &PublicKey,
    ) -> Result<(), Refused> {
        let own: Vec<&Delegation> = self
            .delegations
            .iter()
            .filter(|delegation| delegation.keys.contains(key))
            .collect();
        let of_purpose = own.iter().find(|it| it.purpose == purpose);
        let needed = purpose.needed();
        let version = self.version;
        let reason = match (of_purpose, own.first()) {
            _ if own.iter().any(|it| it.purpose == purpose && it.has(name)) => return Ok(()),
            _ if self.revoked.contains(key) => {
                format!("version {version} of the root revokes {key}")
            }
            (Some(delegation), _) => delegation.other_names(),
            (None, Some(delegation)) => format!(
                "{key} is of {}, whose purpose is \"{}\"; {needed}",
                delegation.name, delegation.purpose
            ),
            (None, None) => {
                format!("version {version} of the root delegates nothing to {key}; {needed}")
            }
        };
        Err(Refused::Delegation {
            name: name.clone(),
            reason,
        })
    }

    fn check(&self) -> Result<(), Refused> {
        if self.version == 0 || (self.version == 1) != self.first.is_none() {
            return Err(malformed(
                "first root",
                "version 1 has none, and every later one has the id of version 1",
            ));
        }
        check_threshold("root", self.threshold, &self.keys, &self.revoked)?;
        check_count("delegations", self.delegations.len(), MAX_DELEGATIONS)?;
        check_count("revoked", self.revoked.len(), MAX_REVOKED)?;
        for delegation in &self.delegations {
            delegation.check(&self.revoked)?;
        }
        match self
            .delegations
            .is_sorted_by(|one, next| one.name < next.name)
        {
            true => Ok(()),
            false => Err(malformed("delegations", "must ascend by name, each once")),
        }
    }
}

impl Delegation {
    fn read(reader: &mut Reader<'_>) -> Result<Delegation, Refused> {
        Ok(Delegation {
            name: read_name(reader, "delegation")?,
            purpose: match reader.u8("purpose")? {
                1 => Purpose::Seal,
                2 => Purpose::Freshness,
                other => {
                    let reason = format!("{other}; must be 1 (modules) or 2 (freshness)");
                    return Err(malformed("purpose", reason));
                }
            },
            threshold: reader.u8("threshold")?,
            keys: read_keys(reader, "keys", MAX_SIGNATURES)?,
            names: reader
                .list("names", MAX_NAMES, |reader| {
                    reader.text("names", MAX_PATTERN)?.parse::<NamePattern>()
                })?
                .into_iter()
                .collect(),
            ceiling: Capabilities::read(reader)?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        write_name(writer, &self.name);
        writer
            .u8(match self.purpose {
                Purpose::Seal => 1,
                Purpose::Freshness => 2,
            })
            .u8(self.threshold);
        write_keys(writer, &self.keys);
        writer.count(self.names.len());
        for pattern in &self.names {
            writer.record(pattern.as_str().as_bytes());
        }
        self.ceiling.write(writer);
    }

    fn check(&self, revoked: &BTreeSet<PublicKey>) -> Result<(), Refused> {
        check_threshold(self.name.as_str(), self.threshold, &self.keys, revoked)?;
        check_count("names", self.names.len(), MAX_NAMES)?;
        self.ceiling.check()
    }

    /// Why its keys do not sign for a name that is not among its own.
    pub(crate) fn other_names(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(NamePattern::as_str).collect();
        format!(
            "signed by keys of {}, which may sign {} only",
            self.name,
            names.join(", ")
        )
    }

    /// Whether it is for modules of this name.
    pub fn has(&self, name: &Name) -> bool {
        self.names.iter().any(|pattern| pattern.has(name))
    }
}

/// A root record and what has been signed of it so far: what goes from one signer to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRoot {
    record: RootRecord,
    encoded: Vec<u8>,
    signatures: Signatures,
}

impl SignedRoot {
    /// Nobody has signed it yet. Fails if the record is not a possible one: a threshold without
    /// enough keys, a key that is revoked and in use.
    pub fn new(record: RootRecord) -> Result<SignedRoot, Refused> {
        Ok(SignedRoot {
            encoded: record.encode()?,
            record,
            signatures: Signatures::default(),
        })
    }

    /// The record.
    pub fn record(&self) -> &RootRecord {
        &self.record
    }

    /// Signed by one more.
    pub fn sign(self, key: &PrivateKey) -> Result<SignedRoot, Refused> {
        let signature = key.sign(Domain::Root, &self.encoded);
        Ok(SignedRoot {
            signatures: self.signatures.with(signature)?,
            ..self
        })
    }

    /// Who has signed it so far.
    pub fn signers(&self) -> impl Iterator<Item = PublicKey> {
        self.signatures.keys()
    }

    /// As a file of its own.
    pub fn to_file(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC);
        self.write(&mut writer);
        writer.finish()
    }

    /// What [`to_file`](SignedRoot::to_file) wrote. All its signatures have been checked, but not
    /// whether they are enough: see [`Root::trust`] and [`Root::advance`].
    pub fn from_file(bytes: &[u8]) -> Result<SignedRoot, Refused> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(malformed("root file", "does not begin as one"));
        };
        let mut reader = Reader::new(rest);
        let signed = SignedRoot::read(&mut reader)?;
        reader.end("root file")?;
        Ok(signed)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SignedRoot, Refused> {
        let encoded = reader.record("root record")?;
        let record = RootRecord::parse(encoded)?;
        Ok(SignedRoot {
            record,
            signatures: Signatures::read(reader, Domain::Root, encoded)?,
            encoded: encoded.to_owned(),
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.record(&self.encoded);
        self.signatures.write(writer);
    }

    /// The id that all versions of this root share: the SHA-256 of version 1's record, after
    /// `watm/root-id/v1` and a zero byte.
    pub fn id(&self) -> Digest {
        match self.record.first {
            Some(first) => first,
            None => Digest::of_parts(&[b"watm/root-id/v1\0", &self.encoded]),
        }
    }

    /// That those whose root this is have signed it.
    pub(crate) fn check_own(&self) -> Result<(), Refused> {
        self.check_signed_by(&self.record)
    }

    fn check_signed_by(&self, by: &RootRecord) -> Result<(), Refused> {
        // None of its keys is revoked: a record that has such a key is none.
        let valid = self
            .signatures
            .keys()
            .filter(|key| by.keys.contains(key))
            .count();
        if valid >= usize::from(by.threshold) {
            return Ok(());
        }
        Err(Refused::Rotation {
            version: self.record.version,
            reason: format!(
                "signed by {valid} of the keys of version {}, which takes {}",
                by.version, by.threshold
            ),
        })
    }
}

/// A root that is trusted: what a host is given, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(SignedRoot);

impl Root {
    /// Trust this record because its origin is trusted: it came with the host, or a person has
    /// compared its id. Fails if it has not been signed by enough of its own keys.
    pub fn trust(signed: SignedRoot) -> Result<Root, Refused> {
        signed.check_own()?;
        Ok(Root(signed))
    }

    /// Trust the next version because this one's keys have signed it, and its own have. Fails if
    /// it is another version than the next, another root, or not signed by enough of both.
    pub fn advance(&self, next: &SignedRoot) -> Result<Root, Refused> {
        if next.id() != self.id() {
            return Err(Refused::UnknownRoot {
                found: next.id(),
                expected: self.id(),
            });
        }
        let (own, version) = (self.record().version, next.record.version);
        if own.checked_add(1) != Some(version) {
            return Err(Refused::Rotation {
                version,
                reason: format!("this host is at version {own} and needs the one after it first"),
            });
        }
        if next.record.epoch < self.record().epoch {
            return Err(Refused::Rotation {
                version,
                reason: format!(
                    "its epoch {} is below {}, that of version {own}",
                    next.record.epoch,
                    self.record().epoch
                ),
            });
        }
        next.check_signed_by(self.record())?;
        next.check_own()?;
        Ok(Root(next.clone()))
    }

    /// Go along a chain of records, each the next version. Those that this root has behind it
    /// change nothing; the other errors are those of [`advance`](Root::advance).
    pub fn follow(&self, chain: &[SignedRoot]) -> Result<Root, Refused> {
        let mut root = self.clone();
        for next in chain {
            if next.id() == root.id() && next.record.version <= root.record().version {
                next.check_own()?;
                continue;
            }
            root = root.advance(next)?;
        }
        Ok(root)
    }

    /// What it says.
    pub fn record(&self) -> &RootRecord {
        self.0.record()
    }

    /// The record with its signatures.
    pub fn signed(&self) -> &SignedRoot {
        &self.0
    }

    /// What all versions share, and what people compare.
    pub fn id(&self) -> Digest {
        self.0.id()
    }
}

fn check_threshold(
    of: &str,
    threshold: u8,
    keys: &BTreeSet<PublicKey>,
    revoked: &BTreeSet<PublicKey>,
) -> Result<(), Refused> {
    check_count("keys", keys.len(), MAX_SIGNATURES)?;
    let field = format!("{of} threshold");
    if threshold == 0 || usize::from(threshold) > keys.len() {
        let reason = format!("{threshold} of {} keys; must be 1 to all", keys.len());
        return Err(malformed(field, reason));
    }
    match keys.intersection(revoked).next() {
        None => Ok(()),
        Some(key) => Err(malformed(
            format!("{of} keys"),
            format!("{key} is revoked; a revoked key has no place among those in use"),
        )),
    }
}

fn read_keys(
    reader: &mut Reader<'_>,
    field: &str,
    limit: usize,
) -> Result<BTreeSet<PublicKey>, Refused> {
    let list = reader.list(field, limit, |reader| PublicKey::read(reader, field))?;
    Ok(list.into_iter().collect())
}

fn write_keys(writer: &mut Writer, keys: &BTreeSet<PublicKey>) {
    writer.count(keys.len());
    for key in keys {
        writer.bytes(key.as_bytes());
    }
}
