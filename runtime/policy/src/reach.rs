//! The destinations that a module may reach. `access` decides by it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use watm_seal::{ConnectPattern, Network};

use crate::Target;
use crate::{Destination, Error};

/// The destinations that a module may reach, beyond the address that the application names. By default
/// none.
///
/// It is a list of patterns, as [`ConnectPattern`] describes them: `example.com:443`, `*.example.com`,
/// `10.0.0.0/8:1-1024`, `udp://[2001:db8::1]:53`, `*`. A pattern is for TCP and UDP unless it begins with
/// one of them.
///
/// A name is compared before it is resolved. One that a pattern names may have any address. One that no
/// pattern names is resolved, and may have the addresses that a pattern admits. Case and a dot at the end
/// do not matter.
///
/// A module with a seal reaches nothing beyond its seal, whatever patterns are given here.
///
/// Datagrams of a granted socket may go to addresses that the module has heard from on it, to addresses
/// that the application dials, and to those that the seal and the grant name. For a module without a seal
/// these patterns take the place of the seal; after [`with_datagrams`](Reach::with_datagrams) they
/// restrict the datagrams of other modules too. Multicast, broadcast and the unspecified address need a
/// pattern with an address or a network: `*` does not admit them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    allowed: Patterns,
    /// True if the patterns also restrict the datagrams of a module with a seal.
    with_datagrams: bool,
    /// Further lists, each of which has to admit the target too.
    within: Vec<Patterns>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Patterns(Vec<ConnectPattern>);

/// The decision of a [`Reach`] about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The target may not be reached.
    Denied,
    /// Depends on the addresses: those that the reach admits are allowed.
    Resolved,
    /// The target may be reached.
    Allowed,
}

impl Reach {
    /// Returns a reach of no destinations.
    pub fn none() -> Reach {
        Reach::default()
    }

    /// Adds the destinations that this pattern admits. Fails if it is not a pattern.
    pub fn allow(mut self, pattern: &str) -> Result<Reach, Error> {
        let patterns = ConnectPattern::parse(pattern)
            .map_err(|reason| Error::Options(format!("reach {pattern:?}: {reason}")))?;
        self.allowed.0.extend(patterns);
        Ok(self)
    }

    /// Restricts the datagrams of a granted socket to these patterns even if the module has a seal.
    pub fn with_datagrams(mut self) -> Reach {
        self.with_datagrams = true;
        self
    }

    /// Restricts the reach to the destinations that one of these patterns admits too.
    #[doc(hidden)]
    pub fn within(mut self, ceiling: impl IntoIterator<Item = ConnectPattern>) -> Reach {
        self.within.push(Patterns(ceiling.into_iter().collect()));
        self
    }

    #[doc(hidden)]
    pub fn judge(&self, target: &Target) -> Verdict {
        let verdicts = self.lists().map(|patterns| patterns.judge(target));
        verdicts.min().unwrap_or(Verdict::Denied)
    }

    /// Returns true if a target that is [`Verdict::Resolved`] may have this address.
    #[doc(hidden)]
    pub fn admits(&self, target: &Target, address: &SocketAddr) -> bool {
        self.lists().all(|patterns| {
            patterns.judge(target) == Verdict::Allowed || patterns.admits(target.network, address)
        })
    }

    /// Judges a name that a module looks up before it connects, so that its port is not known yet.
    #[doc(hidden)]
    pub fn judge_name(&self, name: &str) -> Verdict {
        let verdicts = self.lists().map(|patterns| patterns.judge_name(name));
        verdicts.min().unwrap_or(Verdict::Denied)
    }

    /// Returns true if a name that is [`Verdict::Resolved`] may have this address, at some port.
    #[doc(hidden)]
    pub fn admits_found(&self, name: &str, address: IpAddr) -> bool {
        self.lists().all(|patterns| {
            let has = |pattern: &ConnectPattern| pattern.has_address(address);
            patterns.judge_name(name) == Verdict::Allowed || patterns.0.iter().any(has)
        })
    }

