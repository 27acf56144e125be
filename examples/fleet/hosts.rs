//! The hosts, each with a place, a state and an updater of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use watm_seal::state::StateFile;
use watm_seal::{Digest, Note, Policy, Root, Sealed, verify};
use watm_update::{Network, Outcome as Done, Place, Report, Source, Terms, Updater};

use crate::publisher::{approved, now};
use crate::{CANARY_PERCENT, EARLY_PERCENT, Outcome};

/// The number of hosts that look at the same time.
const AT_ONCE: usize = 16;

/// The hosts that look.
pub enum Who {
    All,
    /// This percentage of each channel.
    Percent(usize),
}

struct Host {
    number: usize,
    channel: &'static str,
    terms: Terms,
    place: Place,
    updater: Updater,
}

pub struct Fleet {
    hosts: Vec<Host>,
    network: Network,
}

impl Fleet {
    /// Hosts that trust this root, follow their channel's tag, and have approved what the module
    /// needs.
    pub fn new(
        repository: &str,
        folder: PathBuf,
        count: usize,
        root: &Root,
        network: &Network,
    ) -> Outcome<Fleet> {
        let canary = (count * CANARY_PERCENT).div_ceil(100);
        let early = (count * EARLY_PERCENT).div_ceil(100);
        let hosts = (0..count).map(|number| {
            let channel = match number {
                number if number < canary => "canary",
                number if number < canary + early => "early",
                _ => "stable",
            };
            let folder = folder.join(number.to_string());
            Host::new(repository, &folder, number, channel, root, network)
        });
        Ok(Fleet {
            hosts: hosts.collect::<Outcome<_>>()?,
            network: network.clone(),
        })
    }

    pub fn describe(&self) -> String {
        let mut channels: BTreeMap<&str, usize> = BTreeMap::new();
        for host in &self.hosts {
            *channels.entry(host.channel).or_default() += 1;
        }
        let channels: Vec<String> = channels
            .iter()
            .map(|(channel, count)| format!("{count} {channel}"))
            .collect();
        format!("{} hosts: {}", self.hosts.len(), channels.join(", "))
    }

    /// Each host looks at its tag and, if it has a new module, loads it. Prints the outcomes.
    pub async fn look(&mut self, what: &str, who: Who) -> Outcome {
        let percent = match who {
            Who::All => 100,
            Who::Percent(percent) => percent,
        };
        let began = Instant::now();
        let mut groups: Vec<Vec<Host>> = (0..AT_ONCE).map(|_| Vec::new()).collect();
        for (index, host) in self.hosts.drain(..).enumerate() {
            groups[index % AT_ONCE].push(host);
        }
        let tasks: Vec<_> = groups
            .into_iter()
            .map(|mut group| {
                tokio::spawn(async move {
                    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
                    for host in &mut group {
                        if host.number % 100 < percent {
                            *counts.entry(host.look().await?).or_default() += 1;
                        }
                    }
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>((group, counts))
                })
            })
            .collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for task in tasks {
            let (group, found) = task.await??;
            self.hosts.extend(group);
            for (outcome, count) in found {
                *counts.entry(outcome).or_default() += count;
            }
        }
        self.hosts.sort_by_key(|host| host.number);
        let seconds = began.elapsed().as_secs_f64();
        let running = self.running()?;
        println!(
            "{what:29} {:48} {:29} {seconds:.1} s",
            list(&counts),
            format!("run {}", list(&running)),
        );
        Ok(())
    }

    /// The releases in place, and how many hosts have each.
    fn running(&self) -> Outcome<BTreeMap<String, usize>> {
        // Most hosts have the same file.
        let mut known: BTreeMap<Digest, String> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        for host in &self.hosts {
            let file = fs::read(host.place.path())?;
            let release = match known.entry(Digest::of(&file)) {
                Entry::Occupied(release) => release.into_mut(),
                Entry::Vacant(new) => new.insert(release(&file)?),
            };
            *counts.entry(release.clone()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Looks as [`look`](Fleet::look) does, with another source for all hosts.
    pub async fn look_at(&mut self, source: Source, what: &str) -> Outcome {
        for host in &mut self.hosts {
            host.updater = Updater::new(source.clone(), host.place.clone(), host.terms.clone())
                .network(self.network.clone());
        }
        self.look(what, Who::All).await
    }

    /// Every host reads a freshness note, from any channel.
    pub fn announce(&self, note: &Note) -> Outcome {
        for host in &self.hosts {
            let state = host.terms.state.load()?;
            let announced = note.verify(&host.terms.root, &state, now())?;
            host.terms
                .state
                .update(|state| state.announce(&announced))??;
        }
        Ok(())
    }
}

impl Host {
    fn new(
        repository: &str,
        folder: &Path,
        number: usize,
        channel: &'static str,
        root: &Root,
        network: &Network,
    ) -> Outcome<Host> {
        fs::create_dir(folder)?;
        let state = StateFile::new(folder.join("state"));
        let name = "wireguard".parse()?;
        let approved = approved()?;
        state.update(|state| state.approve(&name, approved))??;
        let terms = Terms {
            root: root.clone(),
            state,
            policy: Policy {
                name: Some(name),
                channel: Some(channel.parse()?),
                ..Policy::default()
            },
        };
        let place = Place::new(folder.join("wireguard.wasm"));
        let source = Source::parse(&format!("{repository}:{channel}"))?;
        let updater = Updater::new(source, place.clone(), terms.clone()).network(network.clone());
        Ok(Host {
            number,
            channel,
            terms,
            place,
            updater,
        })
    }

    /// Look once; load what is new as a host does, which verifies it again.
    async fn look(&mut self) -> Outcome<String> {
        let report = self.updater.check().await;
        if let Done::Updated { .. } = report.outcome {
            self.load()?;
        }
        Ok(summary(&report))
    }

    fn load(&self) -> Outcome {
        let file = fs::read(self.place.path())?;
        let Terms {
            root,
            state,
            policy,
        } = &self.terms;
        let known = state.load()?;
        let verified = verify(&file, root, &known, policy, now())?;
        state.update(|state| state.accept(&verified))?;
        Ok(())
    }
}

/// Returns the release of a file.
fn release(file: &[u8]) -> Outcome<String> {
    let release = Sealed::parse(file)?.manifest().release;
    Ok(match release.sequence {
        u64::MAX => format!("{}.(2^64-1)", release.epoch),
        _ => release.to_string(),
    })
}

/// An outcome in a few words, to be counted.
fn summary(report: &Report) -> String {
    let mut text = match &report.outcome {
        Done::Updated { .. } => "updated".to_owned(),
        Done::Unchanged { .. } => "unchanged".to_owned(),
        Done::Pending { .. } => "wait for approval".to_owned(),
        Done::Refused { code, .. } => format!("refused ({code})"),
    };
    for warning in &report.warnings {
        text += &format!(" (warned: {})", warning.code);
    }
    text
}

fn list(counts: &BTreeMap<String, usize>) -> String {
    let texts: Vec<String> = counts
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    texts.join(", ")
}
