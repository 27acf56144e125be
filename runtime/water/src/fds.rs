//! The guest's file descriptors. `preview1` and `env` look up the host's resources by them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;

use super::end::End;
use super::errno::Errno;
use watm_net::quota::Permit;

/// The number of descriptors that one guest may have: three standard streams, a configuration, and
/// the connections that it makes.
const MAX_DESCRIPTORS: usize = 64;

/// The resource behind a descriptor.
pub(super) enum Resource {
    /// Standard input: at its end.
    Input,
    /// Standard output or error.
    Output(watm_engine::output::Stream),
    /// The directory `/conf`.
    Directory,
    /// A file to read.
    File { content: Arc<[u8]>, offset: u64 },
    /// A stream.
    End(Box<dyn End>),
}

pub(super) struct Descriptor {
    pub(super) resource: Resource,
    pub(super) nonblocking: bool,
    /// True for a connection that the guest got from `env`.
    pub(super) outside: bool,
    /// The addresses of such a connection: this end's and the other's.
    pub(super) addresses: (Option<SocketAddr>, Option<SocketAddr>),
    /// Its place among the module's connections as well.
    pub(super) _permit: Option<Permit>,
}

impl Descriptor {
    pub(super) fn new(resource: Resource) -> Descriptor {
        Descriptor {
            resource,
            nonblocking: false,
            outside: false,
            addresses: (None, None),
            _permit: None,
        }
    }

    /// Returns true if somebody outside of the guest sends and receives the bytes.
    pub(super) fn is_connection(&self) -> bool {
        matches!(&self.resource, Resource::End(end) if end.is_connection())
    }

    pub(super) fn end(&mut self) -> Result<&mut dyn End, Errno> {
        match &mut self.resource {
            Resource::End(end) => Ok(&mut **end),
            _ => Err(Errno::NOTSOCK),
        }
    }
}

#[derive(Default)]
pub(super) struct Descriptors {
    slots: Vec<Option<Descriptor>>,
}

impl Descriptors {
    /// Adds a descriptor under the lowest free number. Fails with `MFILE` if there is none.
    pub(super) fn insert(&mut self, descriptor: Descriptor) -> Result<i32, Errno> {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or(self.slots.len());
        if index >= MAX_DESCRIPTORS {
            return Err(Errno::MFILE);
        }
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(descriptor);
        i32::try_from(index).map_err(|_| Errno::MFILE)
    }

    pub(super) fn get(&mut self, fd: i32) -> Result<&mut Descriptor, Errno> {
        let slot = usize::try_from(fd).ok().and_then(|i| self.slots.get_mut(i));
        slot.and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    /// Closes a descriptor. Its stream ends in both directions.
    pub(super) fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let mut descriptor = self.take(fd)?;
        if let Ok(end) = descriptor.end() {
            // The error has no receiver: the descriptor is dropped next.
            let _ = end.shutdown(true, true);
        }
        Ok(())
    }

    /// Replaces `to`, which is open, with `from`, and closes `from`.
    pub(super) fn renumber(&mut self, from: i32, to: i32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(());
        }
        self.close(to)?;
        let descriptor = self.take(from)?;
        // Both numbers are within bounds: `get` has found them.
        if let Some(slot) = usize::try_from(to).ok().and_then(|i| self.slots.get_mut(i)) {
            *slot = Some(descriptor);
        }
        Ok(())
    }

    /// Returns true if a connection that the guest got from `env` is open.
    pub(super) fn has_connection(&self) -> bool {
        let mut open = self.slots.iter().flatten();
        open.any(|descriptor| descriptor.outside)
    }

    /// Continues to pass on what the guest has written.
    pub(super) fn poll_background(&mut self, cx: &mut Context<'_>) {
        for end in self.ends() {
            end.poll_background(cx);
        }
    }

    pub(super) fn ends(&mut self) -> impl Iterator<Item = &mut dyn End> {
        let open = self.slots.iter_mut().flatten();
        open.filter_map(|descriptor| descriptor.end().ok())
    }

    fn take(&mut self, fd: i32) -> Result<Descriptor, Errno> {
        let slot = usize::try_from(fd).ok().and_then(|i| self.slots.get_mut(i));
        slot.and_then(Option::take).ok_or(Errno::BADF)
    }
}