    /// Returns true if datagrams of a granted socket may go to this address, which the module has not
    /// heard from. `name` is the name that it was looked up by.
    #[doc(hidden)]
    pub fn admits_datagrams(&self, remote: SocketAddr, name: Option<&Destination>) -> bool {
        let named = self.within.is_empty() || self.with_datagrams;
        let mut lists = self.within.iter().chain(named.then_some(&self.allowed));
        lists.all(|patterns| patterns.admit_datagrams(remote, name))
    }

    fn lists(&self) -> impl Iterator<Item = &Patterns> {
        [&self.allowed].into_iter().chain(&self.within)
    }
}

impl Patterns {
    fn judge(&self, target: &Target) -> Verdict {
        let network = target.network;
        let any = |admits: &dyn Fn(&ConnectPattern) -> bool| self.0.iter().any(admits);
        match &target.destination {
            Destination::Address(address) if self.admits(network, address) => Verdict::Allowed,
            Destination::Address(_) => Verdict::Denied,
            Destination::Name(name, port) => {
                if any(&|pattern| pattern.admits_name(network, name, *port)) {
                    Verdict::Allowed
                } else if any(&|pattern| pattern.names_addresses(network, *port)) {
                    Verdict::Resolved
                } else {
                    Verdict::Denied
                }
            }
        }
    }

    fn judge_name(&self, name: &str) -> Verdict {
        let any = |has: &dyn Fn(&ConnectPattern) -> bool| self.0.iter().any(has);
        match () {
            () if any(&|pattern| pattern.has_name(name)) => Verdict::Allowed,
            () if any(&ConnectPattern::is_of_addresses) => Verdict::Resolved,
            () => Verdict::Denied,
        }
    }

    fn admits(&self, network: Network, address: &SocketAddr) -> bool {
        let mut patterns = self.0.iter();
        patterns.any(|pattern| pattern.admits_address(network, address))
    }

    fn admit_datagrams(&self, remote: SocketAddr, name: Option<&Destination>) -> bool {
        if is_for_many(remote.ip().to_canonical()) {
            let mut patterns = self.0.iter();
            return patterns.any(|pattern| pattern.spells_address(Network::Udp, &remote));
        }
        let by_name = |name: &Destination| {
            let target = Target {
                network: Network::Udp,
                ..Target::tcp(name.clone())
            };
            self.judge(&target) == Verdict::Allowed
        };
        self.admits(Network::Udp, &remote) || name.is_some_and(by_name)
    }
}

