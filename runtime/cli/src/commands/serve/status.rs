//! The status of all listeners, for `/status` and `/readyz`.

use serde_json::{Value, json};
use watm_runtime::Phase;

use super::frontend::Frontend;
use super::service::Service;
use super::upstream::answers;
use super::values::Protocol;
use crate::reporting::module::{of_instances, of_module};
use crate::reporting::peers::{listed, merged};

/// Describes the service.
pub(super) async fn of(service: &Service) -> Value {
    let mut listeners = Vec::new();
    for frontend in service.frontends() {
        listeners.push(of_listener(&frontend).await);
    }
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": service.began.elapsed().as_secs(),
        "draining": service.is_draining(),
        "listeners": listeners,
    })
}

/// Returns normally if connections would get through, or else fails with the reason.
pub(super) async fn ready(service: &Service) -> Result<(), String> {
    if service.is_draining() {
        return Err("draining".to_owned());
    }
    for frontend in service.frontends() {
        let listener = &frontend.common.listener;
        for (upstream, answers) in upstreams(&frontend).await {
            if answers == Some(false) {
                return Err(format!(
                    "listener {listener}: upstream {upstream} does not answer"
                ));
            }
        }
        let statuses = frontend.statuses().await;
        let runs = statuses.iter().any(|status| status.phase == Phase::Running);
        if !runs {
            return Err(format!("listener {listener}: no worker's module runs"));
        }
    }
    Ok(())
}

async fn upstreams(frontend: &Frontend) -> Vec<(String, Option<bool>)> {
    let terms = frontend.terms();
    let mut all = Vec::new();
    for upstream in terms.upstream.all() {
        all.push((upstream.to_string(), answers(upstream, &terms).await));
    }
    all
}

async fn of_listener(frontend: &Frontend) -> Value {
    let upstreams = upstreams(frontend).await.into_iter();
    let upstreams: Vec<Value> = upstreams
        .map(|(upstream, answers)| json!({ "address": upstream, "ok": answers }))
        .collect();
    let addresses: Vec<String> = frontend
        .addresses
        .iter()
        .map(|(protocol, address)| match protocol {
            Protocol::Tcp => format!("tcp://{address}"),
            Protocol::Udp => format!("udp://{address}"),
        })
        .collect();
    let statuses = frontend.statuses().await;
    let workers: Vec<Value> = statuses.iter().map(of_instances).collect();
    let captures: Vec<&String> = statuses
        .iter()
        .flat_map(|status| &status.captures)
        .collect();
    json!({
        "name": frontend.common.listener,
        "addresses": addresses,
        "upstreams": upstreams,
        "connections": frontend.common.gate.open(),
        "module": of_module(&frontend.serving().await.module),
        "worker_count": frontend.workers(),
        "workers": workers,
        "captures": captures,
        "peers": listed(&merged(&statuses)),
    })
}
