//! What dialers and relays have in common.

use watm_runtime::{Error, Limits, Reach, RoleBuilder};

/// What a module is used with.
#[derive(PartialEq)]
pub(crate) struct Options {
    pub(crate) config: Option<Vec<u8>>,
    pub(crate) allow: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) name: String,
}

impl Options {
    pub(crate) fn apply<R>(&self, builder: RoleBuilder<R>) -> Result<RoleBuilder<R>, Error> {
        let reach = self
            .allow
            .iter()
            .try_fold(Reach::none(), |reach, pattern| reach.allow(pattern))?;
        let builder = builder
            .reach(reach)
            .limits(self.limits.clone())
            .name(&self.name);
        Ok(match &self.config {
            Some(config) => builder.config(config.clone()),
            None => builder,
        })
    }
}

/// As `host:port`; an IPv6 address in brackets.
pub(crate) fn joined(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
