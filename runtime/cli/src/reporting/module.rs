//! Modules and their instances in `/status`.

use serde_json::{Value, json};
use watm_runtime::{Module, Phase, Status, Used};
use watm_sealing::texts;

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
    let granted = module.may_have().map(|most| {
        json!({
            "sockets": texts(&most.sockets),
            "connect": texts(&most.connect),
            "host_crypto": most.host_crypto,
            "host_keys": most.host_keys,
            "bind_transparent": most.bind_transparent,
            "capture": most.capture,
            "memory_bytes": most.memory_bytes,
            "cpu_permille": most.cpu_permille,
            "flows": most.flows,
            "instances": most.instances,
        })
    });
    json!({
        "file": module.name(),
        "sha256": module.info().sha256,
        "kind": module.info().kind.to_string(),
        "seal": seal,
        "granted": granted,
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
        "used": of_usage(&status.used),
    })
}

/// Describes what a module uses.
fn of_usage(used: &Used) -> Value {
    json!({
        "host_crypto": used.host_crypto,
        "host_keys": used.host_keys,
        "memory_bytes": used.memory_bytes,
        "memory_peak_bytes": used.memory_peak_bytes,
        "cpu_permille": used.cpu_permille,
        "flows": used.flows,
        "flows_opened": used.flows_opened,
        "instances": used.instances,
    })
}
