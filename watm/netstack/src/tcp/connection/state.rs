//! The states of a synchronized connection (RFC 9293 section 3.3.2).

/// The state of a connection whose handshake is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Established,
    /// The FIN is queued or sent, and not acknowledged.
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed(End),
}

/// The reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Both directions were closed.
    Regular,
    /// The peer sent RST, or this side did.
    Reset,
    /// The peer stopped answering.
    TimedOut,
}

impl State {
    /// The state after the application has closed its direction.
    pub(super) fn closed_here(self) -> State {
        match self {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        }
    }

    /// The state after the peer's FIN.
    pub(super) fn closed_there(self) -> State {
        match self {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        }
    }

    /// The state after the acknowledgement of the local FIN.
    pub(super) fn acknowledged(self) -> State {
        match self {
            State::FinWait1 => State::FinWait2,
            State::Closing => State::TimeWait,
            State::LastAck => State::Closed(End::Regular),
            other => other,
        }
    }

    /// Returns true if the application may send more.
    pub(crate) fn may_send(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }
}

#[cfg(test)]
mod tests {
    use super::State::{self, *};
    use super::*;

    #[test]
    fn the_ways_to_the_end() {
        type Step = fn(State) -> State;
        let ways: [([Step; 3], State); 3] = [
            // The application first.
            (
                [State::closed_here, State::acknowledged, State::closed_there],
                TimeWait,
            ),
            // Both at once.
            (
                [State::closed_here, State::closed_there, State::acknowledged],
                TimeWait,
            ),
            // The peer first.
            (
                [State::closed_there, State::closed_here, State::acknowledged],
                Closed(End::Regular),
            ),
        ];
        for (steps, end) in ways {
            let reached = steps.iter().fold(Established, |state, step| step(state));
            assert_eq!(reached, end);
        }
        assert!(CloseWait.may_send() && !FinWait2.may_send());
    }
}
