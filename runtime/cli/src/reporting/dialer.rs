//! Status pages of a dialer, for `watm tunnel --status`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;
use watm_runtime::{Dialer, Phase, Status};
use watm_socks::Resolving;

use super::check::Check;
use super::metrics::{self, Group};
use super::module::{of_instances, of_module};
use super::peers::listed;
use super::web::{Host, Hosts, Pages, Web};
use crate::failure::Failure;
use crate::inputs::listening_address;
use crate::logging::PROGRAM;

/// The lifetime of a WireGuard session (paper, section 6.1). Without a handshake for longer, nobody
/// knows whether the peer is reachable.
const SESSION: Duration = Duration::from_secs(180);

/// The time limit for the module's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time for which a check's result is kept, so that clients cannot cause many checks.
const HOLDS: Duration = Duration::from_secs(1);

/// Options for status pages.
#[derive(clap::Args)]
pub(crate) struct ReportOptions {
    /// Answer /status, /metrics and /readyz here, by HTTP, for `watm status` and others.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening_address)]
    status: Option<SocketAddr>,
    /// Accept this name in the Host header of requests to --status, beside addresses and localhost;
    /// may be given several times. Requests with other names are refused.
    #[arg(long, value_name = "NAME", requires = "status")]
    status_host: Vec<Host>,
    /// Make /readyz check this through the tunnel each time: `http://HOST[:PORT]/PATH`, the same
    /// with `https`, with a certificate that this machine trusts, or `tcp:HOST:PORT`. Without it
    /// the tunnel is ready if a peer had a handshake in the last three minutes.
    #[arg(long, value_name = "URL|tcp:HOST:PORT", requires = "status")]
    ready_check: Option<Check>,
}

impl ReportOptions {
    /// Answers for as long as it is polled. Returns only on failure.
    pub(crate) async fn serve(
        &self,
        name: &str,
        dialer: Dialer,
        resolving: Resolving<Dialer>,
    ) -> Result<(), Failure> {
        let Some(address) = self.status else {
            return std::future::pending().await;
        };
        let hosts = Hosts::new(self.status_host.clone(), "--status-host");
        let web = Web::bind("--status", address, hosts).await?;
        tracing::info!(target: PROGRAM, address = %web.address, "status on {}", web.address);
        let report = Report {
            name: name.to_owned(),
            began: Instant::now(),
            dialer,
            resolving,
            check: self.ready_check.clone(),
            found: Mutex::default(),
        };
        web.serve(Arc::new(report)).await;
        Ok(())
    }
}

struct Report {
    name: String,
    began: Instant,
    dialer: Dialer,
    resolving: Resolving<Dialer>,
    check: Option<Check>,
    /// The result of the last check.
    found: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Report {
    async fn ask(&self) -> Result<Status, String> {
        match timeout(PATIENCE, self.dialer.status()).await {
            Ok(status) => status.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the module does not answer in {PATIENCE:?}")),
        }
    }

    /// Runs the check, or returns a recent result. Runs one check at a time; callers that waited
    /// share its result.
    async fn checked(&self, check: &Check) -> Result<(), String> {
        let mut found = self.found.lock().await;
        if let Some((when, known)) = &*found
            && when.elapsed() < HOLDS
        {
            return known.clone();
        }
        let passed = check.pass(&self.resolving).await;
        *found = Some((Instant::now(), passed.clone()));
        passed
    }
}

impl Pages for Report {
    async fn metrics(&self) -> Result<String, fmt::Error> {
        let status = self.ask().await;
        let groups = status.into_iter().map(|status| Group {
            kind: "tunnel",
            name: self.name.clone(),
            counters: status.counters.into_iter().collect(),
            peers: status.peers,
        });
        metrics::page(groups.collect())
    }

    async fn status(&self) -> Value {
        let tunnel = match self.ask().await {
            Ok(status) => json!({
                "name": self.name,
                "module": status.module.as_ref().map(of_module),
                "instances": of_instances(&status),
                "captures": status.captures,
                "peers": listed(&status.peers),
                "counters": status.counters,
            }),
            Err(reason) => json!({ "name": self.name, "error": reason }),
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.began.elapsed().as_secs(),
            "tunnels": [tunnel],
        })
    }

    async fn ready(&self) -> Result<(), String> {
        let status = self.ask().await?;
        if status.phase != Phase::Running {
            return Err("the module does not run".to_owned());
        }
        if let Some(check) = &self.check {
            return self.checked(check).await;
        }
        let mut ages = status.peers.iter().filter_map(|peer| peer.last_handshake);
        match ages.any(|age| age <= SESSION) {
            true => Ok(()),
            false => Err(format!("no peer had a handshake in the last {SESSION:?}")),
        }
    }
}
