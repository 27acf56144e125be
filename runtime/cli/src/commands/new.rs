//! `watm new`: writes a folder with a whole transport, which builds, runs and passes `watm check`. Its
//! texts are in `starters/` and `wit/`.

use std::path::{Path, PathBuf};
use std::{env, fs, io, path};

use crate::failure::{Failure, Outcome};

/// The longest name of a module that describes itself, in bytes.
const LONGEST: usize = 64;

/// The crate whose folder shows that a folder is a checkout.
const OF_A_CHECKOUT: &str = "watm/stream/Cargo.toml";

/// The crates of a starter in Rust, by their folders in `watm/`.
const CRATES: [&str; 3] = ["core", "schema", "stream"];

/// Those that it has for WebAssembly alone.
const CRATES_OF_WASM: [&str; 1] = ["guest"];

/// The interface of components, for crates outside a checkout.
const WIT: [(&str, &str); 14] = [
    ("capture.wit", include_str!("../../wit/capture.wit")),
    ("crypto.wit", include_str!("../../wit/crypto.wit")),
    ("endpoint.wit", include_str!("../../wit/endpoint.wit")),
    ("flows.wit", include_str!("../../wit/flows.wit")),
    ("generations.wit", include_str!("../../wit/generations.wit")),
    ("log.wit", include_str!("../../wit/log.wit")),
    ("names.wit", include_str!("../../wit/names.wit")),
    ("optional.wit", include_str!("../../wit/optional.wit")),
    ("pacing.wit", include_str!("../../wit/pacing.wit")),
    ("packets.wit", include_str!("../../wit/packets.wit")),
    ("signing.wit", include_str!("../../wit/signing.wit")),
    ("sockets.wit", include_str!("../../wit/sockets.wit")),
    ("types.wit", include_str!("../../wit/types.wit")),
    ("world.wit", include_str!("../../wit/world.wit")),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the module, and of the folder that is made for it.
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Language and interface.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    language: Language,
    /// Checkout of WATM whose crates a starter in `rust` uses. By default the one that this folder
    /// lies in.
    #[arg(long, value_name = "FOLDER")]
    checkout: Option<PathBuf>,
}

/// A language, and the interface that the module has.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Language {
    /// A codec for streams, on the crates of a checkout.
    Rust,
    /// A component against the interface in wit/ alone, without a crate of WATM.
    RustWit,
    /// A module of WATER v1 in C, without a library.
    C,
}

/// A file of a starter: its path in the folder, and its text.
type File = (String, String);

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let name = &arguments.name;
    let (files, build) = match arguments.language {
        Language::Rust => rust(name, &checkout(arguments.checkout.as_deref())?)?,
        Language::RustWit => rust_wit(name),
        Language::C => c(name),
    };
    let readme = ("README.md".to_owned(), readme(name, &build));
    let folder = Path::new(name);
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::unusable(format!(
            "{name}: exists already; choose another name, or another folder"
        )),
        _ => Failure::unusable(format!("{name}: {error}")),
    })?;
    for (file, text) in files.into_iter().chain([readme]) {
        write(&folder.join(file), &text)?;
    }
    println!("wrote {name}; to build and check it:");
    println!("  cd {name}");
    for line in build.lines() {
        println!("  {line}");
    }
    println!("  watm check --unsealed {name}.wasm");
    Ok(Outcome::Well)
}

/// Returns a starter on the crates of this checkout, and the commands that build it.
fn rust(name: &str, checkout: &Path) -> Result<(Vec<File>, String), Failure> {
    let Some(folder) = checkout.to_str() else {
        return Err(Failure::unusable(format!(
            "--checkout: {}: must be UTF-8, because it goes into Cargo.toml",
            checkout.display()
        )));
    };
    let mut manifest = manifest(name);
    for (heading, crates) in [
        ("dependencies", &CRATES[..]),
        (
            "target.'cfg(target_family = \"wasm\")'.dependencies",
            &CRATES_OF_WASM,
        ),
    ] {
        manifest += &format!("\n[{heading}]\n");
        for each in crates {
            // TOML has JSON's notation of strings.
            let path = serde_json::Value::from(format!("{folder}/watm/{each}"));
            manifest += &format!("watm-{each} = {{ path = {path} }}\n");
        }
    }
    let source = include_str!("../../starters/codec.rs").replace("NAME", name);
    let build = format!(
        "cargo build --release --target wasm32-wasip1\n\
         cargo run --locked -q --manifest-path '{folder}/watm/Cargo.toml' -p watm-componentize -- \
         target/wasm32-wasip1/release/{}.wasm {name}.wasm\n",
        name.replace('-', "_")
    );
    let mut files = of_cargo(manifest, source);
    // The versions that the crates are tested with. Cargo drops the others, and adds the new crate.
    let lock = checkout.join("watm/Cargo.lock");
    let lock = fs::read_to_string(&lock)
        .map_err(|error| Failure::unusable(format!("{}: {error}", lock.display())))?;
    files.push(("Cargo.lock".to_owned(), lock));
    Ok((files, build))
}

