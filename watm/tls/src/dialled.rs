//! The codec of a connection to a server. Used by `codec` and `transport`.

use std::rc::Rc;

use rustls::HandshakeKind;
use watm_core::ErrorCode;
use watm_stream::Buffer;

use crate::failure;
use crate::session::Session;
use crate::transport::{Counters, count};

pub struct Dialled {
    session: Session,
    counters: Rc<Counters>,
    established: bool,
}

impl Dialled {
    pub fn new(session: Session, counters: Rc<Counters>) -> Dialled {
        Dialled {
            session,
            counters,
            established: false,
        }
    }

    pub fn begin(&mut self, network: &mut Buffer) {
        self.session.flush(network);
    }

    pub fn is_established(&self) -> bool {
        self.established
    }

    pub fn has_ended_inward(&self) -> bool {
        self.session.has_ended()
    }

    pub fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        let received = self.session.receive(from, application, network);
        received.map_err(|error| {
            if !self.established {
                count(&self.counters.failed);
            }
            failure::code(&error)
        })?;
        if !self.established && !self.session.is_handshaking() {
            self.established = true;
            match self.session.connection().handshake_kind() {
                Some(HandshakeKind::Resumed) => count(&self.counters.resumed),
                _ => count(&self.counters.full),
            }
        }
        Ok(())
    }

    pub fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        self.session
            .send(from, network)
            .map_err(|error| failure::code(&error))
    }

    pub fn end_outward(&mut self, network: &mut Buffer) {
        self.session.end(network);
    }
}
