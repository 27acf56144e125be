//! The transport's access to the world, without a sandbox between.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Instant as Clock;

use watm_core::{
    ByteStream, DatagramFlow, DatagramSocket, ErrorCode, FlowInfo, Host, Instant, Level, Listener,
    Token,
};

use crate::application::{EchoDatagrams, EchoStream, Ready};
use crate::socket::{Handle, Socket};

/// The host of one transport with one socket, which has the label "listen".
pub struct NativeHost {
    socket: Rc<RefCell<Socket>>,
    socket_token: Option<Token>,
    ready: Ready,
    epoch: Clock,
    now: Instant,
}

impl NativeHost {
    /// A host that grants this socket.
    pub fn new(socket: mio::net::UdpSocket) -> io::Result<Self> {
        Ok(NativeHost {
            socket: Rc::new(RefCell::new(Socket::new(socket)?)),
            socket_token: None,
            ready: Ready::default(),
            epoch: Clock::now(),
            now: Instant(0),
        })
    }

    /// Take the time for the next call.
    pub fn advance(&mut self) {
        self.now = Instant(self.epoch.elapsed().as_nanos() as u64);
    }

    /// The tokens that became ready since the last time.
    pub fn take_ready(&mut self) -> Vec<Token> {
        let mut ready = std::mem::take(&mut *self.ready.borrow_mut());
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    /// Returns true if the application has made a token ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// The socket can be read or written.
    pub fn socket_ready(&mut self) {
        self.ready.borrow_mut().extend(self.socket_token);
    }
}

impl Host for NativeHost {
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        if label != "listen" {
            return Err(ErrorCode::AccessDenied);
        }
        self.socket_token = Some(token);
        Ok(Box::new(Handle(self.socket.clone())))
    }

    fn listener(&mut self, _label: &str, _token: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        Ok(Box::new(EchoStream::new(info, token, self.ready.clone())))
    }

    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        Ok(Box::new(EchoDatagrams::new(
            info,
            token,
            self.ready.clone(),
        )))
    }

    fn log(&mut self, level: Level, target: &str, message: &str) {
        eprintln!("{level:?} {target}: {message}");
    }

    fn log_enabled(&self, level: Level) -> bool {
        level >= Level::Info
    }

    fn now(&self) -> Instant {
        self.now
    }
}
