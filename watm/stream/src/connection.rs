//! One connection of a stream transport: its two streams and the relay between them. `streams` owns
//! them.

use std::net::SocketAddr;

use watm_core::{ByteStream, Destination, Direction, ErrorCode, FlowInfo, Instant};

use crate::{Codec, Progress, Ready, Relay};

/// One connection and its state.
pub struct Connection<C> {
    relay: Relay<C>,
    network: Box<dyn ByteStream>,
    application: Application,
    /// The time of the accept or dial, and of the last read or write that moved bytes.
    pub since: Instant,
    pub active: Instant,
    /// The deadline of the answer to a dial that waits for one.
    answer_by: Option<Instant>,
    /// The streams to look at.
    pub ready: Ready,
    /// True if the connection is in the queue for its turn.
    pub queued: bool,
}

enum Application {
    /// Offered as a flow after the handshake, which must end before the deadline.
    Later {
        info: FlowInfo,
        deadline: Instant,
    },
    Here(Box<dyn ByteStream>),
    /// None: the connection carries no flow.
    Nobody,
}

/// The result of a step.
pub enum Step {
    /// See [`Progress`].
    Moved(Progress),
    /// The handshake is over: call [`Connection::open`] with the flow.
    Established(FlowInfo),
}

impl<C: Codec> Connection<C> {
    /// Makes a connection that was accepted on `network`. Its handshake must end before `deadline`.
    pub fn accepted(
        codec: C,
        network: Box<dyn ByteStream>,
        info: FlowInfo,
        now: Instant,
        deadline: Instant,
    ) -> Connection<C> {
        let application = Application::Later { info, deadline };
        Connection::new(codec, network, application, now)
    }

    /// Makes a connection for `application`, with `network` still connecting. If the application
    /// waits for an answer, that must come before `answer_by`.
    pub fn dialled(
        codec: C,
        network: Box<dyn ByteStream>,
        mut application: Box<dyn ByteStream>,
        now: Instant,
        answer_by: Instant,
    ) -> Connection<C> {
        let awaited = codec.is_awaited();
        if awaited {
            application.connecting();
        }
        Connection {
            answer_by: awaited.then_some(answer_by),
            ..Connection::new(codec, network, Application::Here(application), now)
        }
    }

    /// Makes a connection without a flow, with `network` still connecting. Its answer must come
    /// before `answer_by`.
    pub fn control(
        codec: C,
        network: Box<dyn ByteStream>,
        now: Instant,
        answer_by: Instant,
    ) -> Connection<C> {
        Connection {
            answer_by: Some(answer_by),
            ..Connection::new(codec, network, Application::Nobody, now)
        }
    }

    fn new(
        codec: C,
        network: Box<dyn ByteStream>,
        application: Application,
        now: Instant,
    ) -> Connection<C> {
        Connection {
            relay: Relay::new(codec),
            network,
            application,
            since: now,
            active: now,
            answer_by: None,
            ready: Ready::BOTH,
            queued: false,
        }
    }

    /// The address of the other end of the network's stream.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.network.remote_address()
    }

    /// Returns true if the application has the flow.
    pub fn is_open(&self) -> bool {
        matches!(self.application, Application::Here(_))
    }

    /// The deadline of the handshake. `None` once it is over.
    pub fn handshake_deadline(&self) -> Option<Instant> {
        match &self.application {
            Application::Later { deadline, .. } => Some(*deadline),
            Application::Here(_) | Application::Nobody => {
                self.answer_by.filter(|_| !self.relay.established())
            }
        }
    }

    /// Attach the flow that the application has taken.
    pub fn open(&mut self, application: Box<dyn ByteStream>) {
        self.relay.answer(Ok(()));
        self.application = Application::Here(application);
        self.ready = Ready::BOTH;
    }

    /// End the connection, whose flow the application has refused.
    pub fn refuse(&mut self, reason: &ErrorCode) {
        self.relay.refuse(reason, &mut *self.network);
        self.fail(reason);
    }

    /// Returns true if the connection carries no flow.
    pub fn is_control(&self) -> bool {
        self.relay.is_control()
    }

    /// Keep the connection open without a flow.
    pub fn hold(&mut self) {
        self.application = Application::Nobody;
        self.ready = Ready::BOTH;
    }

    /// Move as much as possible. An error ends the connection; both streams have been ended by
    /// then.
    pub fn step(&mut self) -> Result<Step, ErrorCode> {
        let ready = std::mem::take(&mut self.ready);
        let result = match &mut self.application {
            Application::Here(application) => {
                let awaited = self.relay.is_awaited() && !self.relay.established();
                let moved = self
                    .relay
                    .run(ready, &mut *self.network, &mut **application);
                if awaited && moved.is_ok() && self.relay.established() {
                    application.connected();
                }
                moved.map(Step::Moved)
            }
            Application::Nobody => attend(&mut self.relay, &mut *self.network).map(Step::Moved),
            Application::Later { info, .. } => match self.relay.handshake(&mut *self.network) {
                Ok(Progress::Done) => {
                    self.relay.describe(info);
                    self.relay.introduce(match info.destination {
                        Destination::Address(destination) => Some((info.source, destination)),
                        Destination::Name(..) => None,
                    });
                    Ok(Step::Established(info.clone()))
                }
                moved => moved.map(Step::Moved),
            },
        };
        result.inspect_err(|reason| self.fail(reason))
    }

    /// Reset the application's stream, and end the network's stream after its last output.
    fn fail(&mut self, reason: &ErrorCode) {
        // Answer the end of a stream with an end, as the socket of any server does when it is
        // closed. Otherwise unwritten data is lost, and the reset shows the other end that
        // something is missing.
        let left = !self.is_open() && self.relay.has_ended_early();
        let polite = left || self.relay.has_said_last();
        if !polite || self.network.shutdown(Direction::Both).is_err() {
            self.network.reset(reason.clone());
        }
        self.reset_application(reason);
    }

    /// End a connection that exceeds a limit or makes room for another one. The other end sees a
    /// regular end, as from other servers: a reset would distinguish this one from them.
    pub fn expire(&mut self) {
        // Fails if the other end is gone, which changes nothing.
        let polite = self.relay.hang_up(&mut *self.network).is_ok()
            && self.relay.is_flushed()
            && self.network.shutdown(Direction::Both).is_ok();
        if !polite {
            self.network.reset(ErrorCode::Timeout);
        }
        self.reset_application(&ErrorCode::Timeout);
    }

    fn reset_application(&mut self, reason: &ErrorCode) {
        if let Application::Here(application) = &mut self.application {
            application.reset(reason.clone());
        }
    }
}

/// Continues a connection without a flow, and ends it when the other end does.
fn attend<C: Codec>(
    relay: &mut Relay<C>,
    network: &mut (dyn ByteStream + 'static),
) -> Result<Progress, ErrorCode> {
    if !relay.established() {
        let progress = relay.handshake(network)?;
        if progress != Progress::Done {
            return Ok(progress);
        }
    }
    let moved = relay.control(network)?;
    if moved == Progress::Done {
        network.shutdown(Direction::Both)?;
    }
    Ok(moved)
}
