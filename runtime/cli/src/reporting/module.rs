//! Modules and their instances in `/status`.

use serde_json::{Value, json};
use watm_runtime::{Module, Phase, Status};

/// Describes a module.
pub(crate) fn of_module(module: &Module) -> Value {
    let seal = module.seal().map(|proof| {
        json!({
            "name": proof.manifest.name.to_string(),
            "release": proof.manifest.release.to_string(),
        })
    });
    let warnings = module.warnings();
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    json!({
        "file": module.name(),
        "sha256": module.info().sha256,
        "kind": module.info().kind.to_string(),
        "seal": seal,
        "warnings": warnings,
    })
}

/// Describes the instances of a module.
pub(crate) fn of_instances(status: &Status) -> Value {
    let generations: Vec<Value> = status
        .generations
        .iter()
        .map(|generation| {
            json!({
                "number": generation.number,
                "module": generation.module,
                "sha256": generation.sha256,
                "flows": generation.flows,
                "age_seconds": generation.age.as_secs(),
                "draining_seconds": generation.draining.map(|since| since.as_secs()),
            })
        })
        .collect();
    let phase = match &status.phase {
        Phase::Running => "running".to_owned(),
        Phase::Restarting => "restarting".to_owned(),
        Phase::Failed(reason) => format!("failed: {reason}"),
        Phase::Closed => "closed".to_owned(),
    };
    json!({
        "phase": phase,
        "generation": status.generation,
        "flows": status.flows,
        "generations": generations,
    })
}
