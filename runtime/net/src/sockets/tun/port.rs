//! A device at work: packets from it and to it, with or without a header before each.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::device::{PacketDevice, set_offloads};
use super::entry::{Offloads, PacketInfo};
use super::header;
use crate::ErrorCode;
use crate::counters::Counters;

/// The longest packet: the payload of IPv6, and its header.
const LONGEST: usize = 65_535 + 40;

/// The most that one receive returns, whatever the caller asks for, as for datagrams.
const MAX_RECEIVE_BYTES: usize = 4 << 20;
const MAX_RECEIVE_PACKETS: usize = 4096;

/// The room that one receive begins with.
const FIRST_BYTES: usize = 128 << 10;

fn listen(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays the same, and open until it is dropped.
    let listened = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    listened.map_err(|failed| failed.into_parts().1)
}

/// A device, registered with an executor. It outlives the instances of the module that use it,
/// and keeps no packets itself.
pub struct PacketPort {
    device: AsyncFd<OwnedFd>,
    mtu: u32,
    headed: bool,
    /// The offloads that the device has, and those that packets from it use now.
    offloads: Offloads,
    used: Mutex<Offloads>,
    counters: Arc<Counters>,
    gone: AtomicBool,
}

impl PacketPort {
    /// Registers a device. Needs the context of a tokio runtime.
    pub fn new(device: PacketDevice, counters: Arc<Counters>) -> io::Result<PacketPort> {
        Ok(PacketPort {
            mtu: device.mtu(),
            headed: device.headed,
            offloads: device.offloads,
            used: Mutex::default(),
            device: listen(device.descriptor)?,
            counters,
            gone: AtomicBool::new(false),
        })
    }

