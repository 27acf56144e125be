//! Options for connections to servers of modules, shared by `update`, `publish` and `--update`.

use std::path::PathBuf;

use watm_update::{Credentials, NetworkOptions};

use crate::failure::Failure;
use crate::inputs::read;
use crate::sealing::invalid;

/// Options for connections to servers of modules.
#[derive(clap::Args)]
pub(crate) struct NetworkArguments {
    /// Certificates in PEM to trust in addition to the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Use HTTP without TLS for registries, and follow redirections from HTTPS to HTTP.
    #[arg(long)]
    plain_http: bool,
    /// A file with `user:password` or `Bearer TOKEN` for a server that asks for credentials. They
    /// go to the host of the source, or of the destination.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Another host that gets the password if a registry names it as its token service; may be
    /// given several times.
    #[arg(long, value_name = "HOST")]
    credentials_for: Vec<String>,
}

impl NetworkArguments {
    /// Returns true if any option was given.
    pub(crate) fn is_given(&self) -> bool {
        self.ca.is_some()
            || self.plain_http
            || self.credentials.is_some()
            || !self.credentials_for.is_empty()
    }

    pub(crate) fn options(&self) -> Result<NetworkOptions, Failure> {
        Ok(NetworkOptions {
            authorities: match &self.ca {
                Some(path) => read(path)?,
                None => Vec::new(),
            },
            plain_http: self.plain_http,
            credentials: self.credentials()?,
            credential_hosts: self.credentials_for.clone(),
            ..NetworkOptions::default()
        })
    }

    fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let Some(path) = &self.credentials else {
            return Ok(None);
        };
        let text = String::from_utf8(read(path)?).ok();
        let credentials = text.and_then(|text| Credentials::parse(&text));
        match credentials {
            Some(credentials) => Ok(Some(credentials)),
            None => Err(invalid(path, "must be user:password or Bearer TOKEN")),
        }
    }
}