/// Returns a starter against `wit/` alone, and the commands that build it.
fn rust_wit(name: &str) -> (Vec<File>, String) {
    let mut manifest = manifest(name);
    manifest.push_str(
        "\n[dependencies]\nwit-bindgen = { version = \"0.63\", default-features = false, \
         features = [\"macros\", \"realloc\"] }\n",
    );
    let source = include_str!("../../starters/wit.rs")
        .replace("\"../../wit\"", "\"wit\"")
        .replace("tcp-forward", name);
    let mut files = of_cargo(manifest, source);
    let lock = include_str!("../../starters/wit.lock").replace("\"tcp-forward\"", &quoted(name));
    files.push(("Cargo.lock".to_owned(), lock));
    for (file, text) in WIT {
        files.push((format!("wit/{file}"), text.to_owned()));
    }
    let build = format!(
        "cargo build --release --target wasm32-unknown-unknown\n\
         wasm-tools component new target/wasm32-unknown-unknown/release/{}.wasm -o {name}.wasm\n",
        name.replace('-', "_")
    );
    (files, build)
}

/// Returns a starter in C, and the command that builds it.
fn c(name: &str) -> (Vec<File>, String) {
    let source = include_str!("../../starters/water.c").replace("NAME", name);
    let build = format!(
        "clang --target=wasm32 -O2 -ffreestanding -nostdlib -Wl,--no-entry -Wl,-z,stack-size=16384 \
         -o {name}.wasm {name}.c\n"
    );
    let ignored = (".gitignore".to_owned(), "*.wasm\n".to_owned());
    (vec![(format!("{name}.c"), source), ignored], build)
}

/// Returns the begin of a manifest: all but the dependencies.
fn manifest(name: &str) -> String {
    format!(
        "[workspace]\n\n[package]\nname = {}\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
         [lib]\ncrate-type = [\"cdylib\"]\n\n\
         [profile.release]\nlto = true\npanic = \"abort\"\nstrip = \"symbols\"\n",
        quoted(name)
    )
}

fn of_cargo(manifest: String, source: String) -> Vec<File> {
    let ignored = "/target/\n*.wasm\n";
    [
        ("Cargo.toml", manifest),
        ("src/lib.rs", source),
        (".gitignore", ignored.to_owned()),
    ]
    .map(|(file, text)| (file.to_owned(), text))
    .into()
}

/// Returns a page that says how to build and to check the module.
fn readme(name: &str, build: &str) -> String {
    format!(
        "# {name}\n\nA transport module of WATM, to start from.\n\n```sh\n{build}\
         watm check --unsealed {name}.wasm\n\
         watm listen --unsealed {name}.wasm 127.0.0.1:4430 --forward 127.0.0.1:8000\n\
         watm dial --unsealed {name}.wasm 127.0.0.1:4430 --listen 127.0.0.1:4480\n```\n"
    )
}

/// Returns the folder of a checkout: this one, or that around the current folder.
fn checkout(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let is_one = |folder: &Path| folder.join(OF_A_CHECKOUT).is_file();
    match given {
        Some(folder) if is_one(folder) => path::absolute(folder).map_err(|error| {
            Failure::unusable(format!("--checkout: {}: {error}", folder.display()))
        }),
        Some(folder) => Err(Failure::unusable(format!(
            "--checkout: {}: is not a checkout of WATM, which has {OF_A_CHECKOUT}",
            folder.display()
        ))),
        None => {
            let here = env::current_dir().map_err(Failure::unusable)?;
            let around = here.ancestors().find(|folder| is_one(folder));
            around.map(Path::to_owned).ok_or_else(|| {
                Failure::unusable(
                    "a starter in rust uses the crates of a checkout of WATM, and this folder lies in \
                     none; name one with --checkout, or use --language rust-wit",
                )
            })
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::unusable(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}

/// Parses the name of a module, which is also that of a crate.
fn name(text: &str) -> Result<String, String> {
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
    let allowed = |each: char| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '-';
    match begins && text.chars().all(allowed) && text.len() <= LONGEST {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "must begin with a lower-case letter, and have lower-case letters, digits and hyphens, at most {LONGEST}"
        )),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_interface_is_written() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wit");
        let mut there: Vec<_> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        there.sort();
        assert!(there.iter().eq(WIT.iter().map(|(file, _)| file)));
    }

    #[test]
    fn a_name_is_that_of_a_crate() {
        for good in ["a", "own-2", "x1"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "2x", "-a", "A", "a_b", "../a", "é", &"a".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_starter_is_short_and_has_its_name() {
        let around = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        let checkout = checkout(around).expect("a checkout");
        let (files, _) = rust("own", &checkout).expect("UTF-8");
        let source = files.iter().find(|(file, _)| file == "src/lib.rs");
        let source = &source.expect("a source").1;
        assert!(source.lines().count() <= 80);
        let all = [files, rust_wit("own").0, c("own").0].concat();
        for (file, text) in all {
            assert!(!text.contains("NAME") && !text.contains("../../"), "{file}");
        }
    }
}
