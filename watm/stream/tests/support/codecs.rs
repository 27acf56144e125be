//! Codecs for the tests.

use std::net::SocketAddr;

use watm_core::{ConfigError, Destination, ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec, Settings, StreamTransport};

/// Changes nothing.
#[derive(Debug, Default)]
pub struct Copy;

impl Codec for Copy {
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        application.append(from);
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }
}

/// Like [`Copy`], until a zero from the network ends it.
#[derive(Debug, Default)]
pub struct UntilZero(bool);

impl Codec for UntilZero {
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        let data = from.bytes().split(|byte| *byte == 0).next();
        application.extend(data.unwrap_or_default());
        self.0 = from.bytes().contains(&0);
        from.clear();
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }

    fn has_ended_inward(&self) -> bool {
        self.0
    }
}

/// Answers every byte from the network with one of its own.
#[derive(Debug, Default)]
pub struct Echo;

impl Codec for Echo {
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        network.extend(from.bytes());
        application.append(from);
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }
}

/// Messages behind a length of two bytes each, after a greeting of both sides: `hello` and the name
/// of a user with a newline. The last message is empty.
#[derive(Debug, Default)]
pub struct Framed {
    user: Option<String>,
    ended: bool,
}

/// The longest message that [`Framed`] makes.
const LONGEST: usize = 1000;

impl Codec for Framed {
    fn begin(&mut self, network: &mut Buffer) {
        network.extend(b"hello me\n");
    }

    fn established(&self) -> bool {
        self.user.is_some()
    }

    fn describe(&self, info: &mut FlowInfo) {
        info.peer = self.user.clone();
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        if self.user.is_none() {
            let Some(end) = from.bytes().iter().position(|byte| *byte == b'\n') else {
                return Ok(());
            };
            let line = String::from_utf8_lossy(&from.bytes()[..end]).into_owned();
            let Some(user) = line.strip_prefix("hello ") else {
                return Err(ErrorCode::AccessDenied);
            };
            self.user = Some(user.to_owned());
            from.consume(end + 1);
        }
        while let [high, low, rest @ ..] = from.bytes() {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(message) = rest.get(..length) else {
                break;
            };
            self.ended |= message.is_empty();
            application.extend(message);
            from.consume(2 + length);
        }
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        for message in from.bytes().chunks(LONGEST) {
            network.extend(&(message.len() as u16).to_be_bytes());
            network.extend(message);
        }
        from.clear();
        Ok(())
    }

    fn end_inward(&mut self, rest: &Buffer, _: &mut Buffer) -> Result<(), ErrorCode> {
        if self.ended && rest.is_empty() {
            Ok(())
        } else {
            Err(ErrorCode::ConnectionReset)
        }
    }

    fn end_outward(&mut self, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.extend(&[0, 0]);
        Ok(())
    }
}

impl Framed {
    /// The stream of a side that greets as `user` and writes `data`.
    pub fn stream(user: &str, data: &[u8]) -> Vec<u8> {
        let mut stream = format!("hello {user}\n").into_bytes();
        for message in data.chunks(LONGEST) {
            stream.extend((message.len() as u16).to_be_bytes());
            stream.extend(message);
        }
        stream.extend([0, 0]);
        stream
    }
}

/// [`Framed`] as a transport without a configuration.
#[derive(Debug)]
pub struct FramedTransport;

impl StreamTransport for FramedTransport {
    type Codec = Framed;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        Settings::parse(config, &[])?;
        Ok(FramedTransport)
    }

    fn accept(&self, _remote: Option<SocketAddr>) -> Result<Framed, ErrorCode> {
        Ok(Framed::default())
    }

    fn dial(&self, _: Option<&Destination>) -> Result<Framed, ErrorCode> {
        Ok(Framed::default())
    }

    fn outer(&self, destination: Option<&Destination>) -> Option<Destination> {
        destination.cloned()
    }
}

/// Asks and answers with a byte each: `f` asks for a flow, and `c` for a connection without one. The answer is `+` or `-`.
#[derive(Debug, Default)]
pub struct Asking {
    dialled: bool,
    asked: Option<u8>,
}

impl Codec for Asking {
    fn begin(&mut self, network: &mut Buffer) {
        if self.dialled {
            network.extend(b"f");
        }
    }

    fn established(&self) -> bool {
        self.asked.is_some()
    }

    fn answer(&mut self, outcome: Result<(), &ErrorCode>, network: &mut Buffer) {
        if !self.dialled {
            network.extend(if outcome.is_ok() { b"+" } else { b"-" });
        }
    }

    fn is_control(&self) -> bool {
        self.asked == Some(b'c')
    }

    fn is_awaited(&self) -> bool {
        self.dialled
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        if self.asked.is_none() {
            self.asked = from.bytes().first().copied();
            from.consume(1);
        }
        match self.asked {
            Some(b'-') => Err(ErrorCode::ConnectionRefused),
            _ => {
                application.append(from);
                Ok(())
            }
        }
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }
}

/// [`Asking`] as a transport without a configuration.
#[derive(Debug)]
pub struct AskingTransport;

impl StreamTransport for AskingTransport {
    type Codec = Asking;

    fn configure(_: &[u8]) -> Result<Self, ConfigError> {
        Ok(AskingTransport)
    }

    fn accept(&self, _remote: Option<SocketAddr>) -> Result<Asking, ErrorCode> {
        Ok(Asking::default())
    }

    fn dial(&self, _: Option<&Destination>) -> Result<Asking, ErrorCode> {
        Ok(Asking {
            dialled: true,
            asked: None,
        })
    }

    fn outer(&self, destination: Option<&Destination>) -> Option<Destination> {
        destination.cloned()
    }
}
