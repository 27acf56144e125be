use std::path::PathBuf;

use serde_derive::Serialize;
use watm_runtime::{Error, ModuleInfo, ModuleKind};

use crate::{Outcome, read};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A .wasm file.
    module: PathBuf,
    /// For programs.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    kind: &'static str,
    world: Option<&'a str>,
    imports: &'a [String],
    exports: &'a [String],
    size: usize,
    sha256: &'a str,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let info = watm_runtime::inspect(&read(&arguments.module)?).map_err(|error| match error {
        Error::Module { reason, .. } => Error::Module {
            module: arguments.module.display().to_string(),
            reason,
        },
        other => other,
    })?;
    let shown = Shown {
        kind: kind(&info),
        world: info.world.as_deref(),
        imports: &info.imports,
        exports: &info.exports,
        size: info.size,
        sha256: &info.sha256,
    };
    if arguments.json {
        let text =
            serde_json::to_string_pretty(&shown).map_err(|e| Error::System(e.to_string()))?;
        println!("{text}");
    } else {
        print_plain(&shown);
    }
    Ok(Outcome::Well)
}

fn print_plain(shown: &Shown<'_>) {
    println!("kind      {}", shown.kind);
    if let Some(world) = shown.world {
        println!("world     {world}");
    }
    for import in shown.imports {
        println!("imports   {import}");
    }
    for export in shown.exports {
        println!("exports   {export}");
    }
    println!("size      {} bytes", shown.size);
    println!("sha256    {}", shown.sha256);
}

fn kind(info: &ModuleInfo) -> &'static str {
    match info.kind {
        ModuleKind::Component => "component",
        ModuleKind::WaterV0 => "WATER v0 module",
        ModuleKind::WaterV1 => "WATER v1 module",
        _ => "core module",
    }
}
