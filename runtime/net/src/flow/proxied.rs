//! Flows behind local proxies.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use watm_socks::{Carried, Datagrams, Error};

use super::{DatagramFlow, JoinError, StreamFlow};
use crate::ErrorCode;

impl Carried for StreamFlow {
    fn reset(&mut self) {
        self.abort(ErrorCode::ConnectionReset);
    }

    async fn carry(self, client: TcpStream) -> Result<(), Error> {
        let joined = self.join(Box::new(client), Arc::new(())).await;
        joined.map_err(|side| {
            self.abort(ErrorCode::ConnectionReset);
            join_failure(side)
        })
    }
}

impl Datagrams for DatagramFlow {
    fn send(&self, datagram: &[u8]) -> io::Result<bool> {
        match DatagramFlow::send(self, datagram) {
            // No module carries a datagram of this length, so it is dropped.
            Err(ErrorCode::DatagramTooLarge) => Ok(false),
            sent => sent.map_err(io::Error::other),
        }
    }

    async fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        DatagramFlow::receive(self).await.map_err(io::Error::other)
    }
}

/// Returns the error of a proxy for a join that failed on this side.
pub fn join_failure(side: JoinError) -> Error {
    let what = match side {
        JoinError::Flow => "connection",
        JoinError::Upstream => "client",
    };
    Error::Broken(what, io::ErrorKind::ConnectionReset.into())
}
