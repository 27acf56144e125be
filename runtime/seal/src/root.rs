//! Roots: signed lists of keys and their delegations. `verify` checks modules against one, and
//! `watm root` writes them.

use std::collections::BTreeSet;
use std::fmt;

use crate::bytes::{Reader, Writer, check_count, malformed};
use crate::capabilities::MAX_PATTERN;
use crate::key::{Domain, MAX_SIGNATURES, PrivateKey, Signatures};
use crate::manifest::{read_name, write_name};
use crate::{Capabilities, Digest, Name, NamePattern, PublicKey, Refused};

/// The version of the record's encoding.
const FORMAT: u8 = 1;
/// The beginning of a root file.
const MAGIC: &[u8] = b"watm/root-file/v1\0";
/// Limits on delegations: large organizations have a handful of teams.
const MAX_DELEGATIONS: usize = 16;
const MAX_NAMES: usize = 16;
/// The most revoked keys.
const MAX_REVOKED: usize = 64;

/// One version of the trusted keys and their permissions. It replaces all earlier versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRecord {
    /// The version, counted from 1.
    pub version: u32,
    /// The [id](Root::id) of version 1. `None` in version 1 itself.
    pub first: Option<Digest>,
    /// The highest epoch that a module may have.
    pub epoch: u32,
    /// The time from which nothing is accepted under this version except a newer one, in seconds
    /// since 1970.
    pub expires: u64,
    /// The number of its keys that must sign the root itself.
    pub threshold: u8,
    /// The root's own keys.
    pub keys: BTreeSet<PublicKey>,
    /// Permissions of other keys.
    pub delegations: Vec<Delegation>,
    /// Keys that no longer count, wherever they occur. At most 64.
    pub revoked: BTreeSet<PublicKey>,
}

/// A set of keys that together may sign modules, or freshness notes, of some names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// The name for people. The delegations of a root are sorted by it.
    pub name: Name,
    /// The kind of record that the keys may sign.
    pub purpose: Purpose,
    /// The number of keys that must sign.
    pub threshold: u8,
    /// The keys. At most 16.
    pub keys: BTreeSet<PublicKey>,
    /// The names of modules that it covers. At most 16.
    pub names: BTreeSet<NamePattern>,
    /// The most capabilities that such a module may request.
    pub ceiling: Capabilities,
}

/// The kind of record that the keys of a delegation sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Modules.
    Seal,
    /// Freshness notes: see [`Note`](crate::Note). Such a key can stay on a machine that is always
    /// on, as it can cause nothing but warnings.
    Freshness,
}

impl Purpose {
    /// Describes the delegation that a signature for this purpose needs, for people who write
    /// roots.
    pub(crate) fn needed(self) -> &'static str {
        match self {
            Purpose::Seal => "sealing a module requires a delegation with \"purpose\": \"modules\"",
            Purpose::Freshness => {
                "signing a note requires a delegation with \"purpose\": \"freshness\""
            }
        }
    }
}

/// Writes the word that descriptions of roots use.
impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Seal => "modules",
            Purpose::Freshness => "freshness",
        })
    }
}

impl RootRecord {
    /// Returns the bytes that are signed, after the domain. Fails if a field is out of its bounds.
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
            Err(_) => Err(malformed("root record", "is larger than 64 KiB")),
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
            false => Err(malformed("root record", "is not in its canonical encoding")),
        }
    }

    /// Checks that this key is one of those that sign for this purpose and name. A threshold may
    /// require others as well.
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
                "{key} belongs to {}, whose purpose is \"{}\"; {needed}",
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
                "must be missing in version 1, and the id of version 1 in later versions",
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
            false => Err(malformed(
                "delegations",
                "must be in ascending order by name, without duplicates",
            )),
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

    /// Explains that its keys do not sign names outside of its own.
    pub(crate) fn other_names(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(NamePattern::as_str).collect();
        format!(
            "signed by keys of {}, which may sign {} only",
            self.name,
            names.join(", ")
        )
    }

    /// Returns true if it covers modules of this name.
    pub fn has(&self, name: &Name) -> bool {
        self.names.iter().any(|pattern| pattern.has(name))
    }
}

/// A root record with the signatures collected so far, which passes from one signer to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRoot {
    record: RootRecord,
    encoded: Vec<u8>,
    signatures: Signatures,
}

impl SignedRoot {
    /// Creates a root without signatures. Fails if the record is invalid: a threshold without
    /// enough keys, or a key that is both revoked and in use.
    pub fn new(record: RootRecord) -> Result<SignedRoot, Refused> {
        Ok(SignedRoot {
            encoded: record.encode()?,
            record,
            signatures: Signatures::default(),
        })
    }

    /// Returns the record.
    pub fn record(&self) -> &RootRecord {
        &self.record
    }

    /// Adds a signature.
    pub fn sign(self, key: &PrivateKey) -> Result<SignedRoot, Refused> {
        let signature = key.sign(Domain::Root, &self.encoded);
        Ok(SignedRoot {
            signatures: self.signatures.with(signature)?,
            ..self
        })
    }

    /// Returns the keys that have signed so far.
    pub fn signers(&self) -> impl Iterator<Item = PublicKey> {
        self.signatures.keys()
    }

    /// Returns the bytes of a root file.
    pub fn to_file(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC);
        self.write(&mut writer);
        writer.finish()
    }

    /// Parses the bytes that [`to_file`](SignedRoot::to_file) returns and checks each signature,
    /// but not whether they suffice: see [`Root::trust`] and [`Root::advance`].
    pub fn from_file(bytes: &[u8]) -> Result<SignedRoot, Refused> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(malformed("root file", "has the wrong magic bytes"));
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

    /// Returns the id that all versions of this root share: the SHA-256 of version 1's record,
    /// after `watm/root-id/v1` and a zero byte.
    pub fn id(&self) -> Digest {
        match self.record.first {
            Some(first) => first,
            None => Digest::of_parts(&[b"watm/root-id/v1\0", &self.encoded]),
        }
    }

    /// Checks that enough of its own keys have signed it.
    pub(crate) fn check_own(&self) -> Result<(), Refused> {
        self.check_signed_by(&self.record)
    }

    fn check_signed_by(&self, by: &RootRecord) -> Result<(), Refused> {
        // None of its keys is revoked: a record with such a key does not parse.
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
                "signed by {valid} of the keys of version {}, which requires {}",
                by.version, by.threshold
            ),
        })
    }
}

/// A trusted root, given to a host or derived from one that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(SignedRoot);

impl Root {
    /// Trusts this record because of its origin: it came with the host, or a person has compared
    /// its id. Fails if too few of its own keys have signed it.
    pub fn trust(signed: SignedRoot) -> Result<Root, Refused> {
        signed.check_own()?;
        Ok(Root(signed))
    }

    /// Trusts the next version because enough keys of this version and of the next have signed it.
    /// Fails if it is not the next version, belongs to another root, or lacks signatures.
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
                reason: format!("this host is at version {own}; trust the versions between first"),
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

    /// Follows a chain of records, each the next version. Records that this root already includes
    /// change nothing. Other errors are those of [`advance`](Root::advance).
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

    /// Returns the record.
    pub fn record(&self) -> &RootRecord {
        self.0.record()
    }

    /// Returns the record with its signatures.
    pub fn signed(&self) -> &SignedRoot {
        &self.0
    }

    /// Returns the id that all versions share and that people compare.
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
            format!("{key} is revoked; remove it from the keys in use"),
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
