//! `watm seal`: seals modules, and adds signatures.

use std::path::{Path, PathBuf};

use watm_seal::{Name, Purpose, Refused, Sealed, SignedRoot, add_signature, seal};
use watm_sealing::{ManifestText, now, parse_json, read_root, write_output};

use crate::failure::{Failure, Outcome};
use crate::inputs::read;
use crate::sealing::{DelegatedKeyOptions, invalid};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A .wasm file. A sealed one gets another signature, or with --manifest a new seal.
    module: PathBuf,
    /// Output file.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Manifest of the module, in JSON.
    #[arg(long, value_name = "FILE", requires = "root")]
    manifest: Option<PathBuf>,
    /// Root to seal under, in the version that lets the keys sign, unless a rotation does.
    #[arg(long, value_name = "ROOT")]
    root: Option<PathBuf>,
    /// A newer version of the root, for hosts that do not know it yet; may be given several times,
    /// in ascending order.
    #[arg(long = "rotation", value_name = "ROOT", requires = "manifest")]
    rotations: Vec<PathBuf>,
    #[command(flatten)]
    keys: DelegatedKeyOptions,
}

/// A version of a root, and its file.
type Version<'a> = (&'a Path, SignedRoot);

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let path = &arguments.module;
    let bytes = read(path)?;
    let root = match &arguments.root {
        Some(path) => Some((path.as_path(), read_root(path)?)),
        None => None,
    };
    let file = match (&arguments.manifest, root) {
        (Some(manifest), Some(root)) => arguments.seal(&bytes, manifest, root)?,
        (_, root) => arguments.sign(bytes, root)?,
    };
    let file = file.map_err(|error| invalid(path, error))?;
    write_output(&arguments.output, &file)?;
    let sealed = Sealed::parse(&file).map_err(|error| invalid(&arguments.output, error))?;
    let manifest = sealed.manifest();
    println!("sealed    {} {}", manifest.name, manifest.release);
    for key in sealed.signers().map_err(Failure::failed)? {
        println!("signed by {key}");
    }
    println!("sha256    {}", watm_seal::Digest::of(&file));
    Ok(Outcome::Well)
}

impl Arguments {
    /// Seals a module anew.
    fn seal(
        &self,
        bytes: &[u8],
        manifest: &Path,
        root: Version<'_>,
    ) -> Result<Result<Vec<u8>, Refused>, Failure> {
        let text: ManifestText = parse_json(manifest)?;
        let body = match Sealed::parse(bytes) {
            Ok(sealed) => sealed.body(),
            // The module has no seal, or `inspect` refuses it below.
            Err(_) => bytes.to_vec(),
        };
        let info = watm_runtime::inspect(&body).map_err(|error| invalid(&self.module, error))?;
        let manifest = text
            .parse(root.1.id(), &info, now())
            .map_err(|error| invalid(manifest, error))?;
        let rotations = self
            .rotations
            .iter()
            .map(|path| read_root(path))
            .collect::<Result<Vec<SignedRoot>, _>>()?;
        let newer = self.rotations.last().zip(rotations.last());
        let newest = match newer {
            Some((path, newer)) => (path.as_path(), newer.record()),
            None => (root.0, root.1.record()),
        };
        let keys = self
            .keys
            .open(Some(newest), Purpose::Seal, &manifest.name)?;
        Ok(seal(&body, manifest, &rotations, &keys))
    }

    /// Adds signatures to a sealed module.
    fn sign(
        &self,
        file: Vec<u8>,
        root: Option<Version<'_>>,
    ) -> Result<Result<Vec<u8>, Refused>, Failure> {
        let sealed = Sealed::parse(&file).map_err(|error| invalid(&self.module, error))?;
        let name: &Name = &sealed.manifest().name;
        if let Some((path, root)) = &root
            && root.id() != sealed.manifest().root
        {
            let reason = format!("is not the root of {name}, {}", sealed.manifest().root);
            return Err(invalid(path, reason));
        }
        // Roots in the module are versions of its root as well.
        let carried = sealed.chain().iter();
        let carried = carried.map(|root| (self.module.as_path(), root.record()));
        let given = root.iter().map(|(path, root)| (*path, root.record()));
        let newest = carried.chain(given).max_by_key(|(_, root)| root.version);
        let keys = self.keys.open(newest, Purpose::Seal, name)?;
        Ok(keys
            .iter()
            .try_fold(file.clone(), |file, key| add_signature(&file, key)))
    }
}
