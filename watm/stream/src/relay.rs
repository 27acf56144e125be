use std::net::SocketAddr;

use watm_core::{ErrorCode, FlowInfo};

use crate::{Buffer, Codec, End, Read};

/// The most that is read at once, and the longest message of a codec: what a direction of
/// a connection holds on top of what the codec adds. A socket's own buffers are larger, so
/// that more of it moves no faster.
pub const CHUNK: usize = 64 << 10;

/// While so much waits to be written to the network, a codec is given nothing more that it
/// could answer: what the application has written at once, and as much again.
const ANSWERS: usize = 2 * CHUNK;

/// Reads of one direction in one call: half a megabyte, well under a millisecond's work.
const ROUNDS: usize = 8;

/// Copies between a stream of the network's and one of the application's, through a codec.
///
/// A direction reads no more before what it read last is written: that is the back-pressure.
/// After the end of one stream, what is queued is written and then the other stream is
/// finished; the other direction goes on until its own end. What
/// [`run`](Relay::run) needs in order to go on is in [`needs`](Relay::needs); a caller with
/// edge-triggered readiness says with [`Ready`] which streams to look at again.
pub struct Relay<C> {
    codec: C,
    introduced: bool,
    /// The codec has refused something, and its last answer is written.
    said_last: bool,
    inward: Lane,
    outward: Lane,
}

/// Which of the two streams may be able to do more than the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// The network's.
    pub network: bool,
    /// The application's.
    pub application: bool,
}

impl Ready {
    /// Both.
    pub const BOTH: Ready = Ready {
        network: true,
        application: true,
    };
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More can be done right away.
    Again,
    /// A stream has to become ready first.
    Waiting,
    /// Both directions have ended.
    Done,
}

/// What a relay waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// The network has something, or its end, to be read.
    pub network_read: bool,
    /// The network takes more.
    pub network_write: bool,
    /// The application has something, or its end, to be read.
    pub application_read: bool,
    /// The application takes more.
    pub application_write: bool,
}

impl<C: Codec> Relay<C> {
    /// Nothing is read or written before the first [`run`](Relay::run).
    pub fn new(mut codec: C) -> Relay<C> {
        let mut outward = Lane::default();
        codec.begin(&mut outward.to);
        Relay {
            codec,
            introduced: false,
            said_last: false,
            inward: Lane::default(),
            outward,
        }
    }

    /// Whether the codec's handshake is over.
    pub fn established(&self) -> bool {
        self.codec.established()
    }

    /// As [`Codec::describe`].
    pub fn describe(&self, info: &mut FlowInfo) {
        self.codec.describe(info);
    }

    /// As [`Codec::introduce`]: once, before what the application is told else.
    pub fn introduce(&mut self, ends: Option<(SocketAddr, SocketAddr)>) {
        if !std::mem::replace(&mut self.introduced, true) {
            self.inward.to.prepend(&self.codec.introduce(ends));
        }
    }

    /// Whether an error was preceded by an answer to the network, all of which is written.
    pub fn has_said_last(&self) -> bool {
        self.said_last
    }

    /// Whether the network's stream has ended before the handshake was over.
    pub fn has_ended_early(&self) -> bool {
        self.inward.source_ended && !self.established()
    }

    /// Whether nothing waits to be written to the network.
    pub fn is_flushed(&self) -> bool {
        self.outward.to.is_empty()
    }

    /// Go on with the handshake. [`Progress::Done`]: it is over.
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

    /// Move what can be moved. After an error the relay is of no more use, and both streams
    /// should be reset.
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
        if self.outward.is_due(ready.application, ready.network) {
            self.run_outward(network, application)?;
        }
        self.inward.end_if(self.codec.has_ended_inward());
        let answers_fit = self.outward.to.len() < ANSWERS;
        if self.inward.is_due(ready.network, ready.application) && answers_fit {
            let ran = self.run_inward(network, application);
            ran.inspect_err(|_| self.say_last(network))?;
            // What the codec answers is in the way of nobody: it is written at once.
            if !self.outward.to.is_empty() && self.outward.wait == Wait::Source {
                self.run_outward(network, application)?;
            }
        }
        Ok(match (self.inward.wait, self.outward.wait) {
            (Wait::Ended, Wait::Ended) => {
                if self.codec.has_ended_inward() {
                    // It was said inside, and that the stream itself goes on is not a failure of
                    // which the other end should be told: it may lose what is on its way to it.
                    network.ignore()?;
                }
                Progress::Done
            }
            (Wait::Nothing, _) | (_, Wait::Nothing) => Progress::Again,
            (Wait::Answers, _) if self.outward.to.len() < ANSWERS => Progress::Again,
            _ => Progress::Waiting,
        })
    }

    /// What has to happen for the next [`run`](Relay::run) to move something.
    pub fn needs(&self) -> Needs {
        let established = self.codec.established();
        Needs {
            // A handshake answers first.
            network_read: self.inward.wait == Wait::Source
                && (established || self.outward.to.is_empty()),
            network_write: !self.outward.to.is_empty(),
            application_read: established && self.outward.wait == Wait::Source,
            application_write: self.inward.wait == Wait::Target,
        }
    }

    /// The application is gone: say to the network what is to be said last, as far as it
    /// takes it at once, and finish it.
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

    /// The connection has failed: write what the codec answered, if that goes at once.
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
                // Nobody is left to answer.
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
    /// Read, and not yet made something of.
    from: Buffer,
    /// To be written.
    to: Buffer,
    source_ended: bool,
    wait: Wait,
}

/// How a direction goes on after what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    /// The codec's answers first.
    Answer,
    /// There is nothing more to come.
    End,
}

/// What a direction cannot go on without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Wait {
    /// Something to read. At first too.
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

    /// `pass` is what the codec does with what was read; true for the end. It says how to go
    /// on.
    fn run(
        &mut self,
        source: &mut (impl End + ?Sized),
        target: &mut (impl End + ?Sized),
        mut pass: impl FnMut(&mut Buffer, &mut Buffer, bool) -> Result<Next, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        // Set by a read after which there is nothing more to read for now.
        let mut pause = None;
        for _ in 0..ROUNDS {
            match self.flush(target) {
                Ok(true) => {}
                Ok(false) => {
                    self.wait = Wait::Target;
                    return Ok(());
                }
                // It reads no more, but what it has written still counts.
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

    /// Nothing more is to be read, if so.
    fn end_if(&mut self, ended: bool) {
        if ended && !self.source_ended {
            self.from.clear();
            self.source_ended = true;
            if self.wait == Wait::Source {
                self.wait = Wait::Nothing;
            }
        }
    }

    /// Write what there is. False: not all of it.
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
            "a message is longer than a connection's buffer".to_owned(),
        ));
    }
    source.read(from.tail(), room)
}
