//! A WATER module behind a dialer, a listener or a relay: the `Runner` over a `WaterModule`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::runner::{Done, Opening, Runner, check_role};
use crate::water::{Replacement, WaterModule, some_config};
use crate::{Error, Module, Network, Phase, Role, Status, SwapOptions};
use watm_engine::job::{Job, Opened, Settings};
use watm_engine::{Subject, UsageRecord};
use watm_net::flow::DatagramFlow;

/// The label of a module's listening socket.
const LISTEN: &str = "listen";

/// A WATER module in one role.
pub(super) struct WaterRole {
    role: Role,
    module: WaterModule,
    usage: UsageRecord,
}

impl WaterRole {
    /// Links the module. Fails if it does not have this role.
    pub(super) fn new(module: &Module, role: Role, settings: Settings) -> Result<WaterRole, Error> {
        check_role(module, role)?;
        let listens = settings.listens;
        let listens = listens.map(|address| format!("{} {LISTEN} {address}", Network::Tcp));
        let subject = Subject {
            counters: settings.counters.clone(),
            flows: settings.flows.clone(),
            sockets: listens.into_iter().collect(),
        };
        Ok(WaterRole {
            module: WaterModule::new(module, settings, role == Role::Listener)?,
            usage: UsageRecord::new(module, subject),
            role,
        })
    }

    async fn replace(&self, module: Module) -> Result<(), Error> {
        if module.is_component() {
            return Err(Error::Swap {
                module: module.name().to_owned(),
                reason: "is a component and cannot replace a WATER module".to_owned(),
            });
        }
        check_role(&module, self.role)?;
        module.check_memory()?;
        let replacement = Replacement {
            module: module.clone(),
            config: self.module.serving().config,
            probation: SwapOptions::default().probation,
            remembers: true,
            drain: self.module.settings().drain,
        };
        let replaced = self.module.replace(replacement).await;
        replaced.map_err(|error| match error {
            // The error names the new module, whatever the role's own name is.
            Error::Config { reason, .. } => Error::Config {
                module: module.name().to_owned(),
                reason,
            },
            other => other,
        })?;
        self.usage.change(&module);
        Ok(())
    }

    fn status(&self) -> Status {
        let (serving, settings) = (self.module.serving(), self.module.settings());
        let flows = settings.flows.open();
        let mut counters = BTreeMap::new();
        settings.counters.collect(&mut counters);
        counters.insert("host.flows".to_owned(), flows as u64);
        Status {
            phase: Phase::Running,
            generation: serving.generation,
            generations: Vec::new(),
            module: Some(serving.module),
            used: self.usage.used(),
            captures: Vec::new(),
            peers: Vec::new(),
            flows: u32::try_from(flows).unwrap_or(u32::MAX),
            counters,
        }
    }
}

impl Runner for WaterRole {
    fn open(self: Arc<Self>, job: Job) -> Opening<Opened> {
        let opening = self.module.serving().runner.open(job);
        Box::pin(async move {
            let opened = opening.await?;
            self.module.settings().counters.flows_opened.add(1);
            Ok(opened)
        })
    }

    fn open_datagrams(self: Arc<Self>, _: Job) -> Opening<DatagramFlow> {
        let module = self.module.settings().name.clone();
        Box::pin(async { Err(Error::NoDatagrams { module }) })
    }

    fn swap(self: Arc<Self>, module: Module) -> Done {
        let name = self.module.settings().name.clone();
        // A task completes the rollback even if nobody waits for the result.
        let replacing = tokio::spawn(async move { self.replace(module).await });
        Box::pin(async move {
            replacing
                .await
                .unwrap_or(Err(Error::Closed { module: name }))
        })
    }

    fn reconfigure(self: Arc<Self>, config: Vec<u8>) -> Done {
        let config = some_config(config);
        Box::pin(async move { self.module.reconfigure(config).await })
    }

    fn check_config(self: Arc<Self>) -> Done {
        Box::pin(async move { self.module.check_config().await })
    }

    fn status(self: Arc<Self>) -> Opening<Status> {
        Box::pin(async move { Ok(WaterRole::status(&self)) })
    }
}
