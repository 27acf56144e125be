//! The updater: one check takes a module from a source to a place. `Watch` and `watm update` drive
//! it.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use watm_seal::{Digest, Note, Refused, Release};

use crate::error::FetchError;
use crate::fault::{Fault, at};
use crate::fetch::{Fetched, Folder, LIMIT, Part, fetch, fetch_small, read_file};
use crate::network::Network;
use crate::outcome::{Notice, Outcome, Report, Skipped};
use crate::place::Place;
use crate::record::{Record, Validators};
use crate::source::{Kind, Source};
use crate::task::blocking;
use crate::terms::{Judged, Terms, Verdict, now};

/// The largest freshness note, in bytes. A note has some 200.
const MAX_NOTE_BYTES: u64 = 4 << 10;
/// The most skipped files of a folder in a report.
const MOST_SKIPPED: usize = 32;

/// Takes a module from a source to a place.
///
/// Each [`check`](Updater::check)
///
/// 1. waits until no other update of the place is at work;
/// 2. takes in the freshness note, if it has a source;
/// 3. asks the source for a file, unless it has the same as last time, continuing where the last
///    attempt broke off;
/// 4. verifies it as the host does;
/// 5. puts it in place, or aside if it requests more than is approved.
///
/// The place has the old file or the new one at every moment.
#[derive(Debug)]
pub struct Updater {
    source: Source,
    place: Place,
    terms: Arc<Terms>,
    network: Network,
    note: Option<Source>,
    folder: Folder,
}

impl Updater {
    /// Creates an updater. It accesses nothing yet.
    pub fn new(source: Source, place: Place, terms: Terms) -> Updater {
        Updater {
            source,
            place,
            terms: Arc::new(terms),
            network: Network::default(),
            note: None,
            folder: Folder::default(),
        }
    }

    /// Sets the options for connections to servers.
    #[must_use]
    pub fn network(self, network: impl Into<Network>) -> Updater {
        let network = network.into();
        Updater { network, ..self }
    }

    /// Sets the source of freshness notes about the module. An unusable note causes a warning.
    #[must_use]
    pub fn note(self, note: Source) -> Updater {
        let note = Some(note);
        Updater { note, ..self }
    }

    /// Returns the source of modules.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the place of the module.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Checks once. If the future is dropped, the place is as it was or has the new file, and bytes
    /// received so far are kept.
    pub async fn check(&mut self) -> Report {
        let mut notices = Vec::new();
        let mut report = match self.try_check(&mut notices).await {
            Ok(report) => report,
            Err(fault) => Report::of_fault(self.source.to_string(), &fault),
        };
        notices.append(&mut report.warnings);
        Report {
            warnings: notices,
            ..report
        }
    }

    /// Puts the module in place that was kept aside, if its user has approved it meanwhile. Returns
    /// `None` if there is none, or it still waits.
    pub async fn check_pending(&mut self) -> Option<Report> {
        let settled = self.settle_pending(|_, _| Ok(())).await.transpose()?;
        Some(self.report(settled))
    }

    /// Records the user's approval of the module that was kept aside, and puts it in place. The
    /// user names the release, since another may have arrived meanwhile.
    pub async fn approve(&mut self, release: Release) -> Report {
        let settled = self.settle_pending(move |terms, pending| terms.approve(pending, release));
        let settled = settled.await.and_then(|settled| {
            settled.ok_or_else(|| {
                FetchError::NoCandidate("no module waits for approval".to_owned()).into()
            })
        });
        self.report(settled)
    }

    fn report(&self, settled: Result<Settled, Fault>) -> Report {
        let source = self.source.to_string();
        match settled {
            Ok((outcome, warnings)) => Report {
                warnings,
                ..Report::new(source, outcome)
            },
            Err(fault) => Report::of_fault(source, &fault),
        }
    }

