//! Sealed files: taking them apart, sealing a module, and adding signatures. `verify` and the
//! commands that seal use it.

use crate::bytes::{Reader, Writer, check_count, malformed};
use crate::key::{Domain, PrivateKey, Signatures, Unchecked};
use crate::wasm::{self, HEADER};
use crate::{Digest, Manifest, PublicKey, Refused, SignedRoot};

/// The largest file that is parsed, in bytes: the limit of the runtime.
pub const MAX_FILE_BYTES: usize = 64 << 20;
/// The largest seal, in bytes. A seal by three keys with one rotation of the root has about 1 KiB.
pub const MAX_SEAL_BYTES: usize = 16 << 10;
/// The most rotations of the root in one file.
const MAX_CHAIN: usize = 32;
/// The version of the seal's encoding.
const FORMAT: u8 = 1;

/// A file taken apart, of which nothing is proven yet: see [`verify`](crate::verify).
#[derive(Debug, Clone)]
pub struct Sealed<'a> {
    file: &'a [u8],
    header: &'a [u8],
    rest: &'a [u8],
    chain: Vec<SignedRoot>,
    manifest: Manifest,
    encoded: &'a [u8],
    signatures: Unchecked,
}

impl<'a> Sealed<'a> {
    /// Parses a file. Fails if it has no seal in its place, is larger than [`MAX_FILE_BYTES`], or
    /// has a seal that this version would not write.
    pub fn parse(file: &'a [u8]) -> Result<Sealed<'a>, Refused> {
        if file.len() > MAX_FILE_BYTES {
            return Err(Refused::TooLarge {
                bytes: file.len(),
                limit: MAX_FILE_BYTES,
            });
        }
        let (header, sections) = file.split_at_checked(HEADER).ok_or(Refused::NotWasm)?;
        let Some((seal, rest)) = wasm::split_seal(sections)? else {
            wasm::check_unsealed(header, sections)?;
            return Err(Refused::Unsealed);
        };
        if seal.len() > MAX_SEAL_BYTES {
            return Err(Refused::TooLarge {
                bytes: seal.len(),
                limit: MAX_SEAL_BYTES,
            });
        }
        let mut reader = Reader::new(seal);
        match reader.u8("seal format")? {
            FORMAT => {}
            other => {
                let reason = format!("{other}; this host knows {FORMAT}");
                return Err(malformed("seal format", reason));
            }
        }
        let chain = read_chain(reader.record("root chain")?)?;
        let encoded = reader.record("manifest")?;
        let manifest = Manifest::parse(encoded)?;
        let signatures = Unchecked::read(&mut reader)?;
        reader.end("seal")?;
        Ok(Sealed {
            file,
            header,
            rest,
            chain,
            manifest,
            encoded,
            signatures,
        })
    }

    /// Returns the whole file, which a runtime loads.
    pub fn file(&self) -> &'a [u8] {
        self.file
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the newer versions of the root in the file, in ascending order.
    pub fn chain(&self) -> &[SignedRoot] {
        &self.chain
    }

    /// Returns the keys that have signed, after checking each signature. The first bad signature is
    /// the error. Does not check whether these keys may sign anything.
    pub fn signers(&self) -> Result<Vec<PublicKey>, Refused> {
        Ok(self.signatures()?.keys().collect())
    }

    /// Returns the module as it was before sealing.
    pub fn body(&self) -> Vec<u8> {
        [self.header, self.rest].concat()
    }

    /// Checks that the body matches the length and the hash in the manifest.
    pub fn check_body(&self) -> Result<(), Refused> {
        let length = self.header.len() + self.rest.len();
        let hash = Digest::of_parts(&[self.header, self.rest]);
        if length as u64 != self.manifest.body_length || hash != self.manifest.body_sha256 {
            return Err(Refused::BadHash {
                name: self.manifest.name.clone(),
                expected: (self.manifest.body_length, self.manifest.body_sha256),
                found: (length as u64, hash),
            });
        }
        wasm::check_unsealed(self.header, self.rest)
    }

    pub(crate) fn signatures(&self) -> Result<Signatures, Refused> {
        self.signatures.check(Domain::Seal, self.encoded)
    }
}

/// Seals a module: inserts the manifest with these signatures, and the newer versions of the root
/// in `chain`, before the body.
///
/// Sets the body's length and hash in the manifest. Fails if the body is not WebAssembly or has a
/// seal already ([`Sealed::body`] removes it), or if a field of the manifest is out of its bounds.
pub fn seal(
    body: &[u8],
    mut manifest: Manifest,
    chain: &[SignedRoot],
    signers: &[PrivateKey],
) -> Result<Vec<u8>, Refused> {
    let (header, rest) = body.split_at_checked(HEADER).ok_or(Refused::NotWasm)?;
    wasm::check_unsealed(header, rest)?;
    manifest.body_length = body.len() as u64;
    manifest.body_sha256 = Digest::of(body);
    let encoded = manifest.encode()?;
    let signatures = signers
        .iter()
        .try_fold(Signatures::default(), |signatures, key| {
            signatures.with(key.sign(Domain::Seal, &encoded))
        })?;
    assemble(header, rest, chain, &encoded, &signatures)
}

/// Returns the file with one more signature, or unchanged if this key has signed it already. People
/// on different machines can sign one file in turn.
///
/// Fails if the body differs from the manifest's description or a signature in the file is bad:
/// such a file must not be signed.
pub fn add_signature(file: &[u8], key: &PrivateKey) -> Result<Vec<u8>, Refused> {
    let sealed = Sealed::parse(file)?;
    sealed.check_body()?;
    let signature = key.sign(Domain::Seal, sealed.encoded);
    let signatures = sealed.signatures()?.with(signature)?;
    assemble(
        sealed.header,
        sealed.rest,
        &sealed.chain,
        sealed.encoded,
        &signatures,
    )
}

fn assemble(
    header: &[u8],
    rest: &[u8],
    chain: &[SignedRoot],
    manifest: &[u8],
    signatures: &Signatures,
) -> Result<Vec<u8>, Refused> {
    let chain = write_chain(chain)?;
    let mut writer = Writer::default();
    writer.u8(FORMAT).record(&chain).record(manifest);
    signatures.write(&mut writer);
    let seal = writer.finish();
    if seal.len() > MAX_SEAL_BYTES {
        return Err(Refused::TooLarge {
            bytes: seal.len(),
            limit: MAX_SEAL_BYTES,
        });
    }
    let file = [header, &wasm::frame_seal(&seal), rest].concat();
    match file.len() <= MAX_FILE_BYTES {
        true => Ok(file),
        false => Err(Refused::TooLarge {
            bytes: file.len(),
            limit: MAX_FILE_BYTES,
        }),
    }
}

/// Reads a count and as many records. Each must be one version above the one before, and signed by
/// enough of its own keys.
fn read_chain(bytes: &[u8]) -> Result<Vec<SignedRoot>, Refused> {
    let mut reader = Reader::new(bytes);
    let count = usize::from(reader.u8("root chain")?);
    check_count("root chain", count, MAX_CHAIN)?;
    let mut chain = Vec::with_capacity(count);
    for _ in 0..count {
        chain.push(SignedRoot::read(&mut reader)?);
    }
    reader.end("root chain")?;
    check_chain(&chain)?;
    Ok(chain)
}

fn write_chain(chain: &[SignedRoot]) -> Result<Vec<u8>, Refused> {
    check_chain(chain)?;
    let mut writer = Writer::default();
    writer.count(chain.len());
    for signed in chain {
        signed.write(&mut writer);
    }
    let bytes = writer.finish();
    match bytes.len() <= MAX_SEAL_BYTES {
        true => Ok(bytes),
        false => Err(Refused::TooLarge {
            bytes: bytes.len(),
            limit: MAX_SEAL_BYTES,
        }),
    }
}

fn check_chain(chain: &[SignedRoot]) -> Result<(), Refused> {
    check_count("root chain", chain.len(), MAX_CHAIN)?;
    let mut last: Option<&SignedRoot> = None;
    for signed in chain {
        signed.check_own()?;
        let version = signed.record().version;
        if let Some(last) = last
            && (last.record().version.checked_add(1) != Some(version) || last.id() != signed.id())
        {
            return Err(Refused::Rotation {
                version,
                reason: format!(
                    "follows version {} in the chain; versions must be consecutive and of one root",
                    last.record().version
                ),
            });
        }
        last = Some(signed);
    }
    Ok(())
}
