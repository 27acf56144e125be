//! One running instance behind a server's sockets, and the time of its next call. `Driver` keeps a
//! list of them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

use crate::Module;
use watm_component::{Instance, ModuleStatus, Trap, Wakeup};
use watm_engine::Ticking;

/// The number of `again` answers in a row, with no token ready and nothing read or written, after
/// which the module is made to wait: it says that it has work but moves nothing.
const IDLE_AGAINS: u32 = 64;
/// The length of that wait.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// An instance behind the sockets, and the time of its next call.
pub(super) struct Generation {
    pub(super) number: u32,
    pub(super) module: Module,
    pub(super) instance: Instance,
    /// The time at which it was started.
    pub(super) since: Instant,
    /// Set once another generation serves in its place.
    pub(super) retired: Option<Retired>,
    wakeup: Wakeup,
    timer: Pin<Box<Sleep>>,
    /// True if `timer` is set.
    timed: bool,
    due: bool,
    /// True if it has used more than its share of a core: only `timer` is waited for.
    resting: bool,
    idle_agains: u32,
    _ticking: Ticking,
}

/// The state of a generation that drains.
pub(super) struct Retired {
    pub(super) since: Instant,
    /// The time at which its flows are reset; `None` for no limit.
    pub(super) deadline: Option<Instant>,
    /// True if it has nothing left to do.
    pub(super) finished: bool,
}

impl Generation {
    pub(super) fn new(
        number: u32,
        module: Module,
        instance: Instance,
        ticking: Ticking,
    ) -> Generation {
        Generation {
            number,
            module,
            instance,
            since: Instant::now(),
            retired: None,
            wakeup: Wakeup::Again,
            timer: Box::pin(sleep(Duration::ZERO)),
            timed: false,
            due: true,
            resting: false,
            idle_agains: 0,
            _ticking: ticking,
        }
    }

    /// Calls it with its ready tokens, which are collected in `ready`.
    pub(super) fn process(&mut self, ready: &mut Vec<u64>) -> Result<(), Trap> {
        ready.clear();
        self.instance.ready().take(ready);
        self.wakeup = self.instance.process(ready)?;
        let idle = !self.instance.has_moved() && ready.is_empty();
        if self.wakeup == Wakeup::Again && idle {
            self.idle_agains = self.idle_agains.saturating_add(1);
        } else {
            self.idle_agains = 0;
        }
        if let Some(retired) = &mut self.retired {
            retired.finished = self.wakeup == Wakeup::Finished;
        }
        Ok(())
    }

    /// Asks it for its state. Returns `None` while it rests.
    pub(super) fn status(&mut self, now: Instant) -> Result<Option<ModuleStatus>, Trap> {
        match self.instance.rests_until(now) {
            Some(_) => Ok(None),
            None => self.instance.status().map(Some),
        }
    }

    /// Notes that a call other than `process` has changed it: it may have new timers.
    pub(super) fn changed(&mut self) {
        self.wakeup = Wakeup::Again;
    }

    /// Prepares to wait. Returns true if it must be called at once.
    pub(super) fn arm(&mut self, now: Instant) -> bool {
        let rest = self.instance.rests_until(now);
        self.resting = rest.is_some();
        let deadline = match self.wakeup {
            _ if self.resting => rest,
            Wakeup::OnReady | Wakeup::Finished => None,
            Wakeup::Again if self.idle_agains >= IDLE_AGAINS => Some(now + IDLE_PAUSE),
            Wakeup::Again => Some(now),
            Wakeup::At(instant) => Some(instant),
        };
        self.due = deadline.is_some_and(|deadline| deadline <= now);
        self.timed = deadline.is_some() && !self.due;
        if let Some(deadline) = deadline
            && self.timed
            && self.timer.deadline().into_std() != deadline
        {
            self.timer.as_mut().reset(deadline.into());
        }
        self.due
    }

    /// Returns the interval between calls; see [`Instance::coalescing`].
    pub(super) fn coalescing(&self) -> Duration {
        self.instance.coalescing()
    }

    /// Returns true if there is already a reason to call it.
    pub(super) fn has_work(&self) -> bool {
        !self.resting && !self.instance.ready().is_empty()
    }

    /// Returns ready when the next call is due.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ready = self.due
            || (!self.resting && self.instance.ready().poll_ready(cx).is_ready())
            || (self.timed && self.timer.as_mut().poll(cx).is_ready());
        match ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
