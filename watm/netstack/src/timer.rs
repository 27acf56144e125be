use std::collections::BTreeSet;

use watm_core::Instant;

use crate::table::FlowId;

/// One alarm a flow, at or before its deadline.
///
/// Deadlines move back with nearly every packet. An alarm is set forward only, and a flow
/// whose alarm rings too early sets it again; so most packets cost no work here, and there
/// are never more alarms than flows.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    alarms: BTreeSet<(Instant, FlowId)>,
}

/// When a flow's alarm is set for. Belongs to the flow.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    at: Option<Instant>,
}

impl Timers {
    /// Have the flow called by `deadline`.
    pub(crate) fn schedule(&mut self, id: FlowId, alarm: &mut Alarm, deadline: Instant) {
        if alarm.at.is_some_and(|at| at <= deadline) {
            return;
        }
        self.cancel(id, alarm);
        self.alarms.insert((deadline, id));
        alarm.at = Some(deadline);
    }

    /// Forget the flow.
    pub(crate) fn cancel(&mut self, id: FlowId, alarm: &mut Alarm) {
        if let Some(at) = alarm.at.take() {
            self.alarms.remove(&(at, id));
        }
    }

    /// The earliest alarm.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// The flow with the earliest alarm, which is over; the caller must tell the flow's
    /// [`Alarm`] with [`Alarm::rang`].
    pub(crate) fn pop(&mut self) -> Option<FlowId> {
        self.alarms.pop_first().map(|(_, id)| id)
    }

    /// The same, if it is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<FlowId> {
        if self.next()? > now {
            return None;
        }
        self.pop()
    }
}

impl Alarm {
    /// The alarm was taken from [`Timers`].
    pub(crate) fn rang(&mut self) {
        self.at = None;
    }
}
