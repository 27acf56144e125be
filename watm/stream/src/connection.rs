use watm_core::{ByteStream, ErrorCode, FlowInfo};

use crate::{Codec, Progress, Ready, Relay};

/// One connection, and what has become of it.
pub struct Connection<C> {
    relay: Relay<C>,
    network: Box<dyn ByteStream>,
    application: Application,
    /// Which streams to look at.
    pub ready: Ready,
    /// Whether it waits for its turn.
    pub queued: bool,
}

enum Application {
    /// Offered a flow when the handshake is over.
    Later(FlowInfo),
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
    /// Somebody opened `network` to here.
    pub fn accepted(codec: C, network: Box<dyn ByteStream>, info: FlowInfo) -> Connection<C> {
        Connection::new(codec, network, Application::Later(info))
    }

    /// `network` is being opened for `application`.
    pub fn dialled(
        codec: C,
        network: Box<dyn ByteStream>,
        application: Box<dyn ByteStream>,
    ) -> Connection<C> {
        Connection::new(codec, network, Application::Here(application))
    }

    fn new(codec: C, network: Box<dyn ByteStream>, application: Application) -> Connection<C> {
        Connection {
            relay: Relay::new(codec),
            network,
            application,
            ready: Ready::BOTH,
            queued: false,
        }
    }

    /// Whether it is a flow.
    pub fn is_open(&self) -> bool {
        matches!(self.application, Application::Here(_))
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
            Application::Later(info) => match self.relay.handshake(&mut *self.network) {
                Ok(Progress::Done) => {
                    self.relay.describe(info);
                    Ok(Step::Established(info.clone()))
                }
                moved => moved.map(Step::Moved),
            },
        };
        result.inspect_err(|reason| self.reset(reason))
    }

    /// End both streams at once.
    pub fn reset(&mut self, reason: &ErrorCode) {
        self.network.reset(reason.clone());
        if let Application::Here(application) = &mut self.application {
            application.reset(reason.clone());
        }
    }
}
