//! The handshake with an HTTP proxy: CONNECT (RFC 9110, section 9.3.6). No error quotes a user or a password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use httparse::{EMPTY_HEADER, Response, Status};
use watm_core::Destination;

use super::Step;
use crate::config::User;

/// The longest head of an answer, in bytes, as servers usually limit their own.
const LONGEST: usize = 16 << 10;
const FIELDS: usize = 100;

/// Bytes of the reason in an answer that an error has at most.
const REASON: usize = 80;

/// A request for a connection.
pub struct Connect(Vec<u8>);

impl Connect {
    /// Makes a request. `None` if the name is not one that HTTP can express.
    pub fn new(user: Option<&User>, to: &Destination) -> Option<Connect> {
        let host = to.to_string();
        if !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
        if let Some(User { name, password }) = user {
            let both = STANDARD.encode(format!("{name}:{password}"));
            request += &format!("Proxy-Authorization: Basic {both}\r\n");
        }
        request += "\r\n";
        Some(Connect(request.into_bytes()))
    }

    /// The request.
    pub fn request(&self) -> &[u8] {
        &self.0
    }

    /// Reads an answer. An error is the reason why the request failed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, String> {
        let mut fields = [EMPTY_HEADER; FIELDS];
        let mut response = Response::new(&mut fields);
        let head = match response.parse(bytes) {
            Ok(Status::Complete(head)) if head <= LONGEST => head,
            Ok(Status::Partial) if bytes.len() <= LONGEST => return Ok(Step::Short),
            Ok(_) => {
                return Err(format!(
                    "the answer of the HTTP proxy is longer than {LONGEST} bytes"
                ));
            }
            Err(_) => return Err("the proxy does not speak HTTP".to_owned()),
        };
        let reason = shown(response.reason.unwrap_or_default());
        match response.code.unwrap_or_default() {
            // The next answer follows.
            100 | 102..=199 => Ok(Step::Read(head)),
            200..=299 => Ok(Step::Over(head, None)),
            407 => Err(format!(
                "the HTTP proxy answered: 407 {reason} (it wants another user or password)"
            )),
            code => Err(format!("the HTTP proxy answered: {code} {reason}")),
        }
    }
}

/// The reason of an answer, for a message: one line, and not long.
fn shown(reason: &str) -> String {
    let shown = reason.chars().filter(|c| !c.is_control());
    shown.take(REASON).collect()
}
