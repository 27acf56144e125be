//! The common interface of modules of all kinds behind a dialer, a listener or a relay. Used
//! throughout the crate.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use watm_engine::job::{Job, Opened, Settings};
use watm_net::flow::{DatagramFlow, Flow};

use super::component::ComponentRunner;
use super::water::WaterRole;
use crate::{Error, Module, ModuleKind, Role, Status};

/// A module behind a dialer, a listener or a relay, of whichever kind it is.
pub(crate) trait Runner: Send + Sync {
    /// Opens one connection. Dropping the future abandons the attempt; after that the connection lives
    /// in a task of its own, in the runtime that this was called in.
    fn open(self: Arc<Self>, job: Job) -> Opening<Opened>;

    /// Has datagrams carried to a target.
    fn open_datagrams(self: Arc<Self>, job: Job) -> Opening<DatagramFlow>;

    /// Returns the next flow that the other end has opened; `None` if there will be none.
    fn accept(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Flow>> + Send>> {
        Box::pin(async { None })
    }

    /// Has another module make the connections that are opened from now on; the others continue
    /// unchanged. An error changes nothing.
    fn swap(self: Arc<Self>, module: Module) -> Done;

    /// Replaces the configuration. An error changes nothing.
    fn reconfigure(self: Arc<Self>, config: Vec<u8>) -> Done;

    /// Has the module check its configuration, unless it did so when it started.
    fn check_config(self: Arc<Self>) -> Done {
        Box::pin(async { Ok(()) })
    }

    /// Stops accepting what the module accepts itself.
    fn stop_accepting(self: Arc<Self>) -> Done {
        Box::pin(async { Ok(()) })
    }

    /// Returns the module's state.
    fn status(self: Arc<Self>) -> Opening<Status>;
}

/// A future that returns what was opened.
pub(crate) type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A future that returns when something has been done.
pub(crate) type Done = Opening<()>;

/// Makes the runner of a module in this role. A component listens by [`ComponentRunner::listening`].
pub(crate) fn runner(
    module: &Module,
    role: Role,
    settings: Settings,
) -> Result<Arc<dyn Runner>, Error> {
    module.check_serves(&settings.name)?;
    module.check_granted(&settings.name, [])?;
    settings.limits.check()?;
    if module.info().kind == ModuleKind::Component {
        return Ok(Arc::new(ComponentRunner::dialling(module, settings)?));
    }
    module.check_keys(&settings.name, &settings.keys)?;
    if settings.capture.is_some() {
        module.check_capture(&settings.name)?;
    }
    if let Some((label, _)) = settings.sockets.first() {
        return Err(Error::Options(format!(
            "{}: a WATER module cannot use a datagram socket (label \"{label}\")",
            settings.name
        )));
    }
    let runner = WaterRole::new(module, role, settings)?;
    // The module is compiled and linked, and has the role; its instances come with the connections.
    module.accept()?;
    Ok(Arc::new(runner))
}

/// Fails if a WATER module does not have this role.
pub(super) fn check_role(module: &Module, role: Role) -> Result<(), Error> {
    let info = module.info();
    if info.roles.contains(&role) {
        return Ok(());
    }
    let roles: Vec<String> = info.roles.iter().map(Role::to_string).collect();
    Err(Error::Module {
        module: module.name().to_owned(),
        reason: format!(
            "does not have the role {role}; it has: {}",
            roles.join(", ")
        ),
    })
}
