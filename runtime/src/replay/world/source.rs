//! The recorded data of one resource, and the answers made of them. Used by the world.

use std::collections::{BTreeMap, VecDeque};

use watm_component::recording::Outcome;
use watm_component::wit::flows::Datagrams;
use watm_component::wit::packets::{Offloads, PacketBatch, PacketInfo};
use watm_component::wit::sockets::{DatagramBatch, DatagramInfo, Place};
use watm_component::wit::types::{ErrorCode, IpAddress, IpSocketAddress};

use super::super::answers::{done, encoded, refused};

/// The recorded data of one resource.
#[derive(Default)]
pub(super) struct Source {
    /// Its handle in the recording.
    pub(super) handle: Option<u32>,
    /// Its token in this run.
    pub(super) token: Option<u64>,
    /// The host's answer when it was opened, if it refused.
    pub(super) refused: Option<ErrorCode>,
    /// The datagrams: with their entries on a socket, without in a datagram flow.
    pub(super) datagrams: VecDeque<(Option<DatagramInfo>, Vec<u8>)>,
    /// The datagrams that other sockets of its address passed to a socket.
    pub(super) passed: VecDeque<(DatagramInfo, Vec<u8>)>,
    /// The place of a socket.
    pub(super) place: Option<Place>,
    pub(super) bytes: VecDeque<u8>,
    pub(super) connections: u64,
    pub(super) accepted: u64,
    pub(super) ended: bool,
    pub(super) read_error: Option<ErrorCode>,
    pub(super) write_error: Option<ErrorCode>,
    /// The answer of a lookup, and true if it was taken.
    pub(super) found: Option<(Vec<IpSocketAddress>, bool)>,
    /// The longest datagram by the encoded address, as last reported.
    pub(super) longest: BTreeMap<Vec<u8>, Option<u32>>,
    /// Hosts that reported datagrams as unreachable, and that the module has not asked for yet.
    pub(super) unreachable: Vec<IpAddress>,
    /// The packets of a device that the module has not taken.
    pub(super) packets: VecDeque<(PacketInfo, Vec<u8>)>,
    /// The MTU of a device.
    pub(super) mtu: Option<u32>,
    /// The offloads of a device, as last set.
    pub(super) offloads: Option<Offloads>,
    pub(super) local: Option<IpSocketAddress>,
    pub(super) remote: Option<IpSocketAddress>,
}

impl Source {
    pub(super) fn waiting(&self) -> u64 {
        if self.token.is_none() {
            return 0;
        }
        let answers = matches!(self.found, Some((_, false)));
        let pieces = self.datagrams.len()
            + self.passed.len()
            + self.packets.len()
            + self.bytes.len()
            + usize::from(answers);
        pieces as u64 + (self.connections - self.accepted)
    }

    fn take_datagram(&mut self, room: usize) -> Option<(Option<DatagramInfo>, Vec<u8>)> {
        if self.datagrams.front()?.1.len() > room {
            return None;
        }
        self.datagrams.pop_front()
    }

    pub(super) fn receive(&mut self, max: u32, max_bytes: u32) -> Vec<u8> {
        if let (true, Some(code)) = (self.datagrams.is_empty(), self.read_error.take()) {
            return refused(code);
        }
        let mut batch = DatagramBatch {
            payload: Vec::new(),
            datagrams: Vec::new(),
        };
        while batch.datagrams.len() < max as usize
            && let Some((info, datagram)) =
                self.take_datagram(max_bytes as usize - batch.payload.len())
        {
            batch.datagrams.extend(info);
            batch.payload.extend(datagram);
        }
        done(&batch)
    }

    pub(super) fn passed(&mut self, max: u32, max_bytes: u32) -> Vec<u8> {
        let mut batch = DatagramBatch {
            payload: Vec::new(),
            datagrams: Vec::new(),
        };
        while batch.datagrams.len() < max as usize
            && let Some((info, datagram)) = self.passed.pop_front()
        {
            if batch.payload.len() + datagram.len() > max_bytes as usize {
                self.passed.push_front((info, datagram));
                break;
            }
            batch.datagrams.push(info);
            batch.payload.extend(datagram);
        }
        done(&batch)
    }

    pub(super) fn receive_packets(&mut self, max: u32, max_bytes: u32) -> Vec<u8> {
        if let (true, Some(code)) = (self.packets.is_empty(), self.read_error.take()) {
            return refused(code);
        }
        let mut batch = PacketBatch {
            payload: Vec::new(),
            packets: Vec::new(),
        };
        while batch.packets.len() < max as usize
            && batch.payload.len() < max_bytes as usize
            && let Some((info, packet)) = self.packets.pop_front()
        {
            batch.packets.push(info);
            batch.payload.extend(packet);
        }
        done(&batch)
    }

