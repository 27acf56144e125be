//! A WATER module behind a dialer, a listener or a relay, and its replacement: the `Runner` over a
//! `WaterRunner`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::runner::{Done, Opening, Runner, check_role};
use crate::Role;
use crate::{Error, Module, ModuleKind, Network, Phase, Status, SwapOptions};
use watm_engine::job::{Job, Opened, Settings};
use watm_engine::{Kept, Subject};
use watm_net::flow::DatagramFlow;
use watm_water::{Slot, WaterRunner};

/// The label of a module's listening socket.
const LISTEN: &str = "listen";

/// A WATER module in one role, which another module can replace. Each connection stays with the
/// module that it began with, since it has an instance of its own.
pub(super) struct Replaceable {
    role: Role,
    settings: Settings,
    slot: Arc<Slot<Arc<WaterRunner>>>,
    /// The number of modules before the one that serves, and that module.
    serving: Mutex<(u32, Module)>,
    kept: Kept,
}

impl Replaceable {
    /// Makes a slot for the module. Fails if it does not have this role.
    pub(super) fn new(
        module: &Module,
        role: Role,
        settings: Settings,
    ) -> Result<Replaceable, Error> {
        let runner = make(module, role, &settings)?;
        let listens = settings.listens;
        let listens = listens.map(|address| format!("{} {LISTEN} {address}", Network::Tcp));
        let subject = Subject {
            counters: settings.counters.clone(),
            flows: settings.flows.clone(),
            sockets: listens.into_iter().collect(),
        };
        Ok(Replaceable {
            kept: Kept::new(module, subject),
            role,
            settings,
            slot: Slot::new(Arc::new(runner)),
            serving: Mutex::new((0, module.clone())),
        })
    }

    async fn replace(&self, module: Module) -> Result<(), Error> {
        let change = self.slot.begin().ok_or_else(|| Error::Busy {
            module: self.settings.name.clone(),
        })?;
        if module.info().kind == ModuleKind::Component {
            return Err(Error::Swap {
                module: module.name().to_owned(),
                reason: "is a component and cannot replace a WATER module".to_owned(),
            });
        }
        module.check_granted(&self.settings.name, [])?;
        let next = make(&module, self.role, &self.settings)?;
        next.check_config(self.role == Role::Listener)
            .await
            .map_err(|error| match error {
                // The error names the new module, whatever the role's own name is.
                Error::Config { reason, .. } => Error::Config {
                    module: module.name().to_owned(),
                    reason,
                },
                other => other,
            })?;
        let SwapOptions { probation, .. } = SwapOptions::default();
        module.check_memory()?;
        let before = self.slot.current();
        let proved = change.prove(Arc::new(next), probation, Some(&module)).await;
        proved.map_err(|(before, why)| before.serves_again(&module, why))?;
        self.kept.change(&module);
        if let Some(drain) = self.settings.drain {
            before.connections().end_after(drain);
        }
        let mut serving = self.serving();
        *serving = (serving.0 + 1, module);
        Ok(())
    }

    fn serving(&self) -> MutexGuard<'_, (u32, Module)> {
        self.serving.lock().expect("no panic under this lock")
    }

    fn status(&self) -> Status {
        let (generation, module) = self.serving().clone();
        let flows = self.settings.flows.open();
        let mut counters = BTreeMap::new();
        self.settings.counters.collect(&mut counters);
        counters.insert("host.flows".to_owned(), flows as u64);
        Status {
            phase: Phase::Running,
            generation,
            generations: Vec::new(),
            module: Some(module),
            used: self.kept.used(),
            captures: Vec::new(),
            peers: Vec::new(),
            flows: u32::try_from(flows).unwrap_or(u32::MAX),
            counters,
        }
    }
}

/// Makes a runner, with the settings limited by the module's grant.
fn make(module: &Module, role: Role, settings: &Settings) -> Result<WaterRunner, Error> {
    check_role(module, role)?;
    let limits = module
        .granted()
        .limits(module.info().kind, settings.limits.clone());
    let settings = Settings {
        flows: settings.flows.limited(limits.flows),
        limits,
        ..settings.clone()
    };
    WaterRunner::new(module, settings)
}

impl Runner for Replaceable {
    fn open(self: Arc<Self>, job: Job) -> Opening<Opened> {
        self.slot.current().open(job)
    }

    fn open_datagrams(self: Arc<Self>, _: Job) -> Opening<DatagramFlow> {
        let module = self.settings.name.clone();
        Box::pin(async { Err(Error::NoDatagrams { module }) })
    }

    fn swap(self: Arc<Self>, module: Module) -> Done {
        let name = self.settings.name.clone();
        // A task completes the rollback even if nobody waits for the result.
        let replacing = tokio::spawn(async move { self.replace(module).await });
        Box::pin(async move {
            replacing
                .await
                .unwrap_or(Err(Error::Closed { module: name }))
        })
    }

    fn check_config(self: Arc<Self>) -> Done {
        let runner = self.slot.current();
        Box::pin(async move { runner.check_config(self.role == Role::Listener).await })
    }

    fn status(self: Arc<Self>) -> Opening<Status> {
        Box::pin(async move { Ok(Replaceable::status(&self)) })
    }
}
