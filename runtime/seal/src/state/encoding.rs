//! The encoding of a state file: a magic string, the fields, and a SHA-256 of everything before it,
//! which detects damage. `StateFile` reads and writes it.

use std::collections::BTreeMap;

use super::{Known, MAX_NAMES, State};
use crate::bytes::{Reader, Writer, check_count, malformed};
use crate::manifest::{read_name, write_name};
use crate::{Capabilities, Digest, Name, Refused, Release, Root, SignedRoot};

const MAGIC: &[u8] = b"watm/state/v1\0";
/// The largest state file, in bytes: more than the most names take.
pub(super) const MAX_BYTES: usize = 16 << 20;

pub(super) fn write(state: &State) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes(MAGIC).u8(state.root.is_some().into());
    if let Some(root) = &state.root {
        root.signed().write(&mut writer);
    }
    let count = u16::try_from(state.names.len()).expect("there are at most MAX_NAMES");
    writer.u64(state.greatest_time).u16(count);
    for (name, known) in &state.names {
        write_name(&mut writer, name);
        write_known(&mut writer, known);
    }
    let mut bytes = writer.finish();
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(&digest.0);
    bytes
}

pub(super) fn read(bytes: &[u8]) -> Result<State, Refused> {
    let Some((content, digest)) = bytes.split_last_chunk::<32>() else {
        return Err(malformed("state", "is truncated"));
    };
    if Digest::of(content).0 != *digest {
        return Err(malformed("state", "is damaged: its checksum differs"));
    }
    let Some(rest) = content.strip_prefix(MAGIC) else {
        return Err(malformed("state", "has the wrong magic bytes"));
    };
    let mut reader = Reader::new(rest);
    let root = match reader.bool("root")? {
        true => Some(Root::trust(SignedRoot::read(&mut reader)?)?),
        false => None,
    };
    let greatest_time = reader.u64("greatest time")?;
    let count = usize::from(reader.u16("names")?);
    check_count("names", count, MAX_NAMES)?;
    let mut names: BTreeMap<Name, Known> = BTreeMap::new();
    for _ in 0..count {
        let name = read_name(&mut reader, "name")?;
        let known = read_known(&mut reader)?;
        names.insert(name, known);
    }
    reader.end("state")?;
    Ok(State {
        root,
        greatest_time,
        names,
    })
}

fn write_known(writer: &mut Writer, known: &Known) {
    writer.u8(known.accepted.is_some().into());
    if let Some((release, body)) = &known.accepted {
        release.write(writer);
        writer.bytes(&body.0);
    }
    writer.u8(known.floor.is_some().into());
    if let Some(floor) = known.floor {
        floor.write(writer);
    }
    writer.u8(known.approved.is_some().into());
    if let Some(approved) = &known.approved {
        approved.write(writer);
    }
    writer.u8(known.announced.is_some().into());
    if let Some((release, time)) = known.announced {
        release.write(writer);
        writer.u64(time);
    }
}

fn read_known(reader: &mut Reader<'_>) -> Result<Known, Refused> {
    let mut known = Known::default();
    if reader.bool("accepted")? {
        let release = Release::read(reader, "accepted")?;
        known.accepted = Some((release, Digest(reader.array("accepted")?)));
    }
    if reader.bool("floor")? {
        known.floor = Some(Release::read(reader, "floor")?);
    }
    if reader.bool("approved")? {
        known.approved = Some(Capabilities::read(reader)?);
    }
    if reader.bool("announced")? {
        let release = Release::read(reader, "announced")?;
        known.announced = Some((release, reader.u64("announced")?));
    }
    Ok(known)
}
