//! Timers of flows, which TCP and UDP each keep.

use std::collections::BTreeSet;

use watm_core::Instant;

use crate::table::FlowId;

/// The alarms of flows, one each, at or before its deadline.
///
/// Deadlines move back with nearly every packet. An alarm is only moved forward, and a flow whose
/// alarm rings too early sets it again. Most packets thus cost no work here, and there are never
/// more alarms than flows.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    alarms: BTreeSet<(Instant, FlowId)>,
}

/// The time of a flow's alarm. Belongs to the flow.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    at: Option<Instant>,
}

impl Timers {
    /// Call the flow by `deadline`.
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

    /// Removes the earliest alarm and returns its flow; the caller must then call [`Alarm::rang`]
    /// on the flow's [`Alarm`].
    pub(crate) fn pop(&mut self) -> Option<FlowId> {
        self.alarms.pop_first().map(|(_, id)| id)
    }

    /// The same, if the alarm is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<FlowId> {
        if self.next()? > now {
            return None;
        }
        self.pop()
    }
}

impl Alarm {
    /// Record that the alarm was removed from [`Timers`].
    pub(crate) fn rang(&mut self) {
        self.at = None;
    }
}
