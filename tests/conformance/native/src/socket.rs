//! The UDP socket of the process, in the shape the transport expects.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::rc::Rc;

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn, ErrorCode};

/// Bytes for one message, which may be a train.
const MESSAGE: usize = 65_536;

/// A socket with the buffers for a batch of messages.
pub struct Socket {
    socket: mio::net::UdpSocket,
    state: UdpSocketState,
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    local: SocketAddr,
}

impl Socket {
    /// Wrap a bound socket.
    pub fn new(socket: mio::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let local = socket.local_addr()?;
        let buffers = vec![0; BATCH_SIZE * MESSAGE];
        Ok(Socket {
            socket,
            state,
            buffers,
            metas: [RecvMeta::default(); BATCH_SIZE],
            local,
        })
    }
}

impl Socket {
    /// Add up to `messages` to the batch. Returns how many there were.
    fn receive(&mut self, messages: usize, batch: &mut DatagramBatch) -> Result<usize, ErrorCode> {
        let mut slices: Vec<_> = self
            .buffers
            .chunks_mut(MESSAGE)
            .take(messages)
            .map(IoSliceMut::new)
            .collect();
        let count = match self
            .state
            .recv((&self.socket).into(), &mut slices, &mut self.metas)
        {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(ErrorCode::Other(error.to_string())),
        };
        for (meta, buffer) in self.metas[..count].iter().zip(self.buffers.chunks(MESSAGE)) {
            batch.payload.extend_from_slice(&buffer[..meta.len]);
            batch.datagrams.push(Datagram {
                len: meta.len as u32,
                segment_size: (meta.stride < meta.len).then_some(meta.stride as u16),
                remote: meta.addr,
                local: meta.dst_ip,
                ecn: Ecn::NotEct,
            });
        }
        Ok(count)
    }
}

/// The transport's handle to the socket.
pub struct Handle(pub Rc<RefCell<Socket>>);

impl DatagramSocket for Handle {
    fn receive(&mut self, max_datagrams: u32, max_bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        let socket = &mut *self.0.borrow_mut();
        let mut batch = DatagramBatch::default();
        loop {
            let entries = max_datagrams as usize - batch.datagrams.len();
            let bytes = (max_bytes as usize).saturating_sub(batch.payload.len());
            let messages = BATCH_SIZE.min(entries).min(bytes / MESSAGE);
            // Short of the limits only if the socket is empty: that arms it.
            if messages == 0 || socket.receive(messages, &mut batch)? == 0 {
                return Ok(batch);
            }
        }
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        let socket = &*self.0.borrow();
        let mut rest = batch.payload.as_slice();
        for (sent, datagram) in batch.datagrams.iter().enumerate() {
            let (contents, tail) = rest.split_at(datagram.len as usize);
            rest = tail;
            let transmit = Transmit {
                destination: datagram.remote,
                ecn: None,
                contents,
                segment_size: datagram.segment_size.map(usize::from),
                src_ip: datagram.local,
            };
            match socket.state.try_send((&socket.socket).into(), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sent as u32),
                // Anything else is a lost datagram.
                _ => {}
            }
        }
        Ok(batch.datagrams.len() as u32)
    }

    fn local_address(&self) -> SocketAddr {
        self.0.borrow().local
    }
}
