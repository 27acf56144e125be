//! The snapshot for the next generation: the addresses whose datagrams come without a header.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str;

use super::table::Key;

/// The first line, which distinguishes this format from others.
const FORMAT: &str = "proxy-protocol datagrams 1";

/// Encodes one line for each: the source address, the client and its destination.
pub fn write(bound: impl Iterator<Item = (SocketAddr, Key)>) -> Vec<u8> {
    let mut text = FORMAT.to_owned();
    for (proxy, key) in bound {
        text += &format!("\n{proxy} {} {}", key.client, key.destination);
    }
    text.into_bytes()
}

/// Decodes at most `most` lines. Unknown lines are skipped.
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
