//! The text of a configuration.

use watm_stream::StreamTransport;
use watm_tls::Tls;

use crate::EXAMPLE;

/// Configures TLS with the input, in which `@` stands for the certificate and its key.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input).replace('@', &EXAMPLE.replace('\n', "\\n"));
    match Tls::configure(text.as_bytes()) {
        Ok(tls) => {
            assert!(tls.limits().handshake.as_secs() > 0);
            tls.warnings();
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty());
            assert!(!said.contains("PRIVATE KEY-----"), "it repeats a key");
        }
    }
}
