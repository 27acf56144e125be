//! Devices on systems that have none.

use std::io;
use std::sync::Arc;
use std::task::Context;

use super::entry::{Offloads, PacketInfo};
use crate::ErrorCode;
use crate::counters::Counters;

/// A device that the user gives to a module. There is none on this system.
#[derive(Debug)]
pub enum PacketDevice {}

impl PacketDevice {
    /// Takes a device, of which there is none.
    pub fn given(descriptor: std::convert::Infallible, _: u32) -> io::Result<PacketDevice> {
        match descriptor {}
    }

    /// Fails: only Linux has such devices here.
    pub fn open(_: &str) -> io::Result<PacketDevice> {
        let reason = "devices for packets are available on Linux only";
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }

    /// Returns the MTU.
    pub fn mtu(&self) -> u32 {
        match *self {}
    }
}

/// A device, registered with an executor.
pub enum PacketPort {}

impl PacketPort {
    /// Registers a device, of which there is none.
    pub fn new(device: PacketDevice, _: Arc<Counters>) -> io::Result<PacketPort> {
        match device {}
    }

    /// Returns the MTU.
    pub fn mtu(&self) -> u32 {
        match *self {}
    }

    /// Returns the offloads that the device has.
    pub fn offloads(&self) -> Offloads {
        match *self {}
    }

    /// Receives packets.
    pub fn receive(
        &self,
        _: Offloads,
        _: usize,
        _: usize,
        _: &mut Context<'_>,
    ) -> Result<(Vec<u8>, Vec<PacketInfo>), ErrorCode> {
        match *self {}
    }

    /// Sends packets.
    pub fn send(&self, _: &[u8], _: impl Iterator<Item = PacketInfo>) {
        match *self {}
    }

    /// Discards what has arrived.
    pub fn discard(&self) {
        match *self {}
    }
}
