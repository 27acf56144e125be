//! The messages on the control socket between parent and helper.
//!
//! The parent sends the plan. The helper answers with one byte: 0, with the descriptor of the device
//! beside it, and that of the table of sockets where the system has one, or 1, followed by a reason. The parent then sends one byte to let the program start.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

use crate::{Namespace, Plan};

/// The longest part of a plan, in bytes: more than a command line may have.
const LONGEST: u32 = 64 << 20;

/// Sends a plan.
pub fn send_plan(to: &mut UnixStream, plan: &Plan) -> io::Result<()> {
    let mut out = Vec::new();
    let name = |out: &mut Vec<u8>, namespace: &Namespace| part(out, namespace.name.as_bytes());
    write_list(&mut out, plan.namespace.as_slice(), name);
    write_list(&mut out, &plan.program, |out, word| {
        part(out, word.as_bytes())
    });
    write_list(&mut out, &plan.environment, |out, (name, value)| {
        part(out, name.as_bytes());
        part(out, value.as_bytes());
    });
    let address = |out: &mut Vec<u8>, address: &IpAddr| part(out, address.to_string().as_bytes());
    write_list(&mut out, &plan.addresses, address);
    write_list(&mut out, &plan.resolvers, address);
    number(&mut out, plan.mtu);
    write_list(&mut out, &plan.files, |out, (path, content)| {
        part(out, path.as_bytes());
        part(out, content);
    });
    to.write_all(&out)
}

/// Receives a plan.
pub fn receive_plan(from: &mut UnixStream) -> io::Result<Plan> {
    let namespace = |from: &mut UnixStream| Ok(Namespace { name: word(from)? });
    Ok(Plan {
        namespace: read_list(from, namespace)?.pop(),
        program: read_list(from, word)?,
        environment: read_list(from, |from| Ok((word(from)?, word(from)?)))?,
        addresses: read_list(from, read_address)?,
        resolvers: read_list(from, read_address)?,
        mtu: read_number(from)?,
        files: read_list(from, |from| Ok((word(from)?, read_part(from)?)))?,
    })
}

/// The descriptors of a network.
#[derive(Debug)]
pub struct Network {
    /// The device.
    pub device: OwnedFd,
    /// The table of sockets; `None` if the system has none.
    pub sockets: Option<OwnedFd>,
}

/// Sends the descriptors of a network, or the reason why there is none.
pub fn send_network(to: &mut UnixStream, network: &Result<Network, String>) -> io::Result<()> {
    match network {
        Ok(network) => {
            let device = network.device.as_raw_fd();
            let sockets = network.sockets.as_ref().map(AsRawFd::as_raw_fd);
            let length = match sockets {
                Some(_) => BOTH,
                None => ONE,
            };
            let mut byte = [0];
            let mut space = Space::default();
            with_message(&mut byte, &mut space, |message| {
                // SAFETY: the message has room for both descriptors, and those of its length are written
                // here.
                unsafe {
                    let header = libc::CMSG_FIRSTHDR(message);
                    (*header).cmsg_level = libc::SOL_SOCKET;
                    (*header).cmsg_type = libc::SCM_RIGHTS;
                    (*header).cmsg_len = libc::CMSG_LEN(length) as _;
                    message.msg_controllen = libc::CMSG_SPACE(length) as _;
                    let content = libc::CMSG_DATA(header).cast::<[RawFd; 2]>();
                    content.write_unaligned([device, sockets.unwrap_or(device)]);
                }
                // SAFETY: the message and all that it points to live until the call returns.
                check(unsafe { libc::sendmsg(to.as_raw_fd(), message, 0) })
            })?;
            Ok(())
        }
        Err(reason) => {
            let mut out = vec![1];
            part(&mut out, reason.as_bytes());
            to.write_all(&out)
        }
    }
}

