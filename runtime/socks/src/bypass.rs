use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use watm_seal::{ConnectPattern, Network};

use crate::{Carried, Datagrams, Destination, Dial, Direct, Error, Refusal};

/// Destinations that the host connects to by itself. By default none.
///
/// A name is compared as a name, and never looked up for it: that would tell the network here where a
/// client goes through the dialer. So a pattern with a network or an address is for clients that ask
/// by address, also as text; whoever asks by a name goes past the dialer only if a name, `*.name` or
/// `*` says so, whatever its addresses are. What goes past is looked up by the host.
#[derive(Debug, Clone, Default)]
pub struct Bypass(Vec<ConnectPattern>);

impl Bypass {
    /// And what this pattern admits: `example.com`, `*.example.com`, `10.0.0.0/8`,
    /// `[fd00::/8]:443`, with `tcp://` or `udp://` in front if it is for one alone.
    pub fn add(&mut self, pattern: &str) -> Result<(), String> {
        self.0.extend(ConnectPattern::parse(pattern)?);
        Ok(())
    }

    /// And the patterns in a file, one a line; blank lines and those that begin with `#` say
    /// nothing. The error names the line.
    pub fn add_lines(&mut self, text: &str) -> Result<(), String> {
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                self.add(line)
                    .map_err(|why| format!("line {number}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Whether it is one of them.
    pub fn has(&self, network: Network, to: &Destination) -> bool {
        self.0.iter().any(|pattern| match to {
            Destination::Address(address) => pattern.admits_address(network, address),
            Destination::Name(name, port) => pattern.admits_name(network, name, *port),
        })
    }
}

/// A dialer, but for what goes past it.
pub struct Bypassing<D> {
    dial: D,
    bypass: Bypass,
}

impl<D> Bypassing<D> {
    /// Connect by `dial` to all that `bypass` has not.
    pub fn new(dial: D, bypass: Bypass) -> Bypassing<D> {
        Bypassing { dial, bypass }
    }
}

/// One of two kinds.
pub enum Either<A, B> {
    /// By the dialer.
    Through(A),
    /// By the host.
    Past(B),
}

impl<D: Dial> Dial for Bypassing<D> {
    type Stream = Either<D::Stream, <Direct as Dial>::Stream>;
    type Datagrams = Either<D::Datagrams, <Direct as Dial>::Datagrams>;

    async fn stream(&self, to: &Destination) -> Result<Self::Stream, Refusal> {
        match self.bypass.has(Network::Tcp, to) {
            true => Direct.stream(to).await.map(Either::Past),
            false => self.dial.stream(to).await.map(Either::Through),
        }
    }

    async fn datagrams(&self, to: &Destination) -> Result<Self::Datagrams, Refusal> {
        match self.bypass.has(Network::Udp, to) {
            true => Direct.datagrams(to).await.map(Either::Past),
            false => self.dial.datagrams(to).await.map(Either::Through),
        }
    }
}

impl<A: Carried, B: Carried> Carried for Either<A, B> {
    fn reset(&mut self) {
        match self {
            Either::Through(stream) => stream.reset(),
            Either::Past(stream) => stream.reset(),
        }
    }

    async fn carry(self, client: TcpStream) -> Result<(), Error> {
        match self {
            Either::Through(stream) => stream.carry(client).await,
            Either::Past(stream) => stream.carry(client).await,
        }
    }
}

impl<A: Datagrams, B: Datagrams> Datagrams for Either<A, B> {
    fn send(&self, datagram: &[u8]) -> io::Result<bool> {
        match self {
            Either::Through(flow) => flow.send(datagram),
            Either::Past(flow) => flow.send(datagram),
        }
    }

    async fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Either::Through(flow) => flow.receive().await,
            Either::Past(flow) => flow.receive().await,
        }
    }
}

impl<A: AsyncRead + Unpin, B: AsyncRead + Unpin> AsyncRead for Either<A, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Either::Through(stream) => Pin::new(stream).poll_read(cx, buffer),
            Either::Past(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<A: AsyncWrite + Unpin, B: AsyncWrite + Unpin> AsyncWrite for Either<A, B> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Either::Through(stream) => Pin::new(stream).poll_write(cx, data),
            Either::Past(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Either::Through(stream) => Pin::new(stream).poll_flush(cx),
            Either::Past(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Either::Through(stream) => Pin::new(stream).poll_shutdown(cx),
            Either::Past(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_names_and_addresses_with_networks() {
        let mut bypass = Bypass::default();
        let text = "# mine\n*.example.com\n\n10.0.0.0/8\nudp://*:53\n[fd00::/8]\n";
        bypass.add_lines(text).unwrap();
        for (to, tcp, udp) in [
            ("www.example.com:443", true, true),
            ("example.com:443", false, false),
            ("10.1.2.3:1", true, true),
            ("11.1.2.3:1", false, false),
            ("9.9.9.9:53", false, true),
            ("[fd00::1]:1", true, true),
            ("[::ffff:10.1.2.3]:1", true, true),
            ("WWW.Example.COM.:443", true, true),
            // Its address is in no network that is listed, as far as anybody here knows.
            ("localhost:1", false, false),
            ("10.1.2.3.example.org:1", false, false),
        ] {
            let to = Destination::parse(to, None).unwrap();
            assert_eq!(bypass.has(Network::Tcp, &to), tcp, "{to}");
            assert_eq!(bypass.has(Network::Udp, &to), udp, "{to}");
        }
        let error = bypass.add_lines("a\n\nb b\n").unwrap_err();
        assert!(error.starts_with("line 3: "), "{error}");
    }
}