    async fn settle_pending(
        &self,
        before: impl FnOnce(&Terms, &[u8]) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Option<Settled>, Fault> {
        let _lock = self.lock().await?;
        let (place, terms) = (self.place.clone(), self.terms.clone());
        blocking(move || {
            let Some(pending) = place.read_pending().map_err(at(&place.pending()))? else {
                return Ok(None);
            };
            before(&terms, &pending)?;
            let current = place.read().map_err(at(place.path()))?;
            let judged = terms.judge(&pending, current.as_deref())?;
            match judged.verdict {
                Verdict::NeedsApproval(_) => Ok(None),
                Verdict::Good(_) | Verdict::InPlace => settle(&place, &pending, judged).map(Some),
            }
        })
        .await
    }

    async fn lock(&self) -> Result<std::fs::File, Fault> {
        self.place.lock().await.map_err(at(self.place.path()))
    }

    async fn try_check(&mut self, notices: &mut Vec<Notice>) -> Result<Report, Fault> {
        let _lock = self.lock().await?;
        if let Err(fault) = self.take_note().await {
            let note = self.note.as_ref().map(Source::to_string);
            notices.push(Notice {
                code: "note",
                text: format!("{}: {fault}", note.unwrap_or_default()),
            });
        }
        if let Kind::Path(path) = &self.source.0
            && path.is_dir()
        {
            return self.check_folder(path.clone()).await;
        }
        self.check_file().await
    }

    async fn check_file(&self) -> Result<Report, Fault> {
        let (place, source) = (self.place.clone(), self.source.clone());
        let found = blocking(move || Found::read(&place, &source)).await?;
        let path = self.place.part();
        let part = Part::open(&path, self.source.fingerprint(), LIMIT).await;
        let mut part = part.map_err(at(&path))?;
        let fetched = fetch(&self.source, &self.network, found.known(), &mut part).await?;
        let (place, terms) = (self.place.clone(), self.terms.clone());
        let settled = blocking(move || found.settle(&place, &terms, fetched)).await;
        // The file was judged, whatever the verdict.
        part.discard().await.map_err(at(&path))?;
        let (outcome, warnings) = settled?;
        Ok(Report {
            warnings,
            ..Report::new(self.source.to_string(), outcome)
        })
    }

    async fn check_folder(&mut self, path: PathBuf) -> Result<Report, Fault> {
        let (place, terms) = (self.place.clone(), self.terms.clone());
        let mut folder = mem::take(&mut self.folder);
        let (folder, result) = blocking(move || {
            let result = check_folder(&mut folder, &path, &place, &terms);
            (folder, result)
        })
        .await;
        self.folder = folder;
        let (outcome, warnings, mut skipped) = result?;
        skipped.truncate(MOST_SKIPPED);
        Ok(Report {
            warnings,
            skipped,
            ..Report::new(self.source.to_string(), outcome)
        })
    }

    async fn take_note(&self) -> Result<(), Fault> {
        let Some(source) = &self.note else {
            return Ok(());
        };
        let bytes = fetch_small(source, &self.network, MAX_NOTE_BYTES).await?;
        let terms = self.terms.clone();
        blocking(move || {
            let state = terms.state.load()?;
            let note = Note::from_file(&bytes)?;
            let announced = note.verify(&terms.root, &state, now())?;
            terms.state.update(|state| state.announce(&announced))??;
            Ok(())
        })
        .await
    }
}

/// The files in place before a source is asked.
struct Found {
    current: Option<Vec<u8>>,
    pending: Option<Vec<u8>>,
    record: Record,
    /// The file that the record is about.
    last: Last,
}

#[derive(Clone, Copy, PartialEq)]
enum Last {
    Current,
    Pending,
    Neither,
}

impl Found {
    fn read(place: &Place, source: &Source) -> Result<Found, Fault> {
        let current = place.read().map_err(at(place.path()))?;
        let pending = place.read_pending().map_err(at(&place.pending()))?;
        let record = place.record().about(source);
        let is_last = |file: &Option<Vec<u8>>| {
            let digest = file.as_ref().map(|file| Digest::of(file).to_string());
            digest.as_ref() == Some(&record.file_sha256)
        };
        let last = match (is_last(&pending), is_last(&current)) {
            (true, _) => Last::Pending,
            (_, true) => Last::Current,
            _ => Last::Neither,
        };
        Ok(Found {
            current,
            pending,
            last,
            record,
        })
    }

