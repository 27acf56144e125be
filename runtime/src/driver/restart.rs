//! Restarts after failures: an instance that traps is dropped, and a new one starts after a pause.
//! `run` reports the failures.

use std::time::{Duration, Instant};

use super::generation::Generation;
use super::run::{Driver, StartFailure};
use crate::backoff::HEALTHY;
use crate::{Module, Phase};
use watm_component::{Grants, Instance, StartError, Trap};
use watm_engine::Rollback;
use watm_net::ports::Port;

/// The interval at which sockets are emptied while there is no instance.
const DISCARD_INTERVAL: Duration = Duration::from_millis(20);

/// The number of failures of a swapped-in module after which the former one serves again.
const FAILURES_BEFORE_FALLBACK: u32 = 3;

/// The pause between two instances.
pub(super) struct Rest {
    until: Instant,
    discard: Instant,
    /// The phase in the status.
    pub(super) phase: Phase,
}

impl Rest {
    /// Returns the time of the next check.
    pub(super) fn due(&self) -> Instant {
        self.until.min(self.discard)
    }
}

impl Driver {
    /// Starts a new instance, which accepts the configuration, and the snapshot of the serving
    /// generation, if there is one.
    pub(super) fn instantiate(
        &mut self,
        predecessor: Option<&[u8]>,
    ) -> Result<Generation, StartFailure> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        if predecessor.is_none() {
            self.grants.mailboxes.serve(number);
        }
        let grants = &self.grants;
        let started = start(&self.module, &self.config, grants, number, predecessor);
        if started.is_err() {
            self.grants.mailboxes.end(number);
        }
        started
    }

    /// Handles the failure of a generation.
    pub(super) fn failed(&mut self, number: u32, trap: Trap) {
        let Some(index) = self.generations.iter().position(|g| g.number == number) else {
            return;
        };
        let failed = self.generations.remove(index);
        let (draining, age) = (failed.retired.is_some(), failed.since.elapsed());
        self.end(failed);
        if self.grants.hub.is_closing() {
            return;
        }
        report(self.name(), &trap, draining);
        if draining {
            return self.set_alarm();
        }
        if self.probation.is_some() {
            self.roll_back(Rollback::Failed(trap.reason));
        } else {
            if age >= HEALTHY {
                self.failures = 0;
            }
            self.failures += 1;
            self.fall_back();
            self.begin_rest(Phase::Restarting);
        }
        self.set_alarm();
    }

    /// Drops a generation, which resets its flows, and tells the others.
    pub(super) fn end(&mut self, generation: Generation) {
        let number = generation.number;
        drop(generation);
        self.grants.hub.withdraw_offers(number);
        self.grants.mailboxes.end(number);
    }

    /// Begins a pause, which lasts until the module has CPU time again as well.
    pub(super) fn begin_rest(&mut self, phase: Phase) {
        let now = Instant::now();
        let pause = now + self.backoff.failed(now);
        let quota = self.grants.cpu_quota.rests_until(now);
        self.rest = Some(Rest {
            until: quota.map_or(pause, |until| until.max(pause)),
            discard: now,
            phase,
        });
    }

    /// Discards what arrives on the sockets, and starts a new instance once the pause is over.
    pub(super) fn tend_rest(&mut self, now: Instant) {
        let Some(rest) = &mut self.rest else {
            return;
        };
        rest.discard = now + DISCARD_INTERVAL;
        let over = rest.until <= now;
        for (_, port) in self.grants.ports.iter() {
            match port {
                Port::Udp(port) => port.discard(),
                Port::Packets(port) => port.discard(),
                Port::Tcp(_) => {}
            }
        }
        if !over {
            return;
        }
        let name = self.name().to_owned();
        let alone = self.generations.is_empty();
        // The new instance should know the older ones' flows. If the snapshot makes it fail, the
        // next one starts without.
        let inherited = self.inherited.take().filter(|_| !alone);
        match self.instantiate(inherited.as_deref()) {
            Ok(generation) => {
                self.rest = None;
                self.grants.mailboxes.serve(generation.number);
                self.generations.push(generation);
                self.inherited = inherited;
                if !alone {
                    self.announce();
                }
                self.backoff.started(Instant::now());
                self.grants.hub.counters.restarts.add(1);
                tracing::info!(target: "watm::server", server = name, "the module restarted");
            }
            Err(failure) => {
                let reason = match failure {
                    StartFailure::Module(StartError::Refused(reason)) => reason,
                    StartFailure::Module(StartError::Trap(trap)) => trap.reason,
                    StartFailure::Host(error) => error.to_string(),
                };
                tracing::error!(
                    target: "watm::server",
                    server = name,
                    "cannot restart the module: {reason}"
                );
                self.failures += 1;
                self.fall_back();
                self.begin_rest(Phase::Failed(reason));
            }
        }
    }

    /// Returns to the former module, once, after too many failures of one that was swapped in.
    fn fall_back(&mut self) {
        if self.failures < FAILURES_BEFORE_FALLBACK {
            return;
        }
        let Some(before) = self.fallback.take() else {
            return;
        };
        if let Some(floor) = before.module.seal_details().floor_above() {
            tracing::error!(
                target: "watm::server",
                server = self.name(),
                "the module {} failed {} times; cannot roll back to {}: its release is below the \
                 floor {floor}",
                self.module.name(),
                self.failures,
                before.module.name(),
            );
            return;
        }
        tracing::error!(
            target: "watm::server",
            server = self.name(),
            "the module {} failed {} times; rolled back to {}",
            self.module.name(),
            self.failures,
            before.module.name(),
        );
        self.failures = 0;
        self.module = before.module;
        self.grants.hub.continue_usage_record(&self.module);
        self.config = before.config;
        self.grants.cpu_quota = before.cpu_quota;
        self.grants.keys = before.keys;
    }
}

/// Starts an instance; see [`Driver::instantiate`].
pub(super) fn start(
    module: &Module,
    config: &[u8],
    grants: &Grants,
    number: u32,
    predecessor: Option<&[u8]>,
) -> Result<Generation, StartFailure> {
    let ticking = module.engine().tick().map_err(StartFailure::Host)?;
    let trapped = |trap| StartFailure::Module(StartError::Trap(trap));
    let mut instance = Instance::new(module, grants, number).map_err(trapped)?;
    instance
        .start(config, predecessor)
        .map_err(StartFailure::Module)?;
    Ok(Generation::new(number, module.clone(), instance, ticking))
}

fn report(server: &str, trap: &Trap, draining: bool) {
    let then = match draining {
        true => "it was already replaced; its flows are reset",
        false => "its flows are reset, and it restarts",
    };
    tracing::error!(target: "watm::server", server, "the module failed: {}; {then}", trap.reason);
    if let Some(backtrace) = &trap.backtrace {
        tracing::debug!(target: "watm::server", server, "{backtrace}");
    }
}
