//! The codec of one connection, accepted or dialled. Used by `transport`.

use std::net::SocketAddr;

use watm_core::{ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec};

use crate::accepted::Accepted;
use crate::dialled::Dialled;

/// The TLS codec of one connection.
pub struct TlsCodec(Side);

enum Side {
    Accepted(Box<Accepted>),
    Dialled(Box<Dialled>),
}

impl TlsCodec {
    pub(crate) fn accepted(side: Accepted) -> TlsCodec {
        TlsCodec(Side::Accepted(Box::new(side)))
    }

    pub(crate) fn dialled(side: Dialled) -> TlsCodec {
        TlsCodec(Side::Dialled(Box::new(side)))
    }
}

impl Codec for TlsCodec {
    fn begin(&mut self, network: &mut Buffer) {
        match &mut self.0 {
            Side::Accepted(_) => {}
            Side::Dialled(side) => side.begin(network),
        }
    }

    fn established(&self) -> bool {
        match &self.0 {
            Side::Accepted(side) => side.is_established(),
            Side::Dialled(side) => side.is_established(),
        }
    }

    fn describe(&self, info: &mut FlowInfo) {
        match &self.0 {
            Side::Accepted(side) => side.describe(info),
            Side::Dialled(_) => {}
        }
    }

    fn introduce(&self, ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
        match &self.0 {
            Side::Accepted(side) => side.introduce(ends),
            Side::Dialled(_) => Vec::new(),
        }
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        match &mut self.0 {
            Side::Accepted(side) => side.inward(from, application, network),
            Side::Dialled(side) => side.inward(from, application, network),
        }
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        match &mut self.0 {
            Side::Accepted(side) => side.outward(from, network),
            Side::Dialled(side) => side.outward(from, network),
        }
    }

    fn has_ended_inward(&self) -> bool {
        match &self.0 {
            Side::Accepted(side) => side.has_ended_inward(),
            Side::Dialled(side) => side.has_ended_inward(),
        }
    }

    fn end_inward(&mut self, _rest: &Buffer, _application: &mut Buffer) -> Result<(), ErrorCode> {
        let may_end = match &self.0 {
            Side::Accepted(side) => side.may_end(),
            Side::Dialled(_) => false,
        };
        match may_end || self.has_ended_inward() {
            true => Ok(()),
            false => Err(ErrorCode::Other(
                "the connection ended without close_notify: it may be truncated".to_owned(),
            )),
        }
    }

    fn end_outward(&mut self, network: &mut Buffer) -> Result<(), ErrorCode> {
        match &mut self.0 {
            Side::Accepted(side) => side.end_outward(network),
            Side::Dialled(side) => side.end_outward(network),
        }
        Ok(())
    }
}
