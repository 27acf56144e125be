use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use tokio::time::{Sleep, sleep_until};
use wasmtime::UpdateDeadline;

use crate::counters::Counters;
use crate::share::Share;

/// Bounds the CPU time that a guest takes between two moments at which it waits or moves
/// bytes, and has it share its thread meanwhile.
///
/// A tick (10 ms) that finds the guest at work is remembered; at the next one in a row the
/// guest yields, and from then on its time is counted. So what a guest does for less than
/// two ticks costs nothing, and an idle guest is not made to yield when it wakes.
///
/// All its time is taken from the module's share of a core. While there is nothing of that, the
/// guest is not resumed. A turn is two ticks at most, so that is what a share can be in arrears
/// with, for each thread that guests of the module run on: 20 s of rest at a thousandth of a core.
///
/// Clones are the same meter: the guest's task is outside of what the ticks can reach.
#[derive(Clone)]
pub(super) struct CpuMeter {
    limit: Duration,
    share: Share,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// A tick found the guest at work since it last waited.
    ticked: AtomicBool,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    /// The thread's clock when the guest was last resumed, or at the first tick.
    since: Option<Duration>,
    used: Duration,
    overrun: bool,
}

impl CpuMeter {
    /// What guests use is counted.
    pub(super) fn new(limit: Duration, share: Share, counters: Arc<Counters>) -> CpuMeter {
        CpuMeter {
            limit,
            share,
            counters,
            shared: Arc::default(),
        }
    }

    /// The guest waits, or moves bytes.
    pub(super) fn reset(&self) {
        if self.shared.ticked.swap(false, Ordering::Relaxed) {
            let mut count = self.count();
            count.since = None;
            count.used = Duration::ZERO;
        }
    }

    /// A tick while the guest is at work.
    pub(super) fn tick(&self) -> UpdateDeadline {
        let mut count = self.count();
        let first = !self.shared.ticked.swap(true, Ordering::Relaxed);
        if first {
            count.since = Some(thread_time());
            return UpdateDeadline::Continue(1);
        }
        if let Some(since) = count.since.take() {
            count.used += thread_time().saturating_sub(since);
        }
        if count.used >= self.limit {
            count.overrun = true;
            return UpdateDeadline::Interrupt;
        }
        // Not a mere wake-up: the runtime looks at its sockets and timers before it comes back.
        UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
    }

    /// The limit, if the guest was stopped at it.
    pub(super) fn overrun(&self) -> Option<Duration> {
        self.count().overrun.then_some(self.limit)
    }

    /// A call of the guest, with its time counted, and taken from its share.
    pub(super) fn metered<F: Future>(&self, call: F) -> Metered<F> {
        Metered {
            meter: self.clone(),
            call: Box::pin(call),
            rest: None,
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.shared.count.lock().expect("no panic under this lock")
    }
}

pub(super) struct Metered<F> {
    meter: CpuMeter,
    call: Pin<Box<F>>,
    /// Until there is something of the share.
    rest: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let mut now = Instant::now();
        while let Some(until) = this.meter.share.rests_until(now) {
            let rest = this
                .rest
                .get_or_insert_with(|| Box::pin(sleep_until(until.into())));
            rest.as_mut().reset(until.into());
            ready!(rest.as_mut().poll(cx));
            now = Instant::now();
        }
        // The guest may have been moved to another thread, whose clock is another.
        if this.meter.shared.ticked.load(Ordering::Relaxed) {
            this.meter.count().since = Some(thread_time());
        }
        let polled = this.call.as_mut().poll(cx);
        // 584 years.
        let spent = now.elapsed().as_nanos() as u64;
        this.meter.counters.guest_time_ns.add(spent);
        this.meter.share.spend(spent);
        polled
    }
}

/// CPU time of this thread, as a number that may go to another.
fn thread_time() -> Duration {
    ThreadTime::now().as_duration()
}