    /// Returns the validators of the file that is still here.
    fn known(&self) -> &Validators {
        const NOTHING: &Validators = &Validators {
            tag: None,
            modified: None,
        };
        match self.last {
            Last::Neither => NOTHING,
            Last::Current | Last::Pending => &self.record.file,
        }
    }

    fn settle(self, place: &Place, terms: &Terms, fetched: Fetched) -> Result<Settled, Fault> {
        let current = self.current.as_deref();
        let nothing = || {
            let reason = "not modified, but nothing is stored here".to_owned();
            Fault::from(FetchError::WrongRange(reason))
        };
        let last = || match self.last {
            Last::Current => current,
            Last::Pending => self.pending.as_deref(),
            Last::Neither => None,
        };
        let (file, validators) = match &fetched {
            Fetched::File(file, validators) => (file.as_slice(), validators),
            Fetched::NotModified => (last().ok_or_else(nothing)?, &self.record.file),
        };
        let judged = terms.judge(file, current)?;
        let settled = settle(place, file, judged)?;
        let record = Record {
            file_sha256: Digest::of(file).to_string(),
            file: validators.clone(),
            ..self.record.clone()
        };
        if record != self.record {
            place.write_record(&record).map_err(at(place.path()))?;
        }
        Ok(settled)
    }
}

/// The outcome for a file, and its warnings.
type Settled = (Outcome, Vec<Notice>);

/// Puts a file in place or aside, by its verdict.
fn settle(place: &Place, file: &[u8], judged: Judged) -> Result<Settled, Fault> {
    let warnings = judged.warnings.iter().map(Notice::from).collect();
    let outcome = match (judged.verdict, judged.module) {
        (Verdict::InPlace, module) => Outcome::Unchanged { module },
        (Verdict::Good(previous), module) => {
            place.put(file).map_err(at(place.path()))?;
            Outcome::Updated { module, previous }
        }
        (Verdict::NeedsApproval(more), Some(module)) => {
            place.put_aside(file).map_err(at(&place.pending()))?;
            let file = place.pending();
            Outcome::Pending { module, more, file }
        }
        // A module without a seal requests nothing.
        (Verdict::NeedsApproval(_), None) => return Err(Refused::Unsealed.into()),
    };
    Ok((outcome, warnings))
}

type Checked = (Outcome, Vec<Notice>, Vec<Skipped>);

fn check_folder(
    folder: &mut Folder,
    path: &Path,
    place: &Place,
    terms: &Terms,
) -> Result<Checked, Fault> {
    let name = terms.policy.name.as_ref().ok_or_else(|| {
        FetchError::NoCandidate("is a folder; the name of the module is needed".to_owned())
    })?;
    let listing = folder.list(path, name)?;
    let mut skipped = listing.skipped;
    let current = place.read().map_err(at(place.path()))?;
    let in_place = current.as_deref().and_then(|it| terms.in_place(it));
    let in_place = in_place.filter(|manifest| manifest.name == *name);
    for (release, candidate) in listing.candidates {
        if in_place.as_ref().is_some_and(|it| release < it.release) {
            break;
        }
        let judged = read_file(&candidate, LIMIT)
            .map_err(Fault::from)
            .and_then(|file| Ok((terms.judge(&file, current.as_deref())?, file)));
        match judged {
            Ok((judged, file)) => {
                let (outcome, warnings) = settle(place, &file, judged)?;
                return Ok((outcome, warnings, skipped));
            }
            Err(Fault::Refused(refused)) => skipped.push(Skipped::new(candidate, &refused)),
            // The file is gone since it was listed.
            Err(Fault::Fetch(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    match &current {
        Some(current) => {
            let judged = terms.judge(current, Some(current))?;
            let (outcome, warnings) = settle(place, current, judged)?;
            Ok((outcome, warnings, skipped))
        }
        None => {
            let first = skipped
                .first()
                .map(|it| format!("; {}: {}", it.file.display(), it.reason));
            let reason = format!("has no usable {name}{}", first.unwrap_or_default());
            Err(FetchError::NoCandidate(reason).into())
        }
    }
}
