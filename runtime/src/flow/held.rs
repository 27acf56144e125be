use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

/// What a flow cannot live without, kept for as long as the flow is.
pub(crate) struct Held {
    pub(crate) _needed: Arc<dyn Any + Send + Sync>,
    /// Where to wait when the application has closed the flow.
    pub(crate) runtime: Handle,
    /// How long the module then has to pass on what was written, and as long again to let go.
    pub(crate) grace: Duration,
}
