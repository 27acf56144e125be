//! Attack 22: power cuts at every moment of writing the state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use watm_seal::state::{Files, StateError, StateFile};
use watm_seal::{Manifest, State, verify};

use crate::support::*;

/// A disk as unreliable as real ones: data that has not been flushed is there or not.
#[derive(Clone, Default)]
struct Disk {
    /// The content of each file, and its length that is certain to be on the disk.
    files: Vec<(Vec<u8>, usize)>,
    /// The folder as programs see it.
    folder: BTreeMap<PathBuf, usize>,
    /// The folder as it was flushed, and the changes since.
    flushed: BTreeMap<PathBuf, usize>,
    pending: Vec<(PathBuf, Option<usize>)>,
    /// The number of steps before the power cut.
    left: usize,
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(io::Error::other("no power")),
        }
    }

    fn link(&mut self, path: &Path, file: Option<usize>) {
        match file {
            Some(file) => drop(self.folder.insert(path.to_owned(), file)),
            None => drop(self.folder.remove(path)),
        }
        self.pending.push((path.to_owned(), file));
    }

    /// Returns every disk that may be found once the power is back.
    fn after_the_cut(&self) -> Vec<Disk> {
        let mut found = Vec::new();
        for done in 0..=self.pending.len() {
            let mut folder = self.flushed.clone();
            for (path, file) in &self.pending[..done] {
                match file {
                    Some(file) => drop(folder.insert(path.clone(), *file)),
                    None => drop(folder.remove(path)),
                }
            }
            // Of the data that was not flushed: nothing, half, all, and all as zeros.
            for kept in 0..4 {
                let files = self.files.iter().map(|(bytes, sure)| {
                    let mut bytes = bytes.clone();
                    match kept {
                        0 => bytes.truncate(*sure),
                        1 => bytes.truncate((*sure + bytes.len()) / 2),
                        2 => {}
                        _ => bytes[*sure..].fill(0),
                    }
                    let sure = bytes.len();
                    (bytes, sure)
                });
                found.push(Disk {
                    files: files.collect(),
                    folder: folder.clone(),
                    flushed: folder.clone(),
                    pending: Vec::new(),
                    left: usize::MAX,
                });
            }
        }
        found
    }
}

struct Shared(RefCell<Disk>);

impl Files for &Shared {
    type Lock = ();

    fn lock(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let disk = self.0.borrow();
        let bytes = disk
            .folder
            .get(path)
            .map(|file| disk.files[*file].0.clone());
        assert!(bytes.as_ref().is_none_or(|bytes| bytes.len() <= limit));
        Ok(bytes)
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.step()?;
        if disk.folder.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = disk.files.len();
        disk.files.push((Vec::new(), 0));
        disk.link(path, Some(file));
        // Written in pieces.
        for piece in bytes.chunks(bytes.len().div_ceil(4)) {
            disk.step()?;
            disk.files[file].0.extend_from_slice(piece);
        }
        disk.step()?;
        disk.files[file].1 = bytes.len();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.step()?;
        disk.link(path, None);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.step()?;
        let file = disk.folder.get(from).copied();
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        // At once, as the system guarantees.
        disk.folder.remove(from);
        disk.folder.insert(to.to_owned(), file);
        disk.pending.push((to.to_owned(), Some(file)));
        disk.pending.push((from.to_owned(), None));
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.step()?;
        disk.flushed = disk.folder.clone();
        disk.pending.clear();
        Ok(())
    }
}

const PATH: &str = "folder/state";

fn load(disk: &Disk) -> Result<State, StateError> {
    let shared = Shared(RefCell::new(disk.clone()));
    StateFile::with_files(&shared, PATH).load()
}

/// Writes this state, with power for this many steps.
fn write(disk: &Disk, state: &State, steps: usize) -> (Disk, bool) {
    let shared = Shared(RefCell::new(Disk {
        left: steps,
        ..disk.clone()
    }));
    let file = StateFile::with_files(&shared, PATH);
    let written = file.update(|known| *known = state.clone()).is_ok();
    (shared.0.into_inner(), written)
}

