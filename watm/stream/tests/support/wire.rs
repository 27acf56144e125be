//! A stream of a relay whose other end is the test.

use std::collections::VecDeque;

use watm_core::ErrorCode;
use watm_stream::{End, Read};

/// One of the two streams of a relay; the test is at its other end.
#[derive(Debug)]
pub struct Wire {
    /// The bytes sent by the test and not yet read.
    pub sent: VecDeque<u8>,
    /// True if the test sends no more.
    pub ended: bool,
    /// The error of every operation.
    pub broken: Option<ErrorCode>,
    /// True if the test has stopped reading.
    pub deaf: bool,
    /// The most bytes of one read.
    pub sip: usize,
    /// The bytes that can be written before the test makes room.
    pub room: usize,
    /// The bytes written.
    pub received: Vec<u8>,
    /// The number of bytes read.
    pub read: usize,
    pub finished: bool,
    pub ignored: bool,
}

impl Default for Wire {
    fn default() -> Wire {
        Wire {
            sent: VecDeque::new(),
            ended: false,
            broken: None,
            deaf: false,
            sip: usize::MAX,
            room: usize::MAX,
            received: Vec::new(),
            read: 0,
            finished: false,
            ignored: false,
        }
    }
}

impl Wire {
    pub fn send(&mut self, data: &[u8]) {
        self.sent.extend(data);
    }

    pub fn readable(&self) -> bool {
        !self.sent.is_empty() || self.ended || self.broken.is_some()
    }

    pub fn writable(&self) -> bool {
        self.room > 0 || self.deaf || self.broken.is_some()
    }
}

impl End for Wire {
    fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Result<Read, ErrorCode> {
        assert!(max > 0 && !self.ignored);
        if let Some(reason) = &self.broken {
            return Err(reason.clone());
        }
        if self.sent.is_empty() && self.ended {
            return Ok(Read::End);
        }
        let count = self.sent.len().min(max).min(self.sip);
        into.extend(self.sent.drain(..count));
        self.read += count;
        Ok(if count == max {
            Read::More
        } else {
            Read::Short
        })
    }

    fn write(&mut self, data: &[u8]) -> Result<usize, ErrorCode> {
        assert!(!self.finished, "written after the end");
        assert!(!data.is_empty(), "a call for nothing");
        if let Some(reason) = &self.broken {
            return Err(reason.clone());
        }
        if self.deaf {
            return Err(ErrorCode::ConnectionAborted);
        }
        let count = data.len().min(self.room);
        if self.room != usize::MAX {
            self.room -= count;
        }
        self.received.extend_from_slice(&data[..count]);
        Ok(count)
    }

    fn finish(&mut self) -> Result<(), ErrorCode> {
        assert!(!self.finished, "finished twice");
        self.finished = true;
        Ok(())
    }

    fn ignore(&mut self) -> Result<(), ErrorCode> {
        self.ignored = true;
        Ok(())
    }
}
