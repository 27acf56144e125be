//! The state that a server's handles, its driver and its instances share.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};
use std::task::{Context, Poll, Waker};

use tokio::sync::Semaphore;

use crate::log::LogRate;
use crate::usage::{Subject, UsageRecord};
use crate::{Destination, ErrorCode, Limits, Module, Network, Used};
use watm_net::counters::Counters;
use watm_net::flow::Flow;
use watm_net::quota::Quota;
use watm_net::ready::register;
use watm_policy::access::MAX_LOOKUPS;

/// Decides which flows an application accepts, by their protocol and destination.
pub type Accepting = Arc<dyn Fn(Network, &Destination) -> bool + Send + Sync>;

/// The state that a server shares with its driver and its instances.
pub struct Hub {
    /// The server's name, for errors and logs.
    pub name: String,
    /// The limits of the server, within the grant of its module.
    pub limits: Limits,
    /// The counters of the host.
    pub counters: Arc<Counters>,
    /// The count of open flows.
    pub flows: Quota,
    /// The rate of the log records of all its instances.
    pub log_rate: LogRate,
    /// The count of connections that hold a descriptor.
    pub descriptors: Quota,
    /// The permits of lookups of names.
    pub lookups: Arc<Semaphore>,
    /// The usage record, from the server's start on.
    usage: OnceLock<UsageRecord>,
    /// Set once; a running call is stopped at the next tick.
    closing: AtomicBool,
    /// The application's decision about flows. `None`: all are accepted.
    accepting: Option<Accepting>,
    /// Done once a flow was refused because too many wait.
    backlog_full: Once,
    /// Done once a flow was refused because too many are open.
    flows_full: Once,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Flows that nobody has accepted yet, each with the generation that opened it.
    offered: VecDeque<(u32, Flow)>,
    acceptor: Option<Waker>,
    closed: bool,
    closed_wakers: Vec<Waker>,
}

impl Hub {
    /// Creates the state of a server that is open and has no flow.
    pub fn new(name: String, limits: Limits) -> Hub {
        Hub {
            name,
            counters: Arc::default(),
            log_rate: LogRate::new(&limits),
            flows: Quota::new(limits.flows),
            descriptors: Quota::new(limits.descriptors),
            limits,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            usage: OnceLock::new(),
            closing: AtomicBool::new(false),
            accepting: None,
            backlog_full: Once::new(),
            flows_full: Once::new(),
            state: Mutex::default(),
        }
    }

    /// Sets the application's decision about flows.
    pub fn accepting(self, accepting: Option<Accepting>) -> Hub {
        Hub { accepting, ..self }
    }

    /// Returns true if the application accepts a flow to this destination.
    pub fn accepts(&self, network: Network, destination: &Destination) -> bool {
        let accepting = self.accepting.as_ref();
        accepting.is_none_or(|accepting| accepting(network, destination))
    }

    /// Starts the usage record, for this module. The sockets are as in [`Used`].
    pub fn begin_usage_record(&self, module: &Module, sockets: Vec<String>) {
        self.usage.get_or_init(|| {
            let subject = Subject {
                counters: self.counters.clone(),
                flows: self.flows.clone(),
                sockets,
            };
            UsageRecord::new(module, subject)
        });
    }

    /// Continues the usage record for this module.
    pub fn continue_usage_record(&self, module: &Module) {
        if let Some(usage) = self.usage.get() {
            usage.change(module);
        }
    }

    /// Writes the usage record.
    pub fn write_usage_record(&self) {
        if let Some(usage) = self.usage.get() {
            usage.write();
        }
    }

    /// Returns the usage as of now.
    pub fn used(&self) -> Used {
        self.usage
            .get()
            .map(|usage| usage.used())
            .unwrap_or_default()
    }

    /// Notes that the server is to close.
    pub fn begin_close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Returns true if the server is to close.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Fails if no flow can be offered now.
    pub fn check_backlog(&self) -> Result<(), ErrorCode> {
        let most = self.limits.accept_backlog;
        if self.lock().offered.len() < most {
            return Ok(());
        }
        self.counters.flows_refused_backlog.add(1);
        self.backlog_full
            .call_once(|| self.warn_of_refusals(most, "wait for the application"));
        Err(ErrorCode::LimitReached)
    }

    /// Counts a flow that is refused because as many as allowed are open. Returns the error.
    pub fn refuse_for_flows(&self) -> ErrorCode {
        self.counters.flows_refused_limit.add(1);
        self.flows_full
            .call_once(|| self.warn_of_refusals(self.limits.flows, "are open"));
        ErrorCode::LimitReached
    }

    /// Warns the first time, since the counters have the number.
    fn warn_of_refusals(&self, most: usize, what: &str) {
        tracing::warn!(
            target: "watm::server",
            server = &*self.name,
            "flows are refused while {most} {what}; the counters host.flows_refused say how many"
        );
    }

    /// Offers a flow after [`check_backlog`](Hub::check_backlog). Returns the waker of the task
    /// that waits for one.
    pub fn offer(&self, generation: u32, flow: Flow) -> Option<Waker> {
        let mut state = self.lock();
        state.offered.push_back((generation, flow));
        self.counters.flows_opened.add(1);
        state.acceptor.take()
    }

    /// Drops the flows of this generation that nobody has accepted.
    pub fn withdraw_offers(&self, generation: u32) {
        let mut state = self.lock();
        let (gone, usage) = mem::take(&mut state.offered)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(owner, _)| *owner == generation);
        state.offered = usage;
        drop(state);
        drop(gone);
    }

    /// Returns the next flow that is offered; `None` if the server is closed.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<Flow>> {
        let mut state = self.lock();
        if let Some((_, flow)) = state.offered.pop_front() {
            return Poll::Ready(Some(flow));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        register(&mut state.acceptor, cx);
        Poll::Pending
    }

    /// Waits until the server is closed.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(());
        }
        if !state
            .closed_wakers
            .iter()
            .any(|waker| waker.will_wake(cx.waker()))
        {
            state.closed_wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Notes that the driver is gone: the sockets are free, and the flows are reset.
    pub fn set_closed(&self) {
        let mut state = self.lock();
        state.closed = true;
        let offered = mem::take(&mut state.offered);
        let acceptor = state.acceptor.take();
        let waiting = mem::take(&mut state.closed_wakers);
        drop(state);
        drop(offered);
        acceptor.into_iter().chain(waiting).for_each(Waker::wake);
    }

    /// Returns the counters of the host by their names.
    pub fn host_counters(&self) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        self.counters.collect(&mut counters);
        counters.insert("host.flows".to_owned(), self.flows.open() as u64);
        counters
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }
}