fn state_of(text: &str, before: &State) -> State {
    let file = sealed(Manifest {
        release: release(text),
        floors: [(name("a/other"), release("1.2"))].into(),
        ..manifest()
    });
    accepted(before, &file)
}

#[test]
fn a_power_cut_leaves_the_old_state_or_the_new_one() {
    let states = {
        let none = State::default();
        let first = state_of("1.5", &none);
        let second = state_of("1.6", &first);
        [none, first, second]
    };
    let mut disks = vec![Disk::default()];
    let mut cuts = 0;
    for pair in states.windows(2) {
        let (old, new) = (&pair[0], &pair[1]);
        let mut after = Vec::new();
        for disk in &disks {
            for steps in 0.. {
                let (cut, written) = write(disk, new, steps);
                for found in cut.after_the_cut() {
                    cuts += 1;
                    let state = load(&found).expect("there is always one");
                    assert!(state == *new || (state == *old && !written));
                    // Leftover files do not disturb the next write.
                    let (again, written) = write(&found, new, usize::MAX);
                    assert!(written);
                    assert_eq!(load(&again).expect("written"), *new);
                    if state == *new && after.len() < 50 {
                        after.push(found);
                    }
                }
                if written {
                    break;
                }
                assert!(steps < 100, "it ends");
            }
        }
        disks = after;
    }
    assert!(cuts > 500, "{cuts}");
}

#[test]
fn the_disk_of_the_test_loses_what_is_not_flushed() {
    // Written in place, the state would be lost.
    let shared = Shared(RefCell::new(Disk {
        left: 3,
        ..Disk::default()
    }));
    let path = Path::new(PATH);
    assert!((&&shared).create(path, &[7; 100]).is_err());
    let found = shared.0.into_inner().after_the_cut();
    assert!(found.iter().any(|disk| disk.folder.is_empty()));
    assert!(found.iter().any(|disk| load(disk).is_err()));
}

#[test]
fn every_damage_of_a_state_is_noticed() {
    let state = state_of("1.5", &State::default());
    let (disk, _) = write(&Disk::default(), &state, usize::MAX);
    let at = disk.folder[Path::new(PATH)];
    let bytes = disk.files[at].0.clone();
    let read = |bytes: Vec<u8>| {
        let mut disk = disk.clone();
        disk.files[at].0 = bytes;
        load(&disk)
    };
    assert_eq!(read(bytes.clone()).expect("as written"), state);
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).is_err());
        let mut changed = bytes.clone();
        changed[len] ^= 1 << (len % 8);
        let error = read(changed).expect_err("damaged");
        assert!(matches!(error, StateError::Damaged { .. }));
    }
}

#[test]
fn a_state_on_the_real_disk_is_its_owners_and_complete() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("state");
    // An error means that it does not exist.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("made");
    let file = StateFile::new(folder.join("state"));
    assert_eq!(file.load().expect("nothing yet"), State::default());
    let sealed = sealed(manifest());
    let verified = verify(&sealed, &root(), &State::default(), &approving(), NOW);
    let verified = verified.expect("good");
    file.update(|state| state.accept(&verified))
        .expect("written");
    let state = StateFile::new(file.path()).load().expect("written");
    assert_eq!(state, accepted(&State::default(), &sealed));
    assert_eq!(state.root().expect("known"), &root());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(file.path()).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }
    // Many at a time, each with a name of its own.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let file = StateFile::new(file.path());
            scope.spawn(move || {
                let note = watm_seal::Announcement {
                    root: root().id(),
                    name: name(&format!("a/{number}")),
                    release: release("1.1"),
                    time: NOW,
                };
                let outcome = file.update(|state| state.announce(&note));
                assert!(outcome.expect("written").expect("room"));
            });
        }
    });
    assert_eq!(file.load().expect("written").names().count(), 9);
    let left: Vec<_> = std::fs::read_dir(&folder).expect("there").collect();
    assert_eq!(left.len(), 2, "the state and its lock");
}
