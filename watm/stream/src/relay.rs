//! The byte pump of stream transports, in both directions through a codec. `connection` and the
//! shell for WATER run it.

use std::net::SocketAddr;

use watm_core::{ErrorCode, FlowInfo};

use crate::{Buffer, Codec, End, Read};

/// The most bytes read at once, and the longest message of a codec: the memory of one direction of
/// a connection, without the codec's additions. The buffers of sockets are larger, so that a larger
/// value moves data no faster.
pub const CHUNK: usize = 64 << 10;

/// The bytes queued for the network from which on a codec gets no more input that it could answer:
/// the most that the application writes at once, and as much again.
const ANSWERS: usize = 2 * CHUNK;

/// Reads of one direction in one call: half a megabyte, well under a millisecond's work.
const ROUNDS: usize = 8;

/// Copies between a stream of the network and a stream of the application, through a codec.
///
/// A direction pauses reading until its last read is written: this is the back-pressure. After the
/// end of one stream, the relay writes the queued bytes and then finishes the other stream; the
/// other direction goes on until its own end. [`needs`](Relay::needs) tells what
/// [`run`](Relay::run) needs in order to go on. A caller with edge-triggered readiness passes the
/// streams to look at again as [`Ready`].
pub struct Relay<C> {
    codec: C,
    introduced: bool,
    answered: bool,
    /// True if the codec has refused something, and its last answer is written.
    said_last: bool,
    inward: Lane,
    outward: Lane,
}

/// The streams that may be able to do more than the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// The network's stream.
    pub network: bool,
    /// The application's stream.
    pub application: bool,
}

impl Ready {
    /// Both streams.
    pub const BOTH: Ready = Ready {
        network: true,
        application: true,
    };
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More can be done right away.
    Again,
    /// A stream must become ready first.
    Waiting,
    /// Both directions have ended.
    Done,
}

/// The conditions that a relay waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Data, or the end, to read from the network.
    pub network_read: bool,
    /// Room to write to the network.
    pub network_write: bool,
    /// Data, or the end, to read from the application.
    pub application_read: bool,
    /// Room to write to the application.
    pub application_write: bool,
}

impl<C: Codec> Relay<C> {
    /// Makes a relay. Nothing is read or written before the first [`run`](Relay::run).
    pub fn new(mut codec: C) -> Relay<C> {
        let mut outward = Lane::default();
        codec.begin(&mut outward.to);
        Relay {
            codec,
            introduced: false,
            answered: false,
            said_last: false,
            inward: Lane::default(),
            outward,
        }
    }

    /// Returns true if the codec's handshake is over.
    pub fn established(&self) -> bool {
        self.codec.established()
    }

    /// See [`Codec::describe`].
    pub fn describe(&self, info: &mut FlowInfo) {
        self.codec.describe(info);
    }

    /// Queue [`Codec::introduce`]'s bytes once, before anything else that the application reads.
    pub fn introduce(&mut self, ends: Option<(SocketAddr, SocketAddr)>) {
        if !std::mem::replace(&mut self.introduced, true) {
            self.inward.to.prepend(&self.codec.introduce(ends));
        }
    }

    /// Queue [`Codec::answer`]'s bytes once, before anything else that the network gets.
    pub fn answer(&mut self, outcome: Result<(), &ErrorCode>) {
        if !std::mem::replace(&mut self.answered, true) {
            self.codec.answer(outcome, &mut self.outward.to);
        }
    }

    /// See [`Codec::is_control`].
    pub fn is_control(&self) -> bool {
        self.codec.is_control()
    }

    /// See [`Codec::is_awaited`].
    pub fn is_awaited(&self) -> bool {
        self.codec.is_awaited()
    }

    /// Returns true if an answer to the network preceded an error, and all of it is written.
    pub fn has_said_last(&self) -> bool {
        self.said_last
    }

    /// Returns true if the network's stream ended before the handshake was over.
    pub fn has_ended_early(&self) -> bool {
        self.inward.source_ended && !self.established()
    }

    /// Returns true if nothing is queued for the network.
    pub fn is_flushed(&self) -> bool {
        self.outward.to.is_empty()
    }

