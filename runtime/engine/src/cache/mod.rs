//! The cache of compiled modules on disk. `Engine` loads modules through it.
//!
//! Compiled code is loaded without checks (`deserialize` is unsafe for that reason): whoever can
//! write an entry can run code in this process. The directory must therefore belong to the user and
//! be closed to others. Each entry carries an HMAC under a key that is in the directory too,
//! readable only by the user. The directory keeps other users out; the HMAC catches other faults: a
//! disk error, a torn write, an entry copied from another machine or restored from another user's
//! backup.
//!
//! The entries take no more than `MOST_BYTES`; `room` removes those that were not used for the
//! longest time.

mod room;

use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use etcetera::base_strategy::{BaseStrategy, choose_base_strategy};
use ring::{digest, hmac, rand};
use wasmtime::Module;
use wasmtime::component::Component;

use crate::Error;
use watm_seal::private;
use watm_types::hex;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;

/// The most bytes of all entries together: some hundred modules, whose code takes a few megabytes
/// each.
const MOST_BYTES: u64 = 512 << 20;

/// The compiled form of a module.
pub trait Compiled: Sized {
    /// The kind of module, in errors.
    const KIND: &'static str;

    /// Returns its code, for any engine of the same compatibility.
    fn compile(engine: &wasmtime::Engine, bytes: &[u8]) -> wasmtime::Result<Vec<u8>>;

    /// # Safety
    ///
    /// `code` must be the result of `compile`, unchanged.
    unsafe fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Self>;
}

impl Compiled for Component {
    const KIND: &'static str = "component";

    fn compile(engine: &wasmtime::Engine, bytes: &[u8]) -> wasmtime::Result<Vec<u8>> {
        engine.precompile_component(bytes)
    }

    unsafe fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
        // SAFETY: the caller promises the same.
        unsafe { Component::deserialize(engine, code) }
    }
}

impl Compiled for Module {
    const KIND: &'static str = "module";

    fn compile(engine: &wasmtime::Engine, bytes: &[u8]) -> wasmtime::Result<Vec<u8>> {
        engine.precompile_module(bytes)
    }

    unsafe fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Module> {
        // SAFETY: the caller promises the same.
        unsafe { Module::deserialize(engine, code) }
    }
}

pub struct Cache {
    directory: PathBuf,
    key: hmac::Key,
    /// The digest of the engine's version, options and machine.
    compatibility: [u8; 32],
}

impl Cache {
    pub fn default_path() -> Option<PathBuf> {
        choose_base_strategy()
            .ok()
            .map(|strategy| strategy.cache_dir().join("watm"))
    }

    pub fn open(directory: PathBuf, engine: &wasmtime::Engine) -> Result<Cache, Error> {
        let file_error = |source| Error::File {
            path: directory.clone(),
            source,
        };
        private::create_directory(&directory).map_err(file_error)?;
        private::check_own(&directory).map_err(file_error)?;
        let key = load_or_make_key(&directory).map_err(file_error)?;
        Ok(Cache {
            key,
            compatibility: compatibility(engine),
            directory,
        })
    }

    /// Returns the compiled form of the module with this SHA-256, if it is in the cache and intact.
    pub fn get<C: Compiled>(&self, engine: &wasmtime::Engine, sha256: &[u8]) -> Option<C> {
        let path = self.path(sha256);
        let bytes = fs::read(&path).ok()?;
        let (tag, code) = bytes.split_at_checked(TAG_BYTES)?;
        if hmac::verify(&self.key, &self.signed(sha256, code), tag).is_err() {
            tracing::warn!(
                target: "watm::engine",
                "{}: not written by this user's cache or damaged; compiling again",
                path.display()
            );
            return None;
        }
        // SAFETY: the HMAC proves that `put` below wrote these bytes for this module, and they are
        // the result of `compile` for an engine of the same compatibility.
        match unsafe { C::deserialize(engine, code) } {
            Ok(compiled) => {
                room::touch(&path);
                Some(compiled)
            }
            Err(error) => {
                tracing::warn!(target: "watm::engine", "{}: {error:#}; compiling again", path.display());
                None
            }
        }
    }

    /// Stores the code of a module. A failure only costs the next start a compilation.
    pub fn put(&self, sha256: &[u8], code: &[u8]) {
        let path = self.path(sha256);
        if let Err(error) = self.write(&path, sha256, code) {
            tracing::warn!(target: "watm::engine", "{}: not cached: {error}", path.display());
        }
    }

    fn write(&self, path: &Path, sha256: &[u8], code: &[u8]) -> io::Result<()> {
        let tag = hmac::sign(&self.key, &self.signed(sha256, code));
        let mut bytes = Vec::with_capacity(TAG_BYTES + code.len());
        bytes.extend_from_slice(tag.as_ref());
        bytes.extend_from_slice(code);
        if !room::free(&self.directory, bytes.len() as u64, MOST_BYTES)? {
            let reason = format!("its code has {} bytes, more than the cache", code.len());
            return Err(io::Error::other(reason));
        }
        write_atomically(path, &bytes)
    }

    fn path(&self, sha256: &[u8]) -> PathBuf {
        // All entries are in one directory, where 128 bits of each digest suffice to distinguish
        // them.
        self.directory.join(format!(
            "{}-{}.bin",
            hex::encode(&sha256[..16]),
            hex::encode(&self.compatibility[..8])
        ))
    }

    /// Returns the content that the tag covers: the digests of the code and of its source.
    fn signed(&self, sha256: &[u8], code: &[u8]) -> Vec<u8> {
        let mut signed = Vec::with_capacity(96);
        signed.extend_from_slice(sha256);
        signed.extend_from_slice(&self.compatibility);
        signed.extend_from_slice(digest::digest(&digest::SHA256, code).as_ref());
        signed
    }
}

fn compatibility(engine: &wasmtime::Engine) -> [u8; 32] {
    struct Sha256(digest::Context);
    impl Hasher for Sha256 {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Sha256(digest::Context::new(&digest::SHA256));
    engine.precompile_compatibility_hash().hash(&mut hasher);
    let mut out = [0; 32];
    out.copy_from_slice(hasher.0.finish().as_ref());
    out
}

fn load_or_make_key(directory: &Path) -> io::Result<hmac::Key> {
    let path = directory.join(KEY_FILE);
    let usable =
        |bytes: &[u8]| (bytes.len() == KEY_BYTES).then(|| hmac::Key::new(hmac::HMAC_SHA256, bytes));
    if private::check_own(&path).is_ok()
        && let Some(key) = usable(&fs::read(&path)?)
    {
        return Ok(key);
    }
    let random = rand::SystemRandom::new();
    let bytes: [u8; KEY_BYTES] = rand::generate(&random)
        .map_err(|_| io::Error::other("the system's random number generator failed"))?
        .expose();
    write_atomically(&path, &bytes)?;
    // Another process may have won a race; both use its file.
    usable(&fs::read(&path)?).ok_or_else(|| io::Error::other("the key file is damaged"))
}

/// Writes a file that only the user can read, either whole or not at all.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = private::create_file(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // An error is ignored: nothing more can be done about the file.
        let _ = fs::remove_file(&temporary);
    }
    written
}