/// Receives the descriptors of a network. The outer error is that of the socket, the inner one the
/// helper's reason.
pub fn receive_network(from: &mut UnixStream) -> io::Result<Result<Network, String>> {
    let mut byte = [0];
    let mut space = Space::default();
    let mut network = None;
    let length = with_message(&mut byte, &mut space, |message| {
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message and all that it points to live until the call returns.
        let length = check(unsafe { libc::recvmsg(from.as_raw_fd(), message, flags) })?;
        // SAFETY: the system has written the message. A header of these lengths has one descriptor or
        // both, which the system has just made for this process.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            if !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_RIGHTS
            {
                let long = (*header).cmsg_len as usize == libc::CMSG_LEN(BOTH) as usize;
                let [device, sockets] = libc::CMSG_DATA(header)
                    .cast::<[RawFd; 2]>()
                    .read_unaligned();
                network = Some(Network {
                    device: OwnedFd::from_raw_fd(device),
                    sockets: long.then(|| OwnedFd::from_raw_fd(sockets)),
                });
            }
        }
        Ok(length)
    })?;
    match (length, byte, network) {
        (1, [0], Some(network)) => Ok(Ok(network)),
        (1, [1], _) => {
            let reason = read_part(from)?;
            Ok(Err(String::from_utf8_lossy(&reason).into_owned()))
        }
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The bytes of one descriptor and of both.
const ONE: u32 = size_of::<RawFd>() as u32;
const BOTH: u32 = 2 * ONE;

/// Room for a header and both descriptors, aligned as a header.
#[derive(Default)]
#[repr(align(8))]
struct Space([u8; 32]);

/// Calls the system with a message of one byte and this room for descriptors.
fn with_message<T>(
    byte: &mut [u8; 1],
    space: &mut Space,
    call: impl FnOnce(&mut libc::msghdr) -> io::Result<T>,
) -> io::Result<T> {
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: a message of zeros is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = space.0.as_mut_ptr().cast();
    // SAFETY: it computes a size.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(BOTH) } as _;
    call(&mut message)
}

fn check(done: isize) -> io::Result<isize> {
    match done {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(done),
    }
}

fn number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn part(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn write_list<T>(out: &mut Vec<u8>, list: &[T], mut each: impl FnMut(&mut Vec<u8>, &T)) {
    number(out, list.len() as u32);
    list.iter().for_each(|item| each(out, item));
}

fn read_number(from: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_part(from: &mut UnixStream) -> io::Result<Vec<u8>> {
    let length = read_number(from)?;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn word(from: &mut UnixStream) -> io::Result<OsString> {
    read_part(from).map(OsString::from_vec)
}

fn read_address(from: &mut UnixStream) -> io::Result<IpAddr> {
    let text = read_part(from)?;
    let text = String::from_utf8_lossy(&text);
    text.parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn read_list<T>(
    from: &mut UnixStream,
    each: impl Fn(&mut UnixStream) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let count = read_number(from)?;
    (0..count).map(|_| each(from)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_network_arrives_with_and_without_a_table_of_sockets() {
        for with in [false, true] {
            let (mut helper, mut parent) = UnixStream::pair().unwrap();
            let (mut reading, device) = UnixStream::pair().unwrap();
            let sockets = with.then(|| OwnedFd::from(File::open("/dev/zero").unwrap()));
            let network = Network {
                device: device.into(),
                sockets,
            };
            send_network(&mut helper, &Ok(network)).unwrap();
            let arrived = receive_network(&mut parent).unwrap().unwrap();
            UnixStream::from(arrived.device).write_all(b"!").unwrap();
            reading.read_exact(&mut [0]).unwrap();
            assert_eq!(arrived.sockets.is_some(), with);
            if let Some(sockets) = arrived.sockets {
                File::from(sockets).read_exact(&mut [0; 8]).unwrap();
            }
        }
    }

    #[test]
    fn the_reason_arrives_in_place_of_a_network() {
        let (mut helper, mut parent) = UnixStream::pair().unwrap();
        send_network(&mut helper, &Err("no device".to_owned())).unwrap();
        let reason = receive_network(&mut parent).unwrap().unwrap_err();
        assert_eq!(reason, "no device");
    }
}
