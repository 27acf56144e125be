//! The CPU meter of a guest with one call for its whole life: the overrun limit and the module's
//! share of a core. The hosts of WATER modules and of programs tick it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use tokio::time::{Sleep, sleep_until};
use wasmtime::UpdateDeadline;

use watm_net::counters::Counters;

use crate::cpu_quota::CpuQuota;
use crate::slice;

/// The shortest pause of a guest that counts as a wait: several times what other tasks take that are
/// ready.
const LEAST_WAIT: Duration = Duration::from_micros(200);

/// Bounds the CPU time that a guest takes between two moments at which it waits or moves
/// bytes of a connection, and makes it share its thread meanwhile.
///
/// The two rules are separate:
///
/// - **Yielding.** A tick (10 ms) that finds the guest at work is remembered. The guest yields at
///   every tick after that, until it waits. Moving bytes does not change this.
/// - **Overrun.** From that tick on, the guest's time is counted. It starts again from zero when
///   the guest waits or moves bytes. Past the limit, the guest is interrupted.
///
/// Work of less than two ticks therefore costs nothing, and an idle guest does not yield when it
/// wakes.
///
/// All of the guest's time is charged to the module's share of a core. While the share is used up,
/// the guest is not resumed. A turn is two ticks at most, so a share can be in arrears by that much
/// for each thread that guests of the module run on: 20 s of rest at a thousandth of a core.
///
/// Clones are the same meter, because the guest's task is out of reach of the ticks.
#[derive(Clone)]
pub struct CpuMeter {
    limit: Duration,
    cpu_quota: CpuQuota,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// True if a tick found the guest at work since it last waited.
    busy: AtomicBool,
    /// True if a tick found the guest at work since it last waited or moved bytes.
    counting: AtomicBool,
    /// True if the last tick made the guest yield.
    yielded: AtomicBool,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    /// The thread's clock up to which `used` is counted, while the guest runs.
    since: Option<Duration>,
    used: Duration,
    overrun: bool,
}

impl Count {
    /// Adds the time up to `now`, on this thread's clock.
    fn add(&mut self, now: Duration) {
        if let Some(since) = self.since.take() {
            self.used += now.saturating_sub(since);
        }
    }
}

impl CpuMeter {
    /// Makes a meter that charges guests' time to `cpu_quota` and adds it to `counters`.
    pub fn new(limit: Duration, cpu_quota: CpuQuota, counters: Arc<Counters>) -> CpuMeter {
        CpuMeter {
            limit,
            cpu_quota,
            counters,
            shared: Arc::default(),
        }
    }

    /// Notes that the guest waits.
    pub fn waits(&self) {
        self.shared.busy.store(false, Ordering::Relaxed);
        self.moves();
    }

    /// Notes that the guest moves bytes of a connection.
    pub fn moves(&self) {
        if self.shared.counting.swap(false, Ordering::Relaxed) {
            let mut count = self.count();
            count.since = None;
            count.used = Duration::ZERO;
        }
    }

    /// Handles a tick while the guest is at work: interrupts the guest past the limit, or makes it
    /// yield.
    pub fn tick(&self) -> UpdateDeadline {
        slice::look(Instant::now());
        let now = thread_time();
        let mut count = self.count();
        if self.shared.counting.swap(true, Ordering::Relaxed) {
            count.add(now);
        }
        count.since = Some(now);
        if count.used >= self.limit {
            count.overrun = true;
            return UpdateDeadline::Interrupt;
        }
        if !self.shared.busy.swap(true, Ordering::Relaxed) {
            return UpdateDeadline::Continue(1);
        }
        self.shared.yielded.store(true, Ordering::Relaxed);
        // A mere wake-up would not do: this way the runtime looks at its sockets and timers first.
        UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
    }

    /// Returns the limit, if the guest was stopped at it.
    pub fn overrun(&self) -> Option<Duration> {
        self.count().overrun.then_some(self.limit)
    }

    /// Wraps a call of the guest: counts its time and charges it to the share.
    pub fn metered<F: Future>(&self, call: F) -> Metered<F> {
        Metered {
            meter: self.clone(),
            call: Box::pin(call),
            rest: None,
            waiting: None,
            notices_waits: false,
        }
    }

    fn is_counting(&self) -> bool {
        self.shared.counting.load(Ordering::Relaxed)
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.shared.count.lock().expect("no panic under this lock")
    }
}

/// A call of a guest that its meter counts.
pub struct Metered<F> {
    meter: CpuMeter,
    call: Pin<Box<F>>,
    /// The wait until the share has time again.
    rest: Option<Pin<Box<Sleep>>>,
    /// The moment at which the call began to wait, if its waits are noticed.
    waiting: Option<Instant>,
    notices_waits: bool,
}

impl<F> Metered<F> {
    /// Notes by itself that the guest waits, where the functions of the host do not. A pause is a
    /// wait if it is longer than it takes to yield to other tasks: a guest that only asks again and
    /// again yields too.
    pub fn noticing_waits(mut self) -> Metered<F> {
        self.notices_waits = true;
        self
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let mut now = Instant::now();
        if let Some(since) = this.waiting.take()
            && now.duration_since(since) >= LEAST_WAIT
        {
            this.meter.waits();
        }
        while let Some(until) = this.meter.cpu_quota.rests_until(now) {
            let rest = this
                .rest
                .get_or_insert_with(|| Box::pin(sleep_until(until.into())));
            rest.as_mut().reset(until.into());
            ready!(rest.as_mut().poll(cx));
            now = Instant::now();
        }
        // The guest may have moved to another thread, which has its own clock.
        if this.meter.is_counting() {
            this.meter.count().since = Some(thread_time());
        }
        let polled = this.call.as_mut().poll(cx);
        // The guest may also yield inside a function of the host, between two ticks.
        if this.meter.is_counting() {
            this.meter.count().add(thread_time());
        }
        let end = Instant::now();
        let yielded = this.meter.shared.yielded.swap(false, Ordering::Relaxed);
        if this.notices_waits && polled.is_pending() && !yielded {
            this.waiting = Some(end);
        }
        // The cast overflows after 584 years.
        let spent = end.duration_since(now).as_nanos() as u64;
        this.meter.counters.guest_time_ns.add(spent);
        this.meter.cpu_quota.spend(spent);
        slice::look(end);
        polled
    }
}

/// Returns the CPU time of this thread as a number that other threads may hold.
fn thread_time() -> Duration {
    ThreadTime::now().as_duration()
}
