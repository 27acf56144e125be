//! The guest's file descriptors: numbers for what the host holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;

use super::end::End;
use super::errno::Errno;
use crate::flow::FlowPermit;

/// Descriptors of one guest. It has three streams of its own, a configuration, and the
/// connections that it makes.
const MAX_DESCRIPTORS: usize = 64;

/// What a descriptor stands for.
pub(super) enum Resource {
    /// Standard input: at its end.
    Input,
    /// Standard output or error.
    Output(super::output::Stream),
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
    /// Whether it is a connection that the guest got from `env`.
    pub(super) outside: bool,
    /// Of such a one: this end's and the other's.
    pub(super) addresses: (Option<SocketAddr>, Option<SocketAddr>),
    /// As well: its place among the module's connections.
    pub(super) _permit: Option<FlowPermit>,
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

    /// Whether somebody outside of the guest sends and receives the bytes.
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
    /// Give the lowest number that is free.
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

    /// Forget a descriptor. What it stands for ends in both directions.
    pub(super) fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let mut descriptor = self.take(fd)?;
        if let Ok(end) = descriptor.end() {
            // It is dropped next; there is nobody to tell.
            let _ = end.shutdown(true, true);
        }
        Ok(())
    }

    /// Make `to`, which is open, stand for what `from` does, and close `from`.
    pub(super) fn renumber(&mut self, from: i32, to: i32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(());
        }
        self.close(to)?;
        let descriptor = self.take(from)?;
        // Both are within bounds, as was just seen.
        if let Some(slot) = usize::try_from(to).ok().and_then(|i| self.slots.get_mut(i)) {
            *slot = Some(descriptor);
        }
        Ok(())
    }

    /// Go on with what the guest has written.
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
