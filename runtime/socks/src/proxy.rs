//! The proxy: serves SOCKS and HTTP clients that a program has accepted.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::join::join;
use crate::socks5::Request;
use crate::{
    Counters, Destination, Dial, Error, Limits, Users, association, head, http, socks4, socks5,
};

/// The time that a refused client has to close its connection.
const LINGER: Duration = Duration::from_secs(1);

/// The number of bytes that are read from a refused client at most.
const LINGER_BYTES: u64 = 64 << 10;

/// A proxy for clients that the program accepts. Clones share everything.
pub struct Proxy<D> {
    dial: Arc<D>,
    users: Users,
    limits: Limits,
    counters: Arc<Counters>,
}

impl<D> Clone for Proxy<D> {
    fn clone(&self) -> Self {
        Proxy {
            dial: self.dial.clone(),
            users: self.users.clone(),
            limits: self.limits.clone(),
            counters: self.counters.clone(),
        }
    }
}

impl<D: Dial> Proxy<D> {
    /// Creates a proxy for these users, with connections by `dial`.
    pub fn new(dial: Arc<D>, users: Users, limits: Limits) -> Proxy<D> {
        Proxy {
            dial,
            users,
            limits,
            counters: Arc::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Serves a client of SOCKS5 or SOCKS4a until its connection has ended. Dropping the future
    /// ends it.
    pub async fn socks(&self, mut client: TcpStream) -> Result<(), Error> {
        self.counters.clients.add();
        let wanted = async {
            match head::byte(&mut client).await? {
                socks5::VERSION => match socks5::request(&mut client, &mut &self.users).await? {
                    Request::Connect(to) => Ok(Wanted::Stream5(to)),
                    Request::Associate(from) => Ok(Wanted::Datagrams(from)),
                },
                4 => Ok(Wanted::Stream4(
                    socks4::request(&mut client, &self.users).await?,
                )),
                _ => Err(Error::Client("neither SOCKS5 nor SOCKS4")),
            }
        };
        let wanted = match self.in_time(wanted).await {
            Ok(wanted) => wanted,
            Err(error) => return refuse(client, error).await,
        };
        let to = match &wanted {
            Wanted::Datagrams(from) => {
                let (dial, limits) = (self.dial.clone(), self.limits.clone());
                return association::serve(client, from, dial, limits, self.counters.clone()).await;
            }
            Wanted::Stream4(to) | Wanted::Stream5(to) => to,
        };
        let dialled = self.dial.stream(to).await;
        match (&wanted, dialled.as_ref().map(drop)) {
            (Wanted::Stream4(_), outcome) => socks4::answer(&mut client, outcome).await?,
            (_, outcome) => socks5::answer(&mut client, outcome.map(|()| None)).await?,
        }
        match self.counted(to, dialled) {
            Ok(connection) => join(client, connection, &[]).await,
            Err(error) => refuse(client, error).await,
        }
    }

    /// Serves a client of HTTP until its connection has ended. Dropping the future ends it.
    pub async fn http(&self, mut client: TcpStream) -> Result<(), Error> {
        self.counters.clients.add();
        let request = self.in_time(http::request(&mut client, &self.users));
        let request = match request.await {
            Ok(request) => request,
            Err(error) => return refuse(client, error).await,
        };
        let dialled = self.dial.stream(&request.to).await;
        if request.tunnel || dialled.is_err() {
            http::answer(&mut client, dialled.as_ref().map(drop)).await?;
        }
        match self.counted(&request.to, dialled) {
            Ok(connection) => join(client, connection, &request.first).await,
            Err(error) => refuse(client, error).await,
        }
    }

    async fn in_time<T>(&self, said: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let said = timeout(self.limits.handshake, said).await;
        let said = said.unwrap_or(Err(Error::Slow));
        if said.is_err() {
            self.counters.refused.add();
        }
        said
    }

    fn counted<S>(&self, to: &Destination, dialled: Result<S, crate::Refusal>) -> Result<S, Error> {
        match &dialled {
            Ok(_) => self.counters.connected.add(),
            Err(_) => self.counters.failed.add(),
        }
        dialled.map_err(|why| Error::Dial {
            to: to.clone(),
            why,
        })
    }
}

/// Closes the connection of a client that has received its answer. Reads the client's remaining bytes first:
/// closing with unread bytes resets the connection, and the reset can overtake the answer.
async fn refuse(mut client: TcpStream, error: Error) -> Result<(), Error> {
    let closing = async {
        client.shutdown().await?;
        copy(&mut client.take(LINGER_BYTES), &mut sink()).await
    };
    if !matches!(error, Error::Slow | Error::Broken(..)) {
        // Ignored errors: the client is gone, or its time is over.
        let _ = timeout(LINGER, closing).await;
    }
    Err(error)
}

enum Wanted {
    Stream4(Destination),
    Stream5(Destination),
    Datagrams(Destination),
}
