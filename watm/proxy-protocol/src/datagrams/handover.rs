//! What the next generation is told: whose datagrams come without a header.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str;

use super::table::Key;

/// Before the lines, so that another format is not taken for this one.
const FORMAT: &str = "proxy-protocol datagrams 1";

/// A line for each: where from, the client, and where it sent to.
pub fn write(bound: impl Iterator<Item = (SocketAddr, Key)>) -> Vec<u8> {
    let mut text = FORMAT.to_owned();
    for (proxy, key) in bound {
        text += &format!("\n{proxy} {} {}", key.client, key.destination);
    }
    text.into_bytes()
}

/// The same, at most so many; what is not understood is left out.
pub fn read(snapshot: &[u8], most: usize) -> BTreeMap<SocketAddr, Key> {
    let Some(lines) = str::from_utf8(snapshot)
        .ok()
        .and_then(|text| text.strip_prefix(FORMAT))
    else {
        return BTreeMap::new();
    };
    let entry = |line: &str| {
        let mut fields = line
            .split(' ')
            .map(|field| field.parse::<SocketAddr>().ok());
        let (proxy, client, destination) = (fields.next()??, fields.next()??, fields.next()??);
        let key = Key {
            proxy: proxy.ip(),
            client,
            destination,
        };
        Some((proxy, key))
    };
    lines.lines().filter_map(entry).take(most).collect()
}
