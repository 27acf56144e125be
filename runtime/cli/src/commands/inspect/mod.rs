//! `watm inspect`: shows the kind, requests, grants and usage of a module without running it.

mod grants;
mod requests;

use std::path::PathBuf;

use serde_derive::Serialize;
use watm_runtime::{About, Error, ModuleInfo};
use watm_seal::Sealed;

use crate::failure::{Failure, Outcome};
use crate::inputs::read;
use crate::loading::LoadingOptions;
use crate::words::plain;

use grants::Grants;
use requests::{Request, initial_memory, requests};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A .wasm file.
    module: PathBuf,
    #[command(flatten)]
    loading: LoadingOptions,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    kind: String,
    /// The interface that it is built for.
    abi: Option<&'a str>,
    /// Its description of itself.
    about: Option<&'a About>,
    /// Its roles.
    roles: Vec<String>,
    /// True if a single instance must serve.
    alone: bool,
    /// The requests that its imports imply.
    requests: Vec<Request>,
    /// The initial size of its memory, in bytes.
    memory: u64,
    imports: &'a [String],
    exports: &'a [String],
    size: usize,
    sha256: &'a str,
    /// The name and release in its seal, verified or not.
    sealed: Option<String>,
    #[serde(flatten)]
    grants: Grants,
    /// The reasons why it does not run on this host.
    problems: &'a [String],
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let bytes = read(&arguments.module)?;
    let info = watm_runtime::inspect(&bytes).map_err(|error| match error {
        Error::Module { reason, .. } => Error::Module {
            module: arguments.module.display().to_string(),
            reason,
        },
        other => other,
    })?;
    let shown = Shown {
        kind: info.kind.to_string(),
        abi: abi(&info),
        about: info.about.as_ref(),
        roles: info.roles.iter().map(ToString::to_string).collect(),
        alone: info.alone,
        requests: requests(&info),
        memory: initial_memory(&bytes),
        imports: &info.imports,
        exports: &info.exports,
        size: info.size,
        sha256: &info.sha256,
        sealed: claim(&bytes),
        grants: Grants::of(&arguments.module, &bytes, &arguments.loading)?,
        problems: &info.problems,
    };
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&shown).map_err(Failure::failed)?
        );
    } else {
        print_plain(&shown);
    }
    Ok(match info.problems.is_empty() {
        true => Outcome::Well,
        false => Outcome::Otherwise,
    })
}

fn claim(bytes: &[u8]) -> Option<String> {
    let sealed = Sealed::parse(bytes).ok()?;
    let manifest = sealed.manifest();
    Some(format!("{} {}", manifest.name, manifest.release))
}

fn abi(info: &ModuleInfo) -> Option<&str> {
    use watm_runtime::ModuleKind::{WaterV0, WaterV1, WaterV1Final, WaterV1Preview};
    match info.kind {
        WaterV0 => Some("v0"),
        WaterV1 => Some("v1"),
        WaterV1Final => Some("v1-final"),
        WaterV1Preview => Some("v1_preview"),
        _ => info.world.as_deref(),
    }
}

fn print_plain(shown: &Shown<'_>) {
    println!("kind      {}", shown.kind);
    if let Some(abi) = shown.abi {
        println!("abi       {}", plain(abi));
    }
    if let Some(about) = shown.about {
        print_about(about);
    }
    if !shown.roles.is_empty() {
        println!("roles     {}", shown.roles.join(", "));
    }
    if shown.alone {
        println!("alone     must run as one instance: instances do not share its state");
    }
    for request in &shown.requests {
        println!("asks      {}", request.words());
    }
    shown.grants.print();
    println!("memory    {} KiB to start with", shown.memory >> 10);
    for import in shown.imports {
        println!("imports   {}", plain(import));
    }
    for export in shown.exports {
        println!("exports   {}", plain(export));
    }
    println!("size      {} bytes", shown.size);
    println!("sha256    {}", shown.sha256);
    if let Some(sealed) = &shown.sealed {
        println!("sealed    as {sealed}; `watm verify` checks it");
    }
    match shown.problems {
        [] => println!("runs      yes"),
        problems => problems
            .iter()
            .for_each(|problem| println!("runs      no: {problem}")),
    }
}

/// Prints the claims of a module about itself.
fn print_about(about: &About) {
    println!(
        "about     {}: {}",
        plain(&about.title),
        plain(&about.summary)
    );
    let mut does = Vec::new();
    if about.accepts {
        let at = about.port.map(|port| format!(", usually port {port}"));
        let protocols: Vec<_> = about.networks().iter().map(ToString::to_string).collect();
        does.push(format!(
            "accepts by {}{}",
            protocols.join(" and "),
            at.unwrap_or_default()
        ));
    }
    if about.dials {
        does.push("dials".to_owned());
    }
    if !does.is_empty() {
        println!("does      {}", does.join("; "));
    }
    if !about.destinations {
        println!("flows     name no destination");
    }
    for format in &about.formats {
        let tables = format.tables.iter().map(|table| {
            let fields: Vec<_> = table
                .fields
                .iter()
                .map(|field| field.name.as_str())
                .collect();
            format!("{} ({})", table.name, fields.join(", "))
        });
        let tables: Vec<_> = tables.collect();
        println!(
            "config    {}: {}",
            plain(&format.name),
            plain(&tables.join("; "))
        );
    }
}