    /// Continue the handshake. [`Progress::Done`]: it is over.
    pub fn handshake(&mut self, network: &mut (impl End + ?Sized)) -> Result<Progress, ErrorCode> {
        for _ in 0..ROUNDS {
            let flushed = self.outward.flush(network)?;
            if self.codec.established() {
                return Ok(Progress::Done);
            }
            if !flushed {
                return Ok(Progress::Waiting);
            }
            let Lane {
                from,
                to,
                source_ended,
                ..
            } = &mut self.inward;
            let read = read(network, from)?;
            if read == Read::End {
                *source_ended = true;
                return Err(ErrorCode::Other(
                    "the network's stream ended in the handshake".to_owned(),
                ));
            }
            let told = self.codec.inward(from, to, &mut self.outward.to);
            told.inspect_err(|_| self.say_last(network))?;
            if read == Read::Short && !self.codec.established() && self.outward.to.is_empty() {
                return Ok(Progress::Waiting);
            }
        }
        Ok(Progress::Again)
    }

    /// Continue a connection that is established and carries no flow. [`Progress::Done`]: the other
    /// end has closed it.
    pub fn control(&mut self, network: &mut (impl End + ?Sized)) -> Result<Progress, ErrorCode> {
        for _ in 0..ROUNDS {
            if !self.outward.flush(network)? {
                return Ok(Progress::Waiting);
            }
            let Lane { from, to, .. } = &mut self.inward;
            let read = read(network, from)?;
            if read == Read::End {
                return Ok(Progress::Done);
            }
            self.codec.inward(from, to, &mut self.outward.to)?;
            to.clear();
            if read == Read::Short && self.outward.to.is_empty() {
                return Ok(Progress::Waiting);
            }
        }
        Ok(Progress::Again)
    }

    /// After the refusal of its flow, write the answer as far as the network takes it at once.
    pub fn refuse(&mut self, reason: &ErrorCode, network: &mut (impl End + ?Sized)) {
        self.answer(Err(reason));
        self.say_last(network);
    }

    /// Move what can be moved. After an error the relay is unusable; reset both streams.
    pub fn run(
        &mut self,
        mut ready: Ready,
        network: &mut (impl End + ?Sized),
        application: &mut (impl End + ?Sized),
    ) -> Result<Progress, ErrorCode> {
        if !self.codec.established() {
            match self.handshake(network)? {
                Progress::Done => ready = Ready::BOTH,
                unfinished => return Ok(unfinished),
            }
        }
        self.introduce(None);
        self.answer(Ok(()));
        if self.outward.is_due(ready.application, ready.network) {
            self.run_outward(network, application)?;
        }
        self.inward.end_if(self.codec.has_ended_inward());
        let answers_fit = self.outward.to.len() < ANSWERS;
        if self.inward.is_due(ready.network, ready.application) && answers_fit {
            let ran = self.run_inward(network, application);
            ran.inspect_err(|_| self.say_last(network))?;
            // Write the codec's answers at once: they block nothing else.
            if !self.outward.to.is_empty() && self.outward.wait == Wait::Source {
                self.run_outward(network, application)?;
            }
        }
        Ok(match (self.inward.wait, self.outward.wait) {
            (Wait::Ended, Wait::Ended) => {
                if self.codec.has_ended_inward() {
                    // The codec has announced the end, so that the network's stream may go on. Do
                    // not report this as a failure to the other end, which might then lose data on
                    // its way.
                    network.ignore()?;
                }
                Progress::Done
            }
            (Wait::Nothing, _) | (_, Wait::Nothing) => Progress::Again,
            (Wait::Answers, _) if self.outward.to.len() < ANSWERS => Progress::Again,
            _ => Progress::Waiting,
        })
    }

    /// The conditions under which the next [`run`](Relay::run) moves something.
    pub fn needs(&self) -> Needs {
        let established = self.codec.established();
        Needs {
            // A handshake writes its answers first.
            network_read: self.inward.wait == Wait::Source
                && (established || self.outward.to.is_empty()),
            network_write: !self.outward.to.is_empty(),
            application_read: established && self.outward.wait == Wait::Source,
            application_write: self.inward.wait == Wait::Target,
        }
    }

    /// Handle the loss of the application: write the codec's last bytes to the network, as far as
    /// it takes them at once, and finish it.
    pub fn hang_up(&mut self, network: &mut (impl End + ?Sized)) -> Result<(), ErrorCode> {
        let outward = &mut self.outward;
        if outward.wait == Wait::Ended {
            return Ok(());
        }
        outward.wait = Wait::Ended;
        if self.codec.established() && !outward.source_ended {
            self.codec.end_outward(&mut outward.to)?;
        }
        outward.flush(network)?;
        network.finish()
    }

    /// After a failure, write the codec's last answer if the network takes it at once.
    fn say_last(&mut self, network: &mut (impl End + ?Sized)) {
        self.said_last = !self.is_flushed() && matches!(self.outward.flush(network), Ok(true));
    }

