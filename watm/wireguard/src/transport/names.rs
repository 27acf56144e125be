//! Endpoints that are names: lookups and their answers.

use watm_core::{ErrorCode, Host, Level, Token};
use watm_netstack::PeerId;

use super::{TARGET, WireGuard};
use crate::names::Answer;

impl WireGuard {
    /// Look up the names that are new in the configuration: `all` of them, or only for peers
    /// without another known address.
    pub(super) fn know_names(&mut self, all: bool, host: &mut dyn Host) {
        let peers = &self.peers;
        self.names.retain(|id, name, port| {
            let endpoint = peers.get(id).and_then(|peer| peer.named_endpoint());
            endpoint == Some((name, port))
        });
        let now = host.now();
        for (id, peer) in self.peers.iter() {
            if let Some((name, port)) = peer.named_endpoint()
                && !self.names.has(id)
            {
                let at_once = all || peer.endpoint().is_none();
                self.names.insert(id, name, port, at_once.then_some(now));
            }
        }
    }

    /// Begin lookups that are due, while this generation serves.
    pub(super) fn look_up(&mut self, host: &mut dyn Host) {
        if self.names.is_empty() || !self.generations.is_serving() {
            return;
        }
        for answer in self.names.poll(host) {
            self.take_answer(answer, host);
        }
    }

    /// Handle a ready token that belongs to nothing else.
    pub(super) fn lookup_ready(&mut self, token: Token, host: &mut dyn Host) {
        if let Some(answer) = self.names.ready(token, host.now()) {
            self.take_answer(answer, host);
        }
    }

    /// Try another address of a peer that does not answer. Returns false if no other address is
    /// known.
    pub(super) fn look_elsewhere(&mut self, id: PeerId, host: &mut dyn Host) -> bool {
        let Some(address) = self.names.next(id, host.now()) else {
            return false;
        };
        self.take_answer(Answer::Found(id, address), host);
        true
    }

    fn take_answer(&mut self, answer: Answer, host: &mut dyn Host) {
        let (Answer::Found(id, _) | Answer::Failed(id, _)) = answer;
        let Some(name) = self.names.name(id) else {
            return;
        };
        let now = host.now();
        let (_, sink) = self.netstack_and_sink(now);
        let (streams, mut io) = (sink.streams, sink.io);
        let Some(peer) = sink.peers.get_mut(id) else {
            return;
        };
        let key = peer.origin().name.clone();
        match answer {
            Answer::Found(_, address) => {
                if host.log_enabled(Level::Debug) {
                    let text = format!("trying peer {key} at {address}, an address of {name}");
                    host.log(Level::Debug, TARGET, &text);
                }
                match streams.map(|streams| streams.connect(Some(address), host)) {
                    None | Some(Ok(_)) => peer.look_at(address, &mut io),
                    Some(Err(code)) => {
                        let text = format!(
                            "cannot connect to {address}, an address of the Endpoint {name} of \
                             peer {key}: {code}"
                        );
                        host.log(Level::Warn, TARGET, &text);
                    }
                }
            }
            Answer::Failed(_, code) => {
                let text = format!(
                    "the Endpoint {name} of peer {key}: {}",
                    reason(&code, &name)
                );
                host.log(Level::Warn, TARGET, &text);
            }
        }
    }

    /// The reason why a peer has no address, if its Endpoint is a name that has none. `None` if
    /// that is not known yet, and packets wait.
    pub(super) fn unresolved(&mut self, id: PeerId, host: &mut dyn Host) -> Option<ErrorCode> {
        let code = self.names.failure(id)?.clone();
        let name = self.names.name(id)?;
        // Look it up again for the next caller.
        self.names.next(id, host.now());
        self.look_up(host);
        Some(match code {
            ErrorCode::NotSupported => {
                ErrorCode::Other(format!("the Endpoint {name}: {}", reason(&code, &name)))
            }
            other => other,
        })
    }
}

fn reason(code: &ErrorCode, name: &str) -> String {
    match code {
        ErrorCode::NotSupported => {
            "names cannot be resolved here; write an address and a port".to_owned()
        }
        ErrorCode::AccessDenied => {
            format!(
                "resolving it is not allowed; allow udp://{name}, or write an address and a \
                 port"
            )
        }
        other => format!("{other}; retrying"),
    }
}
