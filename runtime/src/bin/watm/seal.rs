use std::path::PathBuf;

use watm_seal::{PrivateKey, Sealed, SignedRoot, add_signature, seal};

use crate::Outcome;
use crate::failure::Failure;
use crate::options::read;
use crate::sealing::{KeyOptions, ManifestText, invalid, now, parse_json, read_root, write_output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A .wasm file. One that is sealed gets another signature, or with --manifest another seal.
    module: PathBuf,
    /// Where the sealed module goes.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// What to say about the module, in JSON.
    #[arg(long, value_name = "FILE", requires = "root")]
    manifest: Option<PathBuf>,
    /// Any version of the root that it is sealed under.
    #[arg(long, value_name = "ROOT", requires = "manifest")]
    root: Option<PathBuf>,
    /// A newer version of the root, for hosts that do not know it yet; may be given several times,
    /// in ascending order.
    #[arg(long = "rotation", value_name = "ROOT", requires = "manifest")]
    rotations: Vec<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let path = &arguments.module;
    let bytes = read(path)?;
    let file = match (&arguments.manifest, &arguments.root) {
        (Some(manifest), Some(root)) => {
            let text: ManifestText = parse_json(manifest)?;
            let root = read_root(root)?.id();
            let body = match Sealed::parse(&bytes) {
                Ok(sealed) => sealed.body(),
                // It has none, or what it has is refused below.
                Err(_) => bytes,
            };
            let info = watm_runtime::inspect(&body).map_err(|error| invalid(path, error))?;
            let manifest = text
                .parse(root, &info, now())
                .and_then(|manifest| manifest.check().map(|()| manifest))
                .map_err(|error| invalid(manifest, error))?;
            let rotations = arguments
                .rotations
                .iter()
                .map(|path| read_root(path))
                .collect::<Result<Vec<SignedRoot>, Failure>>()?;
            seal(&body, manifest, &rotations, &arguments.keys.open()?)
        }
        _ => sign(bytes, &arguments.keys.open()?),
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

/// One that is sealed already.
fn sign(file: Vec<u8>, keys: &[PrivateKey]) -> Result<Vec<u8>, watm_seal::Refused> {
    Sealed::parse(&file)?;
    keys.iter()
        .try_fold(file, |file, key| add_signature(&file, key))
}
