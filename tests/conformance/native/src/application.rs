//! The application behind the flows: an echo, and a record of what it saw.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;

use crc32fast::Hasher;
use watm_core::{ByteStream, DatagramFlow, Datagrams, Direction, ErrorCode, FlowInfo, Token};

/// Bytes a stream holds between being written and being read, as much as the runtime's.
const STREAM_BOUND: usize = 256 * 1024;

/// The tokens that `process` is called with next.
pub type Ready = Rc<RefCell<Vec<Token>>>;

/// The facts about a flow that are printed.
struct Record {
    kind: &'static str,
    info: FlowInfo,
    bytes: u64,
    /// The checksum of the bytes read. Not a slower kind of checksum: the bench measures this
    /// program too.
    checksum: Hasher,
    datagrams: u64,
    end: &'static str,
}

impl Record {
    fn new(kind: &'static str, info: &FlowInfo) -> Self {
        Record {
            kind,
            info: info.clone(),
            bytes: 0,
            checksum: Hasher::new(),
            datagrams: 0,
            end: "dropped",
        }
    }

    fn add(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.checksum.update(data);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let line = serde_json::json!({
            "event": "flow",
            "kind": self.kind,
            "source": self.info.source.to_string(),
            "destination": self.info.destination.to_string(),
            "peer": self.info.peer,
            "bytes": self.bytes,
            "crc32": self.checksum.clone().finalize(),
            "datagrams": self.datagrams,
            "end": self.end,
        });
        // A reader that is gone does not concern the flows.
        let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
    }
}

/// A stream whose reader gets what its writer wrote.
pub struct EchoStream {
    token: Token,
    ready: Ready,
    buffer: VecDeque<u8>,
    ended: bool,
    record: Record,
}

impl EchoStream {
    /// An empty stream for a flow.
    pub fn new(info: &FlowInfo, token: Token, ready: Ready) -> Self {
        let record = Record::new("tcp", info);
        EchoStream {
            token,
            ready,
            buffer: VecDeque::new(),
            ended: false,
            record,
        }
    }

    fn wake(&self) {
        self.ready.borrow_mut().push(self.token);
    }
}

impl ByteStream for EchoStream {
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        if self.buffer.is_empty() && self.ended {
            return Ok(None);
        }
        let was_full = self.buffer.len() == STREAM_BOUND;
        let count = self.buffer.len().min(max_bytes as usize);
        let mut data = Vec::with_capacity(count);
        let (front, back) = self.buffer.as_slices();
        let of_front = count.min(front.len());
        data.extend_from_slice(&front[..of_front]);
        data.extend_from_slice(&back[..count - of_front]);
        self.buffer.drain(..count);
        // There is room again, or the end is there to be read.
        if count > 0 && (was_full || self.ended) {
            self.wake();
        }
        Ok(Some(data))
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        let count = data.len().min(STREAM_BOUND - self.buffer.len());
        self.buffer.extend(&data[..count]);
        self.record.add(&data[..count]);
        self.wake();
        Ok(count as u32)
    }

    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode> {
        if direction != Direction::Read && !self.ended {
            self.ended = true;
            self.record.end = "end";
            self.wake();
        }
        Ok(())
    }

    fn reset(&mut self, _reason: ErrorCode) {
        self.record.end = "reset";
    }

    fn remote_address(&self) -> Option<std::net::SocketAddr> {
        Some(self.record.info.source)
    }
}

/// A datagram flow whose datagrams come back.
pub struct EchoDatagrams {
    token: Token,
    ready: Ready,
    queue: Datagrams,
    record: Record,
}

impl EchoDatagrams {
    /// An empty flow.
    pub fn new(info: &FlowInfo, token: Token, ready: Ready) -> Self {
        EchoDatagrams {
            token,
            ready,
            queue: Datagrams::default(),
            record: Record::new("udp", info),
        }
    }
}

impl DatagramFlow for EchoDatagrams {
    fn receive(
        &mut self,
        _max_datagrams: u32,
        _max_bytes: u32,
    ) -> Result<Option<Datagrams>, ErrorCode> {
        Ok(Some(std::mem::take(&mut self.queue)))
    }

    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode> {
        for datagram in datagrams.iter() {
            self.record.add(datagram);
            self.record.datagrams += 1;
            self.queue.push(datagram);
        }
        self.ready.borrow_mut().push(self.token);
        Ok(datagrams.lengths.len() as u32)
    }
}
