use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::role::Role;
use super::runner::{Done, Job, Opened, Runner, check_role};
use crate::water::WaterRunner;
use crate::{Error, Module, ModuleKind};

/// A WATER module in one role, until another takes its place. Each connection stays with the
/// module that it began with, since it has an instance of its own.
pub(super) struct Replaceable {
    role: Role,
    current: Mutex<Arc<WaterRunner>>,
}

impl Replaceable {
    pub(super) fn new(role: Role, runner: WaterRunner) -> Replaceable {
        Replaceable {
            role,
            current: Mutex::new(Arc::new(runner)),
        }
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
        check_role(&module, self.role)?;
        let next = self.current().with_module(&module)?;
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