    /// Returns the MTU.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Returns the offloads that the device has.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Receives packets, laid end to end, and their entries, until one of the limits is reached.
    /// If there are fewer, `cx` is woken when there are more. Entries use these offloads at most, of
    /// those that the device has; a packet that needs others is lost, and counted.
    pub fn receive(
        &self,
        offloads: Offloads,
        max_packets: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> Result<(Vec<u8>, Vec<PacketInfo>), ErrorCode> {
        self.counters.receive_calls.add(1);
        self.use_offloads(offloads);
        let (mut payload, mut packets) = (Vec::new(), Vec::new());
        let max_bytes = max_bytes.min(MAX_RECEIVE_BYTES);
        while packets.len() < max_packets.min(MAX_RECEIVE_PACKETS) && payload.len() < max_bytes {
            if payload.capacity() - payload.len() < LONGEST {
                payload.reserve(FIRST_BYTES.max(LONGEST));
            }
            let start = payload.len();
            match self.poll_read(&mut payload, cx) {
                Poll::Pending => break,
                // An end of the file, which devices do not have.
                Poll::Ready(Ok(PacketInfo { len: 0, .. })) => break,
                Poll::Ready(Ok(info)) if info.is_valid(&payload[start..], offloads) => {
                    packets.push(info);
                }
                Poll::Ready(Ok(_)) => {
                    payload.truncate(start);
                    self.counters.dropped_restarting.add(1);
                }
                Poll::Ready(Err(_)) if !packets.is_empty() => break,
                Poll::Ready(Err(_)) => return Err(ErrorCode::ConnectionAborted),
            }
        }
        self.counters.packets_received.add(packets.len() as u64);
        self.counters.bytes_received.add(payload.len() as u64);
        Ok((payload, packets))
    }

    /// Has the system use these offloads for packets into the device, of those that it has.
    fn use_offloads(&self, offloads: Offloads) {
        let wanted = offloads.and(self.offloads);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        // A device that is gone reports that when it is read.
        if *used != wanted && set_offloads(self.device.get_ref(), wanted).is_ok() {
            *used = wanted;
        }
    }

    /// Appends one packet to the buffer.
    fn poll_read(
        &self,
        buffer: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<PacketInfo>> {
        if self.gone.load(Ordering::Relaxed) {
            return Poll::Ready(Err(Errno::BADFD.into()));
        }
        loop {
            let mut guard = match self.device.poll_read_ready(cx) {
                Poll::Ready(guard) => guard?,
                Poll::Pending if self.reports_error(cx) => {
                    return match read(self.device.get_ref(), self.headed, buffer) {
                        Err(Errno::AGAIN) => Poll::Pending,
                        read => Poll::Ready(read.map_err(|error| self.end(error.into()))),
                    };
                }
                Poll::Pending => return Poll::Pending,
            };
            let read = guard.try_io(|device| {
                read(device.get_ref(), self.headed, buffer).map_err(io::Error::from)
            });
            if let Ok(result) = read {
                return Poll::Ready(result.map_err(|error| self.end(error)));
            }
        }
    }

    /// Returns true if the system reports an error of the device, as it does once the device is
    /// deleted. Otherwise `cx` is woken for that. The executor takes an error alone for the end of
    /// the write direction, which wakes no reader.
    fn reports_error(&self, cx: &mut Context<'_>) -> bool {
        self.device.poll_write_ready(cx).is_ready()
    }

    /// Notes that the device is gone.
    fn end(&self, error: io::Error) -> io::Error {
        self.gone.store(true, Ordering::Relaxed);
        tracing::debug!(target: "watm::server", "device for packets: {error}");
        error
    }

    /// Gives the packets that are laid end to end in `payload` to the system. Their entries are
    /// [valid](PacketInfo::is_valid). Those that the system refuses are lost, and counted.
    pub fn send(&self, payload: &[u8], packets: impl Iterator<Item = PacketInfo>) {
        self.counters.send_calls.add(1);
        let mut rest = payload;
        for info in packets {
            let (packet, tail) = rest.split_at((info.len as usize).min(rest.len()));
            rest = tail;
            match self.write(packet, &info) {
                Ok(_) => {
                    self.counters.packets_sent.add(1);
                    self.counters.bytes_sent.add(packet.len() as u64);
                }
                Err(Errno::AGAIN | Errno::NOBUFS) => self.counters.dropped_send_buffer.add(1),
                // The interface is down, or gone.
                Err(Errno::IO | Errno::BADFD) => self.counters.dropped_send_unreachable.add(1),
                Err(_) => self.counters.dropped_send_other.add(1),
            }
        }
    }

    fn write(&self, packet: &[u8], info: &PacketInfo) -> Result<usize, Errno> {
        if !self.headed {
            return rustix::io::write(self.device.get_ref(), packet);
        }
        let header = header::encode(info, packet);
        let both = [IoSlice::new(&header), IoSlice::new(packet)];
        rustix::io::writev(self.device.get_ref(), &both)
    }

    /// Discards what has arrived, while there is no module to receive it.
    pub fn discard(&self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut buffer = Vec::with_capacity(LONGEST);
        for _ in 0..MAX_RECEIVE_PACKETS {
            buffer.clear();
            match self.poll_read(&mut buffer, &mut cx) {
                Poll::Ready(Ok(PacketInfo { len: 1.., .. })) => {
                    self.counters.dropped_restarting.add(1);
                }
                _ => return,
            }
        }
    }
}

/// A device that outlives this process must work for programs that know nothing of headers.
impl Drop for PacketPort {
    fn drop(&mut self) {
        self.use_offloads(Offloads::default());
    }
}

/// Appends a packet, of which there is room for the longest.
fn read(device: &OwnedFd, headed: bool, buffer: &mut Vec<u8>) -> Result<PacketInfo, Errno> {
    if !headed {
        let length = rustix::io::read(device, spare_capacity(buffer))?;
        // A packet is shorter than 4 GiB.
        return Ok(PacketInfo::plain(length as u32));
    }
    let mut header = [0; header::LEN];
    let spare = buffer.spare_capacity_mut();
    let both = [
        libc::iovec {
            iov_base: header.as_mut_ptr().cast(),
            iov_len: header.len(),
        },
        libc::iovec {
            iov_base: spare.as_mut_ptr().cast(),
            iov_len: spare.len(),
        },
    ];
    // SAFETY: both point to memory of these lengths, which nothing else uses until the call returns.
    let read = unsafe { libc::readv(device.as_raw_fd(), both.as_ptr(), 2) };
    let Ok(read) = usize::try_from(read) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    let length = read.saturating_sub(header.len());
    // SAFETY: the call has written this many bytes after the header.
    unsafe { buffer.set_len(buffer.len() + length) };
    Ok(header::decode(&header, length as u32))
}
