//! The publisher, which makes releases with its own keys or with those that were stolen from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use watm_seal::{
    Announcement, Capabilities, ConnectPattern, DAY, Delegation, Digest, Manifest, ModuleRole,
    Name, Note, PrivateKey, Purpose, Release, Root, RootRecord, SignedRoot, World, seal,
};
use watm_update::{NetworkOptions, Source, publish};

use crate::Outcome;

/// The keys that a release is signed with.
#[derive(Clone, Copy, PartialEq)]
pub enum Keys {
    /// Two of the current release keys.
    Two,
    /// One of the stolen keys.
    OneStolen,
    /// Both of the stolen keys: as many as it takes.
    TwoStolen,
}

/// The capabilities that a module asks for.
#[derive(Clone, Copy, PartialEq)]
pub enum Asks {
    /// The capabilities that all hosts have approved.
    AsBefore,
    /// A connection to anywhere, too.
    More,
}

pub struct Publisher {
    repository: String,
    network: NetworkOptions,
    root_keys: Vec<PrivateKey>,
    /// The last are the current ones. Two of the first are stolen.
    release_keys: Vec<Vec<PrivateKey>>,
    note_key: PrivateKey,
    /// All versions of the root.
    roots: Vec<SignedRoot>,
    floor: Option<Release>,
    /// The published files, by release and channel.
    published: BTreeMap<(String, String), Vec<u8>>,
}

impl Publisher {
    /// A root with three keys, of which two are needed, for a release role of the same kind.
    pub fn new(repository: &str) -> Outcome<Publisher> {
        let mut publisher = Publisher {
            repository: repository.to_owned(),
            network: NetworkOptions {
                plain_http: true,
                ..NetworkOptions::default()
            },
            root_keys: three_keys()?,
            release_keys: vec![three_keys()?],
            note_key: PrivateKey::generate()?,
            roots: Vec::new(),
            floor: None,
            published: BTreeMap::new(),
        };
        let record = publisher.record(1, None, 1, BTreeSet::new())?;
        publisher.sign_root(record)?;
        Ok(publisher)
    }

    /// Returns the root that hosts are given.
    pub fn root(&self) -> Outcome<Root> {
        Ok(Root::trust(self.roots[0].clone())?)
    }

    /// Nothing older is accepted once a host runs what is published from now on.
    pub fn floor(&mut self, release: &str) {
        self.floor = release.parse().ok();
    }

    /// Seal a release for each of these channels, and move their tags to it.
    pub async fn publish(
        &mut self,
        release: &str,
        asks: Asks,
        keys: Keys,
        channels: &[&str],
    ) -> Outcome {
        for channel in channels {
            let file = self.seal(release, asks, keys, channel)?;
            self.upload(&file, channel).await?;
            let key = (release.to_owned(), (*channel).to_owned());
            self.published.insert(key, file);
        }
        Ok(())
    }

    /// Move the tags to the previous release, for one channel.
    pub async fn replay(&self, release: &str, channel: &str, tags: &[&str]) -> Outcome {
        let file = self.find(release, channel)?;
        for tag in tags {
            self.upload(file, tag).await?;
        }
        Ok(())
    }

    /// Move each tag to the previous release of its own channel.
    pub async fn replay_own(&self, release: &str, channels: &[&str]) -> Outcome {
        for channel in channels {
            self.replay(release, channel, &[channel]).await?;
        }
        Ok(())
    }

    /// Move tags to a release to whose module something was added.
    pub async fn change(&self, release: &str, tags: &[&str]) -> Outcome {
        for tag in tags {
            let mut file = self.find(release, tag)?.clone();
            // An empty custom section.
            file.extend_from_slice(&[0, 1, 0]);
            self.upload(&file, tag).await?;
        }
        Ok(())
    }

    /// Returns a signed note that this release is the newest.
    pub fn note(&self, release: &str) -> Outcome<Note> {
        let note = Note::new(Announcement {
            root: self.root()?.id(),
            name: "wireguard".parse()?,
            release: release.parse()?,
            time: now(),
        });
        Ok(note.sign(&self.note_key)?)
    }

    /// New release keys in place of the stolen ones, and a new epoch.
    pub fn rotate(&mut self) -> Outcome {
        let revoked = self.stolen().iter().map(PrivateKey::public).collect();
        self.release_keys.push(three_keys()?);
        let first = Some(self.root()?.id());
        let record = self.record(2, first, 2, revoked)?;
        self.floor = Some("2.1".parse()?);
        self.sign_root(record)
    }

    fn current(&self) -> &[PrivateKey] {
        self.release_keys.last().map_or(&[], Vec::as_slice)
    }

