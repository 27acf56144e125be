//! Headers made by hand.
#![allow(dead_code)] // every test file uses a part of it

#[path = "../../../stream/tests/support/mod.rs"]
mod stream;

pub mod datagrams;

use std::net::{IpAddr, SocketAddr};

use crc::{CRC_32_ISCSI, Crc};

pub use stream::Random;

pub const SIGNATURE: &[u8] = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a";
pub const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
pub const UNIX_PATH: usize = 108;

/// A header of version 2 with this command, this family and protocol, and this rest.
pub fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

/// The header of a client's datagram.
pub fn datagram_header(client: &str, destination: &str) -> Vec<u8> {
    let (client, destination): (SocketAddr, SocketAddr) =
        (client.parse().unwrap(), destination.parse().unwrap());
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let rest = [
        octets(client),
        octets(destination),
        client.port().to_be_bytes().to_vec(),
        destination.port().to_be_bytes().to_vec(),
    ];
    v2(
        0x21,
        if client.is_ipv4() { 0x12 } else { 0x22 },
        &rest.concat(),
    )
}

/// One of these choices.
pub fn choose<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len())]
}
