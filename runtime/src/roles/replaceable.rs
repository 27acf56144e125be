use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::role::Role;
use super::runner::{Done, Job, Opened, Runner, Settings, check_role};
use crate::water::WaterRunner;
use crate::{Error, Module, ModuleKind};

/// A WATER module in one role, until another takes its place. Each connection stays with the
/// module that it began with, since it has an instance of its own.
pub(super) struct Replaceable {
    role: Role,
    settings: Settings,
    current: Mutex<Arc<WaterRunner>>,
}

impl Replaceable {
    /// Fails if the module has not this role.
    pub(super) fn new(
        module: &Module,
        role: Role,
        settings: Settings,
    ) -> Result<Replaceable, Error> {
        let runner = make(module, role, &settings)?;
        Ok(Replaceable {
            role,
            settings,
            current: Mutex::new(Arc::new(runner)),
        })
    }

    fn current(&self) -> Arc<WaterRunner> {
        self.current
            .lock()
            .expect("no panic under this lock")
            .clone()
    }

    async fn replace(&self, module: Module) -> Result<(), Error> {
        if module.info().kind == ModuleKind::Component {
            return Err(Error::Swap {
                module: module.name().to_owned(),
                reason: "a component, which cannot take the place of a WATER module".to_owned(),
            });
        }
        module.check_granted(&self.settings.name, [])?;
        let next = make(&module, self.role, &self.settings)?;
        next.check_config().await.map_err(|error| match error {
            // Of the new one, whatever the role is called by.
            Error::Config { reason, .. } => Error::Config {
                module: module.name().to_owned(),
                reason,
            },
            other => other,
        })?;
        module.accept()?;
        *self.current.lock().expect("no panic under this lock") = Arc::new(next);
        Ok(())
    }
}

/// With what this module may have of the settings.
fn make(module: &Module, role: Role, settings: &Settings) -> Result<WaterRunner, Error> {
    check_role(module, role)?;
    let limits = module.granted().limits(module, settings.limits.clone());
    let settings = Settings {
        flows: settings.flows.limited(limits.flows),
        limits,
        ..settings.clone()
    };
    WaterRunner::new(module, settings)
}

impl Runner for Replaceable {
    fn open(
        self: Arc<Self>,
        job: Job,
    ) -> Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send>> {
        self.current().open(job)
    }

    fn swap(self: Arc<Self>, module: Module) -> Done {
        Box::pin(async move { self.replace(module).await })
    }
}