    fn stolen(&self) -> &[PrivateKey] {
        &self.release_keys[0][..2]
    }

    fn find(&self, release: &str, channel: &str) -> Outcome<&Vec<u8>> {
        let key = (release.to_owned(), channel.to_owned());
        self.published
            .get(&key)
            .ok_or_else(|| format!("{release} was not published").into())
    }

    async fn upload(&self, file: &[u8], tag: &str) -> Outcome {
        let to = Source::parse(&format!("{}:{tag}", self.repository))?;
        publish(file, &to, &self.network).await?;
        Ok(())
    }

    fn seal(&self, release: &str, asks: Asks, keys: Keys, channel: &str) -> Outcome<Vec<u8>> {
        let mut capabilities = approved()?;
        if asks == Asks::More {
            capabilities
                .connect
                .insert("tcp://*:443".parse::<ConnectPattern>()?);
        }
        let floors = match (self.floor, keys) {
            (Some(floor), Keys::Two) => [("wireguard".parse::<Name>()?, floor)].into(),
            _ => BTreeMap::new(),
        };
        let manifest = Manifest {
            root: self.root()?.id(),
            name: "wireguard".parse()?,
            world: World::WaterV1,
            roles: [ModuleRole::Listener].into(),
            release: release.parse()?,
            version: String::new(),
            // Both are the sealer's to fill in.
            body_length: 0,
            body_sha256: Digest::of(b""),
            not_before: now() - DAY,
            expires: now() + 90 * DAY,
            channel: channel.parse()?,
            audience: None,
            min_host: "0.1.0".parse()?,
            config_schema: 1,
            capabilities,
            floors,
            requires: BTreeMap::new(),
            source_commit: String::new(),
            toolchain: String::new(),
        };
        let signers = match keys {
            Keys::Two => &self.current()[..2],
            Keys::OneStolen => &self.stolen()[..1],
            Keys::TwoStolen => self.stolen(),
        };
        Ok(seal(&body(release)?, manifest, &self.roots[1..], signers)?)
    }

    fn record(
        &self,
        version: u32,
        first: Option<Digest>,
        epoch: u32,
        revoked: BTreeSet<watm_seal::PublicKey>,
    ) -> Outcome<RootRecord> {
        let public = |keys: &[PrivateKey]| keys.iter().map(PrivateKey::public).collect();
        let delegation = |name: &str, purpose, threshold, keys, ceiling| -> Outcome<Delegation> {
            Ok(Delegation {
                name: name.parse()?,
                purpose,
                threshold,
                keys,
                names: ["wireguard".parse()?].into(),
                ceiling,
            })
        };
        let notes = public(std::slice::from_ref(&self.note_key));
        let releases = public(self.current());
        let (nothing, all) = (Capabilities::default(), Capabilities::unlimited());
        // The most that a release may ask for, with any number of signatures.
        let ceiling = Capabilities {
            connect: ["tcp://*:443".parse::<ConnectPattern>()?].into(),
            ..all
        };
        Ok(RootRecord {
            version,
            first,
            epoch,
            expires: now() + 1000 * DAY,
            threshold: 2,
            keys: public(&self.root_keys),
            delegations: vec![
                delegation("notes", Purpose::Freshness, 1, notes, nothing)?,
                delegation("release", Purpose::Seal, 2, releases, ceiling)?,
            ],
            revoked,
        })
    }

    fn sign_root(&mut self, record: RootRecord) -> Outcome {
        let root = SignedRoot::new(record)?;
        let root = self.root_keys[..2]
            .iter()
            .try_fold(root, |root, key| root.sign(key))?;
        self.roots.push(root);
        Ok(())
    }
}

/// Returns the capabilities that the user of each host has approved.
pub fn approved() -> Outcome<Capabilities> {
    Ok(Capabilities {
        sockets: ["udp listen".parse()?].into(),
        memory_bytes: 64 << 20,
        cpu_permille: 1000,
        flows: 1000,
        instances: 1,
        ..Capabilities::default()
    })
}

fn three_keys() -> Outcome<Vec<PrivateKey>> {
    let keys = (0..3).map(|_| PrivateKey::generate());
    Ok(keys.collect::<Result<_, _>>()?)
}

/// A module of 10 KB that differs from release to release, but for 1.4, which is 1.2 again.
fn body(release: &str) -> Outcome<Vec<u8>> {
    let content = if release == "1.4" { "1.2" } else { release };
    let filling = content.repeat(10_000 / content.len());
    Ok(wat::parse_str(format!(
        "(module (@custom \"filling\" \"{filling}\"))"
    ))?)
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}
