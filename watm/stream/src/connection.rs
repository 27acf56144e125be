use std::net::SocketAddr;

use watm_core::{ByteStream, Destination, Direction, ErrorCode, FlowInfo, Instant};

use crate::{Codec, Progress, Ready, Relay};

/// One connection, and what has become of it.
pub struct Connection<C> {
    relay: Relay<C>,
    network: Box<dyn ByteStream>,
    application: Application,
    /// When it was accepted or dialled, and when something could be read or written last.
    pub since: Instant,
    pub active: Instant,
    /// Which streams to look at.
    pub ready: Ready,
    /// Whether it waits for its turn.
    pub queued: bool,
}

enum Application {
    /// Offered a flow when the handshake is over, which has to be before the deadline.
    Later {
        info: FlowInfo,
        deadline: Instant,
    },
    Here(Box<dyn ByteStream>),
}

/// What a step led to.
pub enum Step {
    /// As [`Progress`].
    Moved(Progress),
    /// The handshake is over: [`Connection::open`] is to be called with the flow.
    Established(FlowInfo),
}

impl<C: Codec> Connection<C> {
    /// Somebody opened `network` to here, and has until `deadline` for the handshake.
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

    /// `network` is being opened for `application`.
    pub fn dialled(
        codec: C,
        network: Box<dyn ByteStream>,
        application: Box<dyn ByteStream>,
        now: Instant,
    ) -> Connection<C> {
        Connection::new(codec, network, Application::Here(application), now)
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
            ready: Ready::BOTH,
            queued: false,
        }
    }

    /// Who is at the other end of the network's stream.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.network.remote_address()
    }

    /// Whether it is a flow.
    pub fn is_open(&self) -> bool {
        matches!(self.application, Application::Here(_))
    }

    /// When the handshake has to be over; `None` once it is.
    pub fn handshake_deadline(&self) -> Option<Instant> {
        match &self.application {
            Application::Later { deadline, .. } => Some(*deadline),
            Application::Here(_) => None,
        }
    }

    /// The application has taken the flow.
    pub fn open(&mut self, application: Box<dyn ByteStream>) {
        self.application = Application::Here(application);
        self.ready = Ready::BOTH;
    }

    /// Move what can be moved. An error ends the connection, and both streams have been
    /// told.
    pub fn step(&mut self) -> Result<Step, ErrorCode> {
        let ready = std::mem::take(&mut self.ready);
        let result = match &mut self.application {
            Application::Here(application) => self
                .relay
                .run(ready, &mut *self.network, &mut **application)
                .map(Step::Moved),
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

    /// End the application's stream at once, and the network's after what was said to it.
    fn fail(&mut self, reason: &ErrorCode) {
        // The end of a stream answers its end, as every server's socket does that is closed. Else
        // what is left unwritten will not be: then the other end is to see that something is
        // missing.
        let left = !self.is_open() && self.relay.has_ended_early();
        let polite = left || self.relay.has_said_last();
        if !polite || self.network.shutdown(Direction::Both).is_err() {
            self.network.reset(reason.clone());
        }
        self.reset_application(reason);
    }

    /// Ends it since it takes or lasts too long, or makes way for another. The other end sees a
    /// regular end, as from other servers: a reset would tell this one from them.
    pub fn expire(&mut self) {
        // Fails if the other end is gone, which then changes nothing.
        let polite = self.relay.hang_up(&mut *self.network).is_ok()
            && self.relay.is_flushed()
            && self.network.shutdown(Direction::Both).is_ok();
        if !polite {
            self.network.reset(ErrorCode::Timeout);
        }
        self.reset_application(&ErrorCode::Timeout);
    }

    /// End both streams at once.
    pub fn reset(&mut self, reason: &ErrorCode) {
        self.network.reset(reason.clone());
        self.reset_application(reason);
    }

    fn reset_application(&mut self, reason: &ErrorCode) {
        if let Application::Here(application) = &mut self.application {
            application.reset(reason.clone());
        }
    }
}
