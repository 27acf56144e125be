//! The handshake with a SOCKS5 proxy. No error quotes a user or a password.

use watm_core::Destination;
use watm_socks_wire::{
    Address, Host, NO_AUTHENTICATION, NOTHING_ACCEPTABLE, Reply, Request, USER_AND_PASSWORD,
    Unread, VERSION, write_credentials, write_methods, write_request,
};
use watm_stream::Buffer;

use super::Step;
use crate::config::User;
use crate::destination;
use crate::shared::Relay;

/// The messages of a client, and the one that the proxy sends next.
pub struct Steps {
    user: Option<User>,
    request: Vec<u8>,
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    Method,
    /// The answer to the name and the password.
    Known,
    Reply,
}

impl Steps {
    /// Makes the messages of this request. `None` if the address has no form in SOCKS5.
    pub fn new(user: Option<&User>, command: u8, address: Address<'_>) -> Option<Steps> {
        let mut request = Vec::new();
        write_request(&Request { command, address }, &mut request).then(|| Steps {
            user: user.cloned(),
            request,
            next: Next::Method,
        })
    }

    /// The first message.
    pub fn begin(&self) -> Vec<u8> {
        let mut message = Vec::new();
        match &self.user {
            // Some proxies need no user and refuse clients that name one.
            Some(_) => write_methods(&[NO_AUTHENTICATION, USER_AND_PASSWORD], &mut message),
            None => write_methods(&[NO_AUTHENTICATION], &mut message),
        }
        message
    }

    /// Reads the next message, and writes the answer. An error is the reason why the request failed.
    pub fn step(&mut self, bytes: &[u8], network: &mut Buffer) -> Result<Step, String> {
        match self.next {
            Next::Method => self.method(bytes, network),
            Next::Known => self.known(bytes, network),
            Next::Reply => reply(bytes),
        }
    }

    fn method(&mut self, bytes: &[u8], network: &mut Buffer) -> Result<Step, String> {
        let Some(&[version, method]) = bytes.first_chunk() else {
            return Ok(Step::Short);
        };
        if version != VERSION {
            return Err("the proxy does not speak SOCKS5".to_owned());
        }
        match (method, &self.user) {
            (NO_AUTHENTICATION, _) => {
                network.extend(&self.request);
                self.next = Next::Reply;
            }
            (USER_AND_PASSWORD, Some(user)) => {
                let mut message = Vec::new();
                write_credentials(user.name.as_bytes(), user.password.as_bytes(), &mut message);
                network.extend(&message);
                self.next = Next::Known;
            }
            (USER_AND_PASSWORD | NOTHING_ACCEPTABLE, None) => {
                return Err("the SOCKS5 proxy wants a user and a password".to_owned());
            }
            (NOTHING_ACCEPTABLE, Some(_)) => {
                return Err("the SOCKS5 proxy accepts no user and password".to_owned());
            }
            (other, _) => {
                return Err(format!(
                    "the SOCKS5 proxy chose method {other}, which was not offered"
                ));
            }
        }
        Ok(Step::Read(2))
    }

    fn known(&mut self, bytes: &[u8], network: &mut Buffer) -> Result<Step, String> {
        let Some(&[_version, status]) = bytes.first_chunk() else {
            return Ok(Step::Short);
        };
        if status != 0 {
            return Err("the SOCKS5 proxy refused the user or the password".to_owned());
        }
        network.extend(&self.request);
        self.next = Next::Reply;
        Ok(Step::Read(2))
    }
}

fn reply(bytes: &[u8]) -> Result<Step, String> {
    match Reply::parse(bytes) {
        Ok((Reply::SUCCEEDED, address, length)) => Ok(Step::Over(length, Some(relay(address)))),
        Ok((reply, ..)) => Err(format!("the SOCKS5 proxy answered: {reply}")),
        Err(Unread::Short(_)) => Ok(Step::Short),
        Err(Unread::Wrong(wrong)) => Err(format!("the SOCKS5 proxy sent {wrong}")),
    }
}

/// The place for datagrams.
fn relay(address: Address<'_>) -> Relay {
    let own = matches!(address.host, Host::Ip(ip) if ip.is_unspecified());
    match destination::of(address) {
        Some(Destination::Address(address)) if own => Relay::Own(address.port()),
        Some(other) => Relay::At(other),
        None => Relay::Own(address.port),
    }
}
