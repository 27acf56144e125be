//! Names, and the host's answers for them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::{ErrorCode, Lookup, Token};

#[derive(Clone, Default)]
pub struct Directory(Rc<RefCell<Entries>>);

#[derive(Default)]
struct Entries {
    answers: BTreeMap<String, Result<Vec<IpAddr>, ErrorCode>>,
    /// The names that wait for an answer, with their tokens.
    waiting: Vec<(String, Token)>,
    ready: Vec<Token>,
    asked: Vec<String>,
}

impl Directory {
    /// Sets the addresses of a name, separated by commas, or its error.
    pub fn set(&self, name: &str, answer: Result<&str, ErrorCode>) {
        let answer = answer.map(|addresses| {
            let addresses = addresses.split(',');
            addresses
                .map(|address| address.parse().expect("an address"))
                .collect()
        });
        let mut entries = self.0.borrow_mut();
        entries.answers.insert(name.to_owned(), answer);
        let waiting = std::mem::take(&mut entries.waiting);
        for (waiting, token) in waiting {
            match waiting == name {
                true => entries.ready.push(token),
                false => entries.waiting.push((waiting, token)),
            }
        }
    }

    /// The names looked up since the last call.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().asked)
    }

    pub fn take_ready(&self) -> Vec<Token> {
        std::mem::take(&mut self.0.borrow_mut().ready)
    }

    /// Begins a lookup, as a host does.
    pub fn begin(&self, name: &str, port: u16, token: Token) -> Result<Box<dyn Lookup>, ErrorCode> {
        let mut entries = self.0.borrow_mut();
        entries.asked.push(format!("{name}:{port}"));
        match entries.answers.get(name) {
            Some(Err(ErrorCode::AccessDenied)) => return Err(ErrorCode::AccessDenied),
            Some(_) => entries.ready.push(token),
            None => entries.waiting.push((name.to_owned(), token)),
        }
        Ok(Box::new(Asked {
            directory: self.clone(),
            name: name.to_owned(),
            port,
        }))
    }
}

struct Asked {
    directory: Directory,
    name: String,
    port: u16,
}

impl Lookup for Asked {
    fn addresses(&mut self) -> Result<Option<Vec<SocketAddr>>, ErrorCode> {
        let entries = self.directory.0.borrow();
        let Some(answer) = entries.answers.get(&self.name) else {
            return Ok(None);
        };
        let addresses = answer.clone()?.into_iter();
        Ok(Some(
            addresses.map(|ip| SocketAddr::new(ip, self.port)).collect(),
        ))
    }
}
