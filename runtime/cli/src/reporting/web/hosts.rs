//! The check of requests' Host headers, against DNS rebinding.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use hyper::Request;
use hyper::header::HOST;
use hyper::http::uri::Authority;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Names that requests may use, in addition to addresses and `localhost`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    names: Vec<Host>,
    /// The option for further names, in the error for clients.
    option: &'static str,
}

/// A host name in lower case, without a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host(String);

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = text.strip_suffix('.').unwrap_or(text);
        match !name.is_empty() && name.chars().all(valid) {
            true => Ok(Host(name.to_ascii_lowercase())),
            false => Err(format!(
                "{text:?} must be a host's name without a port, such as metrics.example"
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Host, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Hosts {
    pub(crate) fn new(names: Vec<Host>, option: &'static str) -> Hosts {
        Hosts { names, option }
    }

    /// Fails with a reason for the client if the request names another host. A request without a
    /// host does not come from a browser.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), String> {
        let named = request.headers().get_all(HOST).iter().map(|value| {
            let authority = Authority::try_from(value.as_bytes()).ok();
            authority.filter(|authority| !authority.as_str().contains('@'))
        });
        for authority in named.chain(request.uri().authority().cloned().map(Some)) {
            if !authority.is_some_and(|authority| self.admit(authority.host())) {
                return Err(format!(
                    "the Host header names another host; must be an address, localhost, or a name \
                     in {}\n",
                    self.option
                ));
            }
        }
        Ok(())
    }

    fn admit(&self, host: &str) -> bool {
        if let Some(inner) = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            return inner.parse::<Ipv6Addr>().is_ok();
        }
        let is_name = |host: Host| host.0 == "localhost" || self.names.contains(&host);
        host.parse::<Ipv4Addr>().is_ok() || host.parse().is_ok_and(is_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_was_led_here_by_a_name_is_refused() {
        let hosts = Hosts::new(vec!["Metrics.Example.".parse().unwrap()], "--name");
        let check = |host: &str| {
            let request = Request::get("/status").header(HOST, host);
            hosts.check(&request.body(()).unwrap())
        };
        for good in [
            "127.0.0.1",
            "127.0.0.1:9586",
            "[::1]:9586",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "metrics.example:9586",
            "METRICS.example.",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for strange in [
            "",
            "evil.example",
            "evil.example:9586",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0x7f.1",
            "2130706433",
            "metrics.example.evil",
            "a@127.0.0.1",
            "[::1",
            "[localhost]",
        ] {
            let reason = check(strange).expect_err(strange);
            assert!(reason.contains("--name"), "{reason}");
        }
    }

    #[test]
    fn the_host_of_the_target_counts_too() {
        let hosts = Hosts::new(Vec::new(), "--name");
        let request = Request::get("http://evil.example/status").header(HOST, "127.0.0.1");
        assert!(hosts.check(&request.body(()).unwrap()).is_err());
        let request = Request::get("/status").body(()).unwrap();
        assert_eq!(hosts.check(&request), Ok(()));
    }
}
