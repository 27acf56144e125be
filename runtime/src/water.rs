//! A WATER module that another can replace, for the server and the roles of such a module.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Error, Module};
use watm_engine::job::Settings;
use watm_water::{Serving, Slot, WaterRunner};

/// A WATER module, which another can replace. Each connection stays with the module that it began
/// with, since it has an instance of its own.
///
/// A component is replaced in another way, by its driver: it has all connections in one instance,
/// which hands its state over and finishes its flows beside its successor. Both ways end with the
/// same rollback.
pub(crate) struct WaterModule {
    settings: Settings,
    /// True if its connections come from a listener.
    listens: bool,
    slot: Arc<Slot>,
    /// The number of the next generation.
    next: AtomicU32,
}

/// A replacement of the module or its configuration.
pub(crate) struct Replacement {
    pub(crate) module: Module,
    /// The configuration, if there is one.
    pub(crate) config: Option<Vec<u8>>,
    pub(crate) probation: Duration,
    /// True if the module's acceptance must be written to the state.
    pub(crate) remembers: bool,
    /// The time that open connections may last; `None` for no limit.
    pub(crate) drain: Option<Duration>,
}

impl WaterModule {
    /// Links the module for these settings, within its grant.
    pub(crate) fn new(
        module: &Module,
        settings: Settings,
        listens: bool,
    ) -> Result<WaterModule, Error> {
        let serving = make(module, settings.config.clone(), 0, &settings)?;
        Ok(WaterModule {
            slot: Slot::new(serving),
            next: AtomicU32::new(1),
            settings,
            listens,
        })
    }

    /// Returns the module that makes new connections.
    pub(crate) fn serving(&self) -> Serving {
        self.slot.serving()
    }

    /// Returns the settings that it began with.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Has the module check its configuration.
    pub(crate) async fn check_config(&self) -> Result<(), Error> {
        self.serving().runner.check_config(self.listens).await
    }

    /// Makes new connections use this configuration, once the module has accepted it.
    pub(crate) async fn reconfigure(&self, config: Option<Vec<u8>>) -> Result<(), Error> {
        let change = self.slot.begin().ok_or_else(|| self.busy())?;
        let before = self.serving();
        let next = self.make(&before.module, config, before.generation)?;
        next.runner.check_config(self.listens).await?;
        change.set(next);
        Ok(())
    }

    /// Makes new connections use another module, once it has accepted its configuration. Returns
    /// its generation when it has passed its probation. An error changes nothing.
    pub(crate) async fn replace(&self, replacement: Replacement) -> Result<u32, Error> {
        let Replacement {
            module,
            config,
            probation,
            remembers,
            drain,
        } = replacement;
        let change = self.slot.begin().ok_or_else(|| self.busy())?;
        let generation = self.next.fetch_add(1, Ordering::Relaxed);
        let next = self.make(&module, config, generation)?;
        next.runner.check_config(self.listens).await?;
        let name = &self.settings.name;
        change
            .prove(name, next, probation, remembers, drain)
            .await?;
        Ok(generation)
    }

    fn make(
        &self,
        module: &Module,
        config: Option<Vec<u8>>,
        generation: u32,
    ) -> Result<Serving, Error> {
        make(module, config, generation, &self.settings)
    }

    fn busy(&self) -> Error {
        Error::Busy {
            module: self.settings.name.clone(),
        }
    }
}

/// Makes a runner, with the settings limited by the module's grant.
fn make(
    module: &Module,
    config: Option<Vec<u8>>,
    generation: u32,
    settings: &Settings,
) -> Result<Serving, Error> {
    module.check_granted(&settings.name, [])?;
    let limits = module
        .granted()
        .limits(module.info().kind, settings.limits.clone());
    let settings = Settings {
        config: config.clone(),
        flows: settings.flows.limited(limits.flows),
        limits,
        ..settings.clone()
    };
    Ok(Serving {
        generation,
        module: module.clone(),
        config,
        runner: Arc::new(WaterRunner::new(module, settings)?),
    })
}

/// Returns the configuration of a server as that of its module: an empty one, which is the default,
/// is none.
pub(crate) fn some_config(config: Vec<u8>) -> Option<Vec<u8>> {
    (!config.is_empty()).then_some(config)
}
