//! The DNS servers and search domains of a resolver.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::cache::Cache;

/// The most search domains that are tried: the limit that resolv.conf(5) once had.
const DOMAINS: usize = 6;

/// DNS servers, which are asked one after another. All clones share a cache of their answers.
#[derive(Clone)]
pub struct Servers {
    pub(super) addresses: Vec<SocketAddr>,
    search: Vec<String>,
    pub(super) cache: Arc<Cache>,
}

impl Servers {
    /// Creates a list of servers. It should have at least one.
    pub fn new(addresses: Vec<SocketAddr>) -> Servers {
        Servers {
            addresses,
            search: Vec::new(),
            cache: Arc::default(),
        }
    }

    /// Sets search domains. A name without a dot is looked up in them before it is looked up alone,
    /// other names after that. A name with a dot at its end is looked up alone only. The first six
    /// domains count.
    pub fn search(self, domains: impl IntoIterator<Item = String>) -> Servers {
        let domains = domains.into_iter().take(DOMAINS);
        Servers {
            search: domains.collect(),
            ..self
        }
    }

    /// Returns the names to look up for a name, in order.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        let name = name.to_ascii_lowercase();
        if let Some(whole) = name.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let within = self.search.iter().map(|domain| {
            let domain = domain.trim_matches('.').to_ascii_lowercase();
            format!("{name}.{domain}")
        });
        let mut all: Vec<String> = within.collect();
        let by_itself = match name.contains('.') {
            true => 0,
            false => all.len(),
        };
        all.insert(by_itself, name.clone());
        all
    }
}

/// Writes everything but the cache.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("addresses", &self.addresses)
            .field("search", &self.search)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_in_domains_too() {
        let servers = Servers::new(Vec::new());
        assert_eq!(servers.candidates("Host"), ["host"]);
        let servers = servers.search(["Corp.Example".to_owned(), "lan.".to_owned()]);
        for (name, expected) in [
            ("Host", &["host.corp.example", "host.lan", "host"][..]),
            ("a.b", &["a.b", "a.b.corp.example", "a.b.lan"]),
            ("host.", &["host"]),
        ] {
            assert_eq!(servers.candidates(name), expected, "{name}");
        }
        let many = (0..9).map(|number| number.to_string());
        assert_eq!(servers.search(many).candidates("a").len(), 1 + DOMAINS);
    }
}
