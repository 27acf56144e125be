//! The import `generations`: messages between the generations of a module during a swap, through
//! `mailboxes`.

use std::task::{Context, Waker};

use wasmtime::component::Resource;

use super::bindings::watm::transport::generations;
use super::{Failure, HostObject, State};
use crate::ErrorCode;
use crate::mailboxes::Message;
use crate::recording::{Digest, import};

/// A generation's mailbox for the others.
pub struct Mailbox {
    waker: Waker,
}

impl HostObject for Mailbox {
    /// Returns 0: the mailboxes bound their contents themselves.
    fn bytes(&self) -> usize {
        0
    }
}

impl generations::Host for State {}

impl generations::HostMailbox for State {
    fn open(&mut self, token: u64) -> Result<Resource<Mailbox>, Failure> {
        self.turn(import::MailboxOpen, || (token,))
            .take(self, |state| {
                if !state.mailboxes.open(state.generation) {
                    return Err(ErrorCode::InvalidState.into());
                }
                let token = state.token(token)?;
                token.notify();
                let waker = token.into();
                Ok(state.keep(Mailbox { waker })?.rep())
            })
            .map(Resource::new_own)
    }

    fn receive(
        &mut self,
        mailbox: Resource<Mailbox>,
        max_messages: u32,
        max_bytes: u32,
    ) -> wasmtime::Result<generations::Mail> {
        self.turn(import::MailboxReceive, || {
            (mailbox.rep(), max_messages, max_bytes)
        })
        .take(self, |state| {
            let mailbox = state.table.get(&mailbox)?;
            let (received, ended) = state.mailboxes.receive(
                state.generation,
                max_messages as usize,
                max_bytes as usize,
                &mut Context::from_waker(&mailbox.waker),
            );
            let mut messages = generations::Messages {
                payload: Vec::with_capacity(
                    received.iter().map(|message| message.content.len()).sum(),
                ),
                messages: Vec::with_capacity(received.len()),
            };
            for message in received {
                messages.messages.push(generations::MessageInfo {
                    generation: message.generation,
                    // A module sent it, and a module's memory is smaller than 4 GiB.
                    len: message.content.len() as u32,
                });
                messages.payload.extend_from_slice(&message.content);
            }
            Ok(generations::Mail { messages, ended })
        })
        .map_err(Failure::into_trap)
    }

    fn send(
        &mut self,
        mailbox: Resource<Mailbox>,
        messages: generations::Messages,
    ) -> Result<u32, Failure> {
        self.turn(import::MailboxSend, || {
            (
                mailbox.rep(),
                Digest::of(&messages.payload),
                &messages.messages,
            )
        })
        .take(self, |state| {
            let infos = &messages.messages;
            let total: u64 = infos.iter().map(|info| u64::from(info.len)).sum();
            if total != messages.payload.len() as u64 {
                return Err(ErrorCode::InvalidArgument.into());
            }
            let mailbox = state.table.get(&mailbox)?;
            let mut cx = Context::from_waker(&mailbox.waker);
            let mut rest = messages.payload.as_slice();
            let mut accepted = 0;
            for info in infos {
                let (content, tail) = rest.split_at(info.len as usize);
                let message = Message {
                    generation: state.generation,
                    content: content.into(),
                };
                if !state.mailboxes.send(info.generation, message, &mut cx) {
                    break;
                }
                rest = tail;
                accepted += 1;
            }
            Ok(accepted)
        })
    }

    fn drop(&mut self, mailbox: Resource<Mailbox>) -> wasmtime::Result<()> {
        self.turn(import::MailboxDrop, || (mailbox.rep(),))
            .take(self, |state| {
                state.release(mailbox)?;
                state.mailboxes.close(state.generation);
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}
