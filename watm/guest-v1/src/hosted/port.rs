//! A descriptor as a stream that a transport can own.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use wasip1::Errno;
use watm_core::{ByteStream, Direction, ErrorCode, Token};
use watm_stream::{End, Read};

use crate::descriptor::Descriptor;

/// The module's side of a stream: what the transport waits for, and what became of it.
pub struct Port(Rc<RefCell<State>>);

struct State {
    descriptor: Descriptor,
    token: Token,
    /// What fell short, and is to be told of: a new stream is to be read.
    wants_read: bool,
    wants_write: bool,
    /// There is nothing more to be read, or an error has ended both directions.
    over: bool,
    /// Nobody reads or writes at the other end any more; what was written is still there.
    abandoned: bool,
    read_closed: bool,
    write_closed: bool,
    released: Option<Result<(), ErrorCode>>,
}

impl Port {
    pub fn new(descriptor: Descriptor) -> Port {
        Port(Rc::new(RefCell::new(State {
            descriptor,
            token: 0,
            wants_read: true,
            wants_write: false,
            over: false,
            abandoned: false,
            read_closed: false,
            write_closed: false,
            released: None,
        })))
    }

    /// The transport's side. It is asked for once.
    pub fn stream(&self) -> Box<dyn ByteStream> {
        Box::new(Stream(Rc::clone(&self.0)))
    }

    pub fn set_token(&self, token: Token) {
        self.0.borrow_mut().token = token;
    }

    pub fn descriptor(&self) -> Descriptor {
        self.0.borrow().descriptor.again()
    }

    /// The token, which is now told to the transport.
    pub fn wake(&mut self) -> Token {
        let mut state = self.0.borrow_mut();
        state.wants_read = false;
        state.wants_write = false;
        state.token
    }

    /// Whether to wait until it can be read, and until it can be written.
    pub fn needs(&self) -> (bool, bool) {
        let state = self.0.borrow();
        let open = state.released.is_none() && !state.over;
        // What can be written is told even after the end of what can be read.
        let writable = state.released.is_none() && state.descriptor.failure().is_none();
        (open && state.wants_read, writable && state.wants_write)
    }

    /// The other end is about to go, and waits for what it has written to be read.
    pub fn abandon(&mut self) {
        self.0.borrow_mut().abandoned = true;
    }

    /// Whether nothing more will come from it.
    pub fn is_over(&self) -> bool {
        let state = self.0.borrow();
        state.over || state.released.is_some()
    }

    /// How the transport has let go of it, if it has: at the end of both directions, or for
    /// a reason.
    pub fn released(&self) -> Option<Result<(), ErrorCode>> {
        self.0.borrow().released.clone()
    }

    pub fn failure(&self) -> Option<Errno> {
        self.0.borrow().descriptor.failure()
    }
}

struct Stream(Rc<RefCell<State>>);

impl ByteStream for Stream {
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode> {
        let state = &mut *self.0.borrow_mut();
        if state.over || state.read_closed {
            return Ok(None);
        }
        let mut data = Vec::new();
        // Lossless: wasm32 has pointers of 32 bits.
        match End::read(&mut state.descriptor, &mut data, max_bytes as usize) {
            Ok(Read::More) => Ok(Some(data)),
            Ok(Read::Short) if state.abandoned && data.is_empty() => {
                state.over = true;
                Ok(None)
            }
            Ok(Read::Short) => {
                state.wants_read = true;
                Ok(Some(data))
            }
            Ok(Read::End) => {
                state.over = true;
                Ok(None)
            }
            Err(reason) => {
                state.over = true;
                Err(reason)
            }
        }
    }

    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode> {
        let state = &mut *self.0.borrow_mut();
        if state.write_closed {
            return Err(ErrorCode::InvalidState);
        }
        if state.abandoned {
            return Err(ErrorCode::ConnectionAborted);
        }
        let count = End::write(&mut state.descriptor, data)?;
        state.wants_write |= count < data.len();
        Ok(count as u32)
    }

    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode> {
        let state = &mut *self.0.borrow_mut();
        if direction != Direction::Write && !state.read_closed {
            state.read_closed = true;
            End::ignore(&mut state.descriptor)?;
        }
        if direction != Direction::Read && !state.write_closed {
            state.write_closed = true;
            End::finish(&mut state.descriptor)?;
        }
        Ok(())
    }

    fn reset(&mut self, reason: ErrorCode) {
        let state = &mut *self.0.borrow_mut();
        state.released.get_or_insert(Err(reason));
        state.descriptor.again().hang_up();
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        // WATER's hosts tell none.
        None
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let state = &mut *self.0.borrow_mut();
        let closed = state.write_closed && (state.read_closed || state.over);
        let regular = match closed {
            true => Ok(()),
            false => Err(ErrorCode::ConnectionAborted),
        };
        state.released.get_or_insert(regular);
    }
}
