//! Record and replay at the boundary of the imports: each import takes one [`Turn`]. `recording`
//! keeps the tape, and `replay` plays it.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Failure, State};
use crate::recording::{Event, Function, Import, Outcome, Recorder, encode};

/// The tape between an instance and the host while its life is recorded or replayed.
#[derive(Clone)]
pub enum Tape {
    /// Everything is written to a file.
    Record(Arc<Recorder>),
    /// Everything comes from a file.
    Replay(Arc<Mutex<dyn Player>>),
}

/// A replay in the place of the host.
pub trait Player: Send {
    /// Returns the module's clock, in the call that begins.
    fn now(&self) -> u64;

    /// Handles an import with these encoded arguments. Returns its encoded [`Outcome`].
    fn import(&mut self, function: Function, arguments: &[u8]) -> Result<Vec<u8>, Stop>;

    /// Takes the encoded answer that the call returned.
    fn returned(&mut self, answer: Vec<u8>);

    /// Returns true to stop the running call now. Asked every 10 ms.
    fn interrupts(&self) -> bool;
}

/// The error of a replay that cannot continue with this instance; the player knows the reason.
pub struct Stop;

/// An import that has begun.
pub(super) enum Turn<T> {
    /// The host answers.
    Live,
    /// The host answers, and the answer is recorded.
    Recorded(Arc<Recorder>),
    /// The recording answers.
    Replayed(Result<T, Failure>),
}

impl State {
    /// Records an event that is not an import.
    pub(super) fn record<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(Tape::Record(recorder)) = &self.tape {
            recorder.event(&event());
        }
    }

    /// Records the answer of a call, or compares it.
    pub(super) fn returned<T: Serialize>(&self, answer: &T) {
        match &self.tape {
            None => {}
            Some(Tape::Record(recorder)) => recorder.returned(answer),
            Some(Tape::Replay(player)) => {
                let mut bytes = Vec::new();
                encode(answer, &mut bytes);
                lock(player).returned(bytes);
            }
        }
    }

    /// Returns the module's clock, if it is a recorded one.
    pub(super) fn replayed_now(&self) -> Option<u64> {
        match &self.tape {
            Some(Tape::Replay(player)) => Some(lock(player).now()),
            _ => None,
        }
    }

    /// Returns true if a replay wants the running call stopped.
    pub(super) fn replay_interrupts(&self) -> bool {
        matches!(&self.tape, Some(Tape::Replay(player)) if lock(player).interrupts())
    }

    /// Begins an import, whose answer has the type that the table of imports gives it. `arguments` is
    /// only called if there is a tape.
    pub(super) fn turn<I: Import, A: Serialize>(
        &self,
        _: I,
        arguments: impl FnOnce() -> A,
    ) -> Turn<I::Answer> {
        match &self.tape {
            None => Turn::Live,
            Some(Tape::Record(recorder)) => {
                recorder.import(I::FUNCTION, &arguments());
                Turn::Recorded(recorder.clone())
            }
            Some(Tape::Replay(player)) => {
                let mut bytes = Vec::new();
                encode(&arguments(), &mut bytes);
                Turn::Replayed(replayed(lock(player).import(I::FUNCTION, &bytes)))
            }
        }
    }
}

fn lock<'a>(player: &'a Mutex<dyn Player>) -> MutexGuard<'a, dyn Player + 'static> {
    player.lock().expect("no panic under this lock")
}

fn replayed<T: DeserializeOwned>(outcome: Result<Vec<u8>, Stop>) -> Result<T, Failure> {
    let stop = |reason: &str| Failure::Trap(wasmtime::Error::msg(reason.to_owned()));
    let bytes = outcome.map_err(|Stop| stop("the replay ends here"))?;
    match postcard::from_bytes::<Outcome<T>>(&bytes) {
        Ok(Outcome::Done(value)) => Ok(value),
        Ok(Outcome::Refused(code)) => Err(Failure::Code(code)),
        Ok(Outcome::Trapped(reason)) => Err(stop(&reason)),
        Err(_) => Err(stop("the recording does not contain such an answer")),
    }
}

impl<T: Serialize> Turn<T> {
    /// Returns the answer: the host's, unless it is replayed.
    pub(super) fn take(
        self,
        state: &mut State,
        host: impl FnOnce(&mut State) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self {
            Turn::Live => host(state),
            Turn::Recorded(recorder) => {
                let result = host(state);
                recorder.outcome(&result);
                result
            }
            Turn::Replayed(result) => result,
        }
    }
}

impl Turn<()> {
    /// Returns the answer, as [`take`](Turn::take). In a replay the host acts too, unless it
    /// refused in the recording.
    pub(super) fn repeat<T>(
        self,
        state: &mut State,
        host: impl FnOnce(&mut State) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self {
            Turn::Replayed(Err(failure)) => Err(failure),
            Turn::Live | Turn::Replayed(Ok(())) => host(state),
            Turn::Recorded(recorder) => {
                let mut value = None;
                let result = host(state).map(|done| value = Some(done));
                recorder.outcome(&result);
                result.map(|()| value.take().expect("set with the result"))
            }
        }
    }
}
