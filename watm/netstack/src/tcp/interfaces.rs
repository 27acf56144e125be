//! smoltcp's interfaces, one for each MTU of a flow, because an interface's MTU is fixed when it is
//! made.

use std::collections::BTreeMap;

use smoltcp::iface::{self, Interface};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use watm_core::Instant;

use super::flow::smoltcp_time;
use super::wire::{Log, Outgoing, Wire};
use crate::{PacketSink, PeerId};

/// The most interfaces kept. They hold no state of flows, so that one is made anew if more sizes
/// are in use.
const MOST: usize = 64;

/// The interfaces by MTU. See the module's documentation.
#[derive(Default)]
pub(super) struct Interfaces {
    by_mtu: BTreeMap<usize, Interface>,
}

impl Interfaces {
    /// The interface with this MTU, in bytes.
    pub(super) fn of(&mut self, mtu: usize) -> &mut Interface {
        if self.by_mtu.len() >= MOST && !self.by_mtu.contains_key(&mtu) {
            self.by_mtu.clear();
        }
        self.by_mtu.entry(mtu).or_insert_with(|| interface(mtu))
    }
}

/// The device for making an interface: smoltcp asks it for its limits, and sends nothing.
struct Nowhere;

impl PacketSink for Nowhere {
    fn send(&mut self, _: PeerId, _: &[u8]) {}
}

/// Makes an interface that has every address. Each poll sets its time. Its random numbers never
/// leave the stack: see [`Numbers`](super::numbers::Numbers).
fn interface(mtu: usize) -> Interface {
    let config = iface::Config::new(HardwareAddress::Ip);
    let mut log = Log::default();
    let mut wire = Wire {
        mtu,
        incoming: None,
        outgoing: Outgoing {
            peer: 0,
            sink: &mut Nowhere,
            buffer: &mut Vec::new(),
            log: &mut log,
        },
    };
    let mut interface = Interface::new(config, &mut wire, smoltcp_time(Instant::default()));
    interface.set_any_ip(true);
    interface.update_ip_addrs(|addresses| {
        let everything = [
            IpCidr::new(IpAddress::v4(0, 0, 0, 1), 0),
            IpCidr::new(IpAddress::v6(0, 0, 0, 0, 0, 0, 0, 1), 0),
        ];
        addresses.extend(everything);
    });
    interface
}
