//! Resources that a stream flow keeps alive. `roles::component` attaches them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

/// A resource that a flow needs, kept for as long as the flow exists.
pub struct KeepAlive {
    /// The resource.
    pub _resource: Arc<dyn Any + Send + Sync>,
    /// The runtime of the task that waits after the application has closed the flow.
    pub runtime: Handle,
    /// The time that the module then has to pass on what was written, and again to drop its end.
    pub grace: Duration,
}
