//! Bypass: destinations that the host connects to directly, beside a dialer. The command `watm`
//! uses it for `--bypass`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use watm_types::{ConnectPattern, Network};

use crate::{Carried, Datagrams, Destination, Dial, Direct, Error, Refusal};

/// Destinations that the host connects to directly. None by default.
///
/// Names are compared as names and never resolved: a lookup would tell the local network where a
/// client goes through the dialer. A pattern with a network or an address therefore applies to
/// clients that name an address, also as text. A destination given as a name bypasses the dialer
/// only by a pattern for names: the name itself, `*.name` or `*`. The host resolves the names that
/// bypass the dialer.
#[derive(Debug, Clone, Default)]
pub struct Bypass(Vec<ConnectPattern>);

impl Bypass {
    /// Adds the destinations of a pattern: `example.com`, `*.example.com`, `10.0.0.0/8`,
    /// `[fd00::/8]:443`, with `tcp://` or `udp://` in front for one of them alone.
    pub fn add(&mut self, pattern: &str) -> Result<(), String> {
        self.0.extend(ConnectPattern::parse(pattern)?);
        Ok(())
    }

    /// Adds the patterns in a file, one a line. Skips blank lines and lines that begin with `#`.
    /// The error names the line.
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

    /// Returns true if a pattern matches the destination.
    pub fn has(&self, network: Network, to: &Destination) -> bool {
        self.0.iter().any(|pattern| match to {
            Destination::Address(address) => pattern.admits_address(network, address),
            Destination::Name(name, port) => pattern.admits_name(network, name, *port),
        })
    }
}

/// A dialer with a bypass.
pub struct Bypassing<D> {
    dial: D,
    bypass: Bypass,
}

impl<D> Bypassing<D> {
    /// Connects through `dial` to all destinations that do not match `bypass`.
    pub fn new(dial: D, bypass: Bypass) -> Bypassing<D> {
        Bypassing { dial, bypass }
    }
}

/// A connection of one of two kinds.
pub enum Either<A, B> {
    /// A connection through the dialer.
    Through(A),
    /// A connection by the host.
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
            // Its address is in no listed network, without a lookup.
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