    fn run_inward(
        &mut self,
        network: &mut (impl End + ?Sized),
        application: &mut (impl End + ?Sized),
    ) -> Result<(), ErrorCode> {
        let Relay {
            codec,
            inward,
            outward,
            ..
        } = self;
        inward.run(network, application, |from, to, end| {
            if end {
                return codec.end_inward(from, to).map(|()| Next::GoOn);
            }
            codec.inward(from, to, &mut outward.to)?;
            if outward.wait == Wait::Ended {
                // Answers have no reader any more.
                outward.to.clear();
            }
            if codec.has_ended_inward() {
                return Ok(Next::End);
            }
            Ok(match outward.to.len() < ANSWERS {
                true => Next::GoOn,
                false => Next::Answer,
            })
        })
    }

    fn run_outward(
        &mut self,
        network: &mut (impl End + ?Sized),
        application: &mut (impl End + ?Sized),
    ) -> Result<(), ErrorCode> {
        let Relay { codec, outward, .. } = self;
        outward.run(application, network, |from, to, end| {
            if end {
                codec.end_outward(to)?;
            } else {
                codec.outward(from, to)?;
            }
            Ok(Next::GoOn)
        })
    }
}

/// One direction.
#[derive(Default)]
struct Lane {
    /// Bytes read and not yet translated.
    from: Buffer,
    /// Bytes to write.
    to: Buffer,
    source_ended: bool,
    wait: Wait,
}

/// The next step of a direction after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    /// The codec's answers must be written first.
    Answer,
    /// The end: no more bytes follow.
    End,
}

/// The condition that a direction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Wait {
    /// Something to read. Also the first state.
    #[default]
    Source,
    /// Room to write.
    Target,
    /// Room for the codec's answers, in the other direction.
    Answers,
    Nothing,
    /// It is over.
    Ended,
}

impl Lane {
    fn is_due(&self, source: bool, target: bool) -> bool {
        match self.wait {
            Wait::Source => source,
            Wait::Target => target,
            Wait::Answers | Wait::Nothing => true,
            Wait::Ended => false,
        }
    }

    /// Move bytes from `source` to `target`. `pass` translates the bytes read, with true at the end
    /// of the source, and returns the next step.
    fn run(
        &mut self,
        source: &mut (impl End + ?Sized),
        target: &mut (impl End + ?Sized),
        mut pass: impl FnMut(&mut Buffer, &mut Buffer, bool) -> Result<Next, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        // Set after a read that left nothing more to read for now.
        let mut pause = None;
        for _ in 0..ROUNDS {
            match self.flush(target) {
                Ok(true) => {}
                Ok(false) => {
                    self.wait = Wait::Target;
                    return Ok(());
                }
                // The target has stopped reading, but its own writes still count.
                Err(ErrorCode::ConnectionAborted) => {
                    self.from.clear();
                    self.to.clear();
                    self.wait = Wait::Ended;
                    return source.ignore();
                }
                Err(reason) => return Err(reason),
            }
            if let Some(wait) = pause {
                self.wait = wait;
                return Ok(());
            }
            if self.source_ended {
                self.wait = Wait::Ended;
                return target.finish();
            }
            self.from.adopt(&mut self.to);
            let before = self.from.len();
            let read = read(source, &mut self.from)?;
            self.source_ended = read == Read::End;
            let next = if self.source_ended || self.from.len() > before {
                pass(&mut self.from, &mut self.to, self.source_ended)?
            } else {
                Next::GoOn
            };
            if next == Next::End {
                self.end_if(true);
            } else if next == Next::Answer && !self.source_ended {
                pause = Some(Wait::Answers);
            } else if read == Read::Short {
                pause = Some(Wait::Source);
            }
        }
        self.wait = Wait::Nothing;
        Ok(())
    }

    /// Stop reading if `ended`.
    fn end_if(&mut self, ended: bool) {
        if ended && !self.source_ended {
            self.from.clear();
            self.source_ended = true;
            if self.wait == Wait::Source {
                self.wait = Wait::Nothing;
            }
        }
    }

    /// Write the queued bytes. Returns false if some are left.
    fn flush(&mut self, target: &mut (impl End + ?Sized)) -> Result<bool, ErrorCode> {
        if !self.to.is_empty() {
            let written = target.write(self.to.bytes())?;
            self.to.consume(written);
        }
        Ok(self.to.is_empty())
    }
}

fn read(source: &mut (impl End + ?Sized), from: &mut Buffer) -> Result<Read, ErrorCode> {
    let room = CHUNK.saturating_sub(from.len());
    if room == 0 {
        return Err(ErrorCode::Other(
            "a message is longer than the buffer of a connection".to_owned(),
        ));
    }
    source.read(from.tail(), room)
}