/// Returns true if the address is not one of a single machine. Linux takes the unspecified one for its
/// own.
fn is_for_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip.is_unspecified() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(patterns: &[&str], network: Network, address: &str) -> Verdict {
        let reach = patterns.iter().fold(Reach::none(), |reach, pattern| {
            reach.allow(pattern).expect("a pattern")
        });
        reach.judge(&Target {
            network,
            ..Target::tcp(address.parse().expect("an address"))
        })
    }

    #[test]
    fn nothing_is_reached_by_default() {
        for address in ["localhost:80", "127.0.0.1:80", "[::1]:80"] {
            assert_eq!(verdict(&[], Network::Tcp, address), Verdict::Denied);
        }
    }

    #[test]
    fn a_name_is_looked_up_if_some_port_of_it_may_be_reached() {
        use Verdict::{Allowed, Denied, Resolved};
        let reach = |patterns: &[&str]| {
            patterns.iter().fold(Reach::none(), |reach, pattern| {
                reach.allow(pattern).expect("a pattern")
            })
        };
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (patterns, name, expected) in [
            (&[][..], "example.com", Denied),
            (&["example.com:443"], "example.com", Allowed),
            (&["udp://*.example.com:53"], "a.EXAMPLE.com.", Allowed),
            (&["example.com:443"], "other.example", Denied),
            (&["10.0.0.0/8:80"], "other.example", Resolved),
            (&["*:443"], "other.example", Allowed),
        ] {
            assert_eq!(
                reach(patterns).judge_name(name),
                expected,
                "{patterns:?} {name}"
            );
        }
        let both = reach(&["*"]).within(["tcp://10.0.0.0/8:80".parse().expect("a pattern")]);
        assert_eq!(both.judge_name("any.example"), Resolved);
        assert!(both.admits_found("any.example", ip("10.1.2.3")));
        assert!(!both.admits_found("any.example", ip("192.0.2.1")));
    }

    #[test]
    fn patterns_admit_what_they_say_and_no_more() {
        use Verdict::{Allowed, Denied, Resolved};
        for (pattern, address, expected) in [
            ("example.com", "example.com:1", Allowed),
            ("example.com", "EXAMPLE.com.:1", Allowed),
            ("example.com", "www.example.com:1", Denied),
            ("example.com", "badexample.com:1", Denied),
            ("example.com", "192.0.2.1:1", Denied),
            ("*.example.com:443", "www.example.com:443", Allowed),
            ("*.example.com:443", "a.b.example.com:443", Allowed),
            ("*.example.com:443", "www.example.com:80", Denied),
            ("*.example.com:443", "example.com:443", Denied),
            ("*.example.com:443", ".example.com:443", Denied),
            ("*.example.com:443", "badexample.com:443", Denied),
            ("10.0.0.0/8:1-1024", "10.1.2.3:1024", Allowed),
            ("10.0.0.0/8:1-1024", "10.1.2.3:1025", Denied),
            ("10.0.0.0/8:1-1024", "11.1.2.3:80", Denied),
            ("10.0.0.0/8:1-1024", "[::ffff:10.1.2.3]:80", Allowed),
            ("10.0.0.0/8:1-1024", "name:80", Resolved),
            ("10.0.0.0/8:1-1024", "name:8080", Denied),
            ("10.9.9.9/8", "10.1.2.3:80", Allowed),
            ("192.0.2.1", "192.0.2.1:7", Allowed),
            ("192.0.2.1", "192.0.2.2:7", Denied),
            ("[2001:db8::/32]:53", "[2001:db8::9]:53", Allowed),
            ("[2001:db8::/32]:53", "[2001:db9::9]:53", Denied),
            ("[::1]", "[::1]:1", Allowed),
            ("*:80", "anything:80", Allowed),
            ("*:80", "192.0.2.2:80", Allowed),
            ("*:80", "anything:81", Denied),
            ("tcp://*", "anything:81", Allowed),
            ("udp://*", "anything:81", Denied),
        ] {
            let found = verdict(&[pattern], Network::Tcp, address);
            assert_eq!(found, expected, "{pattern} {address}");
        }
        assert_eq!(verdict(&["udp://*:53"], Network::Udp, "a:53"), Allowed);
        assert_eq!(verdict(&["*:53"], Network::Udp, "a:53"), Allowed);
        assert_eq!(verdict(&["tcp://*:53"], Network::Udp, "a:53"), Denied);
    }

    #[test]
    fn datagrams_go_where_the_bounds_say_and_without_any_the_patterns() {
        let found = "vpn.example.org:51820".parse().expect("a destination");
        for (patterns, bounds, to, expected) in [
            // Without a seal, and with nothing allowed.
            (&[][..], &[][..], "192.0.2.1:53", false),
            (&["tcp://*"], &[], "192.0.2.1:53", false),
            (&["udp://*"], &[], "192.0.2.1:53", true),
            (&["192.0.2.0/24:53"], &[], "192.0.2.1:53", true),
            (&["192.0.2.0/24:53"], &[], "192.0.2.1:54", false),
            (&["192.0.2.0/24:53"], &[], "[::ffff:192.0.2.1]:53", true),
            (&["192.0.2.0/24:53"], &[], "[::192.0.2.1]:53", false),
            // With a seal.
            (&[], &["udp://*:*"], "192.0.2.1:53", true),
            (&["tcp://*"], &["udp://*:*"], "192.0.2.1:53", true),
            (&["udp://192.0.2.2"], &["udp://*:*"], "192.0.2.1:53", true),
            (&[], &["tcp://*:*"], "192.0.2.1:53", false),
            (&["*"], &["tcp://*:*"], "192.0.2.1:53", false),
            (&["*"], &["udp://192.0.2.1:53"], "192.0.2.1:53", true),
            // By the name that it was looked up by.
            (&["udp://vpn.example.org"], &[], "192.0.2.1:51820", true),
            (&["udp://example.org"], &[], "192.0.2.1:51820", false),
            (&[], &["udp://*.example.org:51820"], "192.0.2.1:51820", true),
            // Addresses of no single machine.
            (&["*"], &["udp://*:*"], "239.1.2.3:53", false),
            (&["*"], &["udp://*:*"], "[ff02::1]:53", false),
            (&["*"], &["udp://*:*"], "[::ffff:239.1.2.3]:53", false),
            (&["*"], &["udp://*:*"], "255.255.255.255:53", false),
            (&["*"], &["udp://*:*"], "0.0.0.0:53", false),
            (&["*"], &["udp://*:*"], "[::]:53", false),
            (&["239.0.0.0/8"], &["udp://*:*"], "239.1.2.3:53", false),
            (
                &["239.0.0.0/8"],
                &["udp://239.0.0.0/8:*"],
                "239.1.2.3:53",
                true,
            ),
            (&["239.1.2.3"], &[], "239.1.2.3:53", true),
        ] {
            let reach = patterns.iter().fold(Reach::none(), |reach, pattern| {
                reach.allow(pattern).expect("a pattern")
            });
            let reach = bounds.iter().fold(reach, |reach, bound| {
                reach.within([bound.parse().expect("a pattern")])
            });
            let to = to.parse().expect("an address");
            let admitted = reach.admits_datagrams(to, Some(&found));
            assert_eq!(admitted, expected, "{patterns:?} {bounds:?} {to}");
        }
        let narrow = |pattern: &str| {
            let reach = Reach::none().allow(pattern).expect("a pattern");
            let reach = reach.within(["udp://*:*".parse().expect("a pattern")]);
            let to = "192.0.2.1:51820".parse().expect("an address");
            reach.with_datagrams().admits_datagrams(to, Some(&found))
        };
        assert!(narrow("udp://192.0.2.1:51820"));
        assert!(narrow("udp://vpn.example.org:51820"));
        assert!(!narrow("udp://192.0.2.2"));
        assert!(!narrow("tcp://*"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_reason() {
        for (pattern, reason) in [
            ("", "host"),
            ("::1", "brackets"),
            ("2001:db8::/32", "brackets"),
            ("[::1", "not closed"),
            ("[::1]80", "after the bracket"),
            ("a:b", "port"),
            ("a:9-1", "are reversed"),
            ("a:70000", "65535"),
            ("http://a", "network"),
            ("10.0.0.0/33", "not a network"),
            ("a*b", "host"),
            ("*.", "host"),
            ("a b", "host"),
        ] {
            let error = Reach::none().allow(pattern).expect_err(pattern).to_string();
            assert!(error.contains(reason), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_ceiling_holds_beside_what_is_allowed() {
        use Verdict::{Allowed, Denied, Resolved};
        for (pattern, ceiling, address, expected) in [
            (
                "*",
                "tcp://*.example.com:443",
                "www.example.com:443",
                Allowed,
            ),
            ("*", "tcp://*.example.com:443", "example.org:443", Denied),
            (
                "example.org",
                "tcp://*.example.com:443",
                "example.org:443",
                Denied,
            ),
            ("*", "tcp://192.0.2.0/24:443", "192.0.2.9:443", Allowed),
            ("*", "tcp://192.0.2.0/24:443", "192.0.3.9:443", Denied),
            ("*", "tcp://192.0.2.0/24:443", "example.org:443", Resolved),
        ] {
            let reach = Reach::none().allow(pattern).expect("a pattern");
            let reach = reach.within([ceiling.parse().expect("a pattern")]);
            let target = Target::tcp(address.parse().expect("an address"));
            assert_eq!(
                reach.judge(&target),
                expected,
                "{pattern} {ceiling} {address}"
            );
            let inside = "192.0.2.1:443".parse().expect("an address");
            let outside = "192.0.3.1:443".parse().expect("an address");
            if expected == Resolved {
                assert!(reach.admits(&target, &inside));
                assert!(!reach.admits(&target, &outside));
            }
        }
    }
}