    pub(super) fn receive_of_flow(&mut self, max: u32, max_bytes: u32) -> Vec<u8> {
        if self.datagrams.is_empty() {
            if let Some(code) = self.read_error.clone() {
                return refused(code);
            }
            if self.ended {
                return done(&None::<Datagrams>);
            }
        }
        let mut datagrams = Datagrams {
            payload: Vec::new(),
            lengths: Vec::new(),
        };
        while datagrams.lengths.len() < max as usize
            && let Some((_, datagram)) =
                self.take_datagram(max_bytes as usize - datagrams.payload.len())
        {
            datagrams.lengths.push(datagram.len() as u32);
            datagrams.payload.extend(datagram);
        }
        done(&Some(datagrams))
    }

    pub(super) fn read(&mut self, max: u32) -> Vec<u8> {
        if self.bytes.is_empty() {
            if let Some(code) = self.read_error.clone() {
                return refused(code);
            }
            if self.ended {
                return done(&None::<Vec<u8>>);
            }
        }
        let count = self.bytes.len().min(max as usize);
        let bytes: Vec<u8> = self.bytes.drain(..count).collect();
        done(&Some(bytes))
    }

    /// Learns the answer of a lookup.
    pub(super) fn learn_addresses(&mut self, outcome: Outcome<Option<Vec<IpSocketAddress>>>) {
        match outcome {
            Outcome::Done(Some(found)) => self.found = Some((found, false)),
            Outcome::Refused(code) => self.read_error = Some(code),
            Outcome::Done(None) | Outcome::Trapped(_) => {}
        }
    }

    /// Learns datagrams that a socket received. Returns `None` if the recording is damaged.
    pub(super) fn learn_batch(&mut self, outcome: Outcome<DatagramBatch>) -> Option<()> {
        match outcome {
            Outcome::Done(batch) => {
                let mut payload = batch.payload.as_slice();
                for info in batch.datagrams {
                    let (datagram, tail) = payload.split_at_checked(info.len as usize)?;
                    self.datagrams.push_back((Some(info), datagram.to_vec()));
                    payload = tail;
                }
            }
            Outcome::Refused(code) => self.read_error = Some(code),
            Outcome::Trapped(_) => {}
        }
        Some(())
    }

    /// Learns datagrams that were passed to a socket. Returns `None` if the recording is damaged.
    pub(super) fn learn_passed(&mut self, batch: DatagramBatch) -> Option<()> {
        let mut payload = batch.payload.as_slice();
        for info in batch.datagrams {
            let (datagram, tail) = payload.split_at_checked(info.len as usize)?;
            self.passed.push_back((info, datagram.to_vec()));
            payload = tail;
        }
        Some(())
    }

    /// Learns packets that a device received. Returns `None` if the recording is damaged.
    pub(super) fn learn_packets(&mut self, outcome: Outcome<PacketBatch>) -> Option<()> {
        match outcome {
            Outcome::Done(batch) => {
                let mut payload = batch.payload.as_slice();
                for info in batch.packets {
                    let (packet, tail) = payload.split_at_checked(info.len as usize)?;
                    self.packets.push_back((info, packet.to_vec()));
                    payload = tail;
                }
            }
            Outcome::Refused(code) => self.read_error = Some(code),
            Outcome::Trapped(_) => {}
        }
        Some(())
    }

    /// Learns datagrams of a flow. Returns `None` if the recording is damaged.
    pub(super) fn learn_datagrams(&mut self, outcome: Outcome<Option<Datagrams>>) -> Option<()> {
        match outcome {
            Outcome::Done(Some(datagrams)) => {
                let mut payload = datagrams.payload.as_slice();
                for length in datagrams.lengths {
                    let (datagram, tail) = payload.split_at_checked(length as usize)?;
                    self.datagrams.push_back((None, datagram.to_vec()));
                    payload = tail;
                }
            }
            Outcome::Done(None) => self.ended = true,
            Outcome::Refused(code) => self.read_error = Some(code),
            Outcome::Trapped(_) => {}
        }
        Some(())
    }

    /// Learns bytes of a stream.
    pub(super) fn learn_bytes(&mut self, outcome: Outcome<Option<Vec<u8>>>) {
        match outcome {
            Outcome::Done(Some(bytes)) => self.bytes.extend(bytes),
            Outcome::Done(None) => self.ended = true,
            Outcome::Refused(code) => self.read_error = Some(code),
            Outcome::Trapped(_) => {}
        }
    }

    pub(super) fn longest_to(&self, remote: &IpSocketAddress) -> Vec<u8> {
        done(self.longest.get(&encoded(remote)).unwrap_or(&None))
    }

    pub(super) fn addresses(&mut self) -> Vec<u8> {
        if let Some(code) = &self.read_error {
            return refused(code.clone());
        }
        let found = self.found.as_mut().map(|(found, taken)| {
            *taken = true;
            &*found
        });
        done(&found)
    }

    pub(super) fn written(&self, count: u32) -> Vec<u8> {
        match &self.write_error {
            Some(code) => refused(code.clone()),
            None => done(&count),
        }
    }
}
