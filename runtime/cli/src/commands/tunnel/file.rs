//! The parts of a wg-quick(8) file that this program uses itself. The module reads everything, and
//! reports faults in the rest.

use std::net::IpAddr;

use watm_runtime::Destination;

use crate::failure::Failure;

/// The endpoints, addresses, DNS servers and listening port in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    /// True if the file is not text. The module's error explains that better.
    pub(super) garbled: bool,
    /// The number of sections `[Peer]`.
    pub(super) peers: usize,
    /// The number of lines `Endpoint`, including invalid ones.
    pub(super) places: usize,
    /// Valid endpoints of peers.
    pub(super) endpoints: Vec<Destination>,
    /// This machine's addresses in the tunnel, in the order of the file.
    pub(super) addresses: Vec<IpAddr>,
    /// DNS servers in the tunnel, in the order of the file.
    pub(super) dns: Vec<IpAddr>,
    /// Search domains for names without a dot, in the order of the file.
    pub(super) search: Vec<String>,
    /// The listening port; 0 if there is none.
    pub(super) listen_port: u16,
}

impl File {
    /// Reads a file, and ignores lines that are not understood.
    pub(super) fn read(bytes: &[u8]) -> File {
        let text = String::from_utf8_lossy(bytes);
        let mut file = File {
            garbled: std::str::from_utf8(bytes).is_err(),
            ..File::default()
        };
        let mut section = String::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = without_comment(line);
            if let Some(heading) = line.strip_prefix('[') {
                section = heading.trim_end_matches(']').trim().to_ascii_lowercase();
                file.peers += usize::from(section == "peer");
            } else if let Some((field, value)) = line.split_once('=') {
                let field = field.trim().to_ascii_lowercase();
                file.take(&section, &field, value.trim());
            }
        }
        file
    }

    /// Fails if the tunnel has no peer to connect to. `name` is the file's, for errors.
    ///
    /// Without an `Endpoint` the peer must connect, which it can if it knows the listening port.
    pub(super) fn check(&self, name: &str) -> Result<(), Failure> {
        if self.garbled {
            return Ok(());
        }
        let missing = match (self.peers, self.places, self.listen_port) {
            (0, ..) => {
                "has no [Peer] section, so there is no server to connect to; add one with the \
                 server's PublicKey, AllowedIPs and Endpoint"
            }
            (_, 0, 0) => {
                "no [Peer] has an Endpoint, so there is no server to connect to; add Endpoint = \
                 HOST:PORT of the server, or ListenPort in [Interface] to wait for the peer"
            }
            _ => return Ok(()),
        };
        Err(Failure::unusable(format!("{name}: {missing}")))
    }

    /// Returns the port on which to wait for a peer, if no peer can be connected to.
    pub(super) fn waits_on(&self) -> Option<u16> {
        (self.places == 0).then_some(self.listen_port)
    }

    fn take(&mut self, section: &str, field: &str, value: &str) {
        match (section, field) {
            ("peer", "endpoint") => {
                self.places += 1;
                self.endpoints.extend(without_zone(value).parse().ok());
            }
            ("interface", "listenport") => self.listen_port = value.parse().unwrap_or(0),
            ("interface", "address") => {
                let items = words(value).filter_map(|item| item.split('/').next());
                let parsed = items.filter_map(|address| address.parse::<IpAddr>().ok());
                self.addresses.extend(parsed);
            }
            ("interface", "dns") => {
                for item in words(value) {
                    match item.parse() {
                        Ok(address) => self.dns.push(address),
                        Err(_) => self.search.push(item.to_owned()),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Splits a list as wg-quick does: at commas, blanks, or both.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| c == ',' || c.is_whitespace();
    text.split(between).filter(|word| !word.is_empty())
}

/// Cuts a comment as the module does: it begins at a `#`, or at a `;` after a space.
fn without_comment(line: &str) -> &str {
    let line = line.split('#').next().unwrap_or(line);
    let cut = line.char_indices().find(|&(at, c)| {
        c == ';'
            && line[..at]
                .chars()
                .next_back()
                .is_none_or(char::is_whitespace)
    });
    cut.map_or(line, |(at, _)| &line[..at]).trim()
}

/// Turns `[2001:db8::1%eth0]:51820` into `[2001:db8::1]:51820`.
fn without_zone(text: &str) -> String {
    match text.split_once('%') {
        Some((address, rest)) if text.starts_with('[') => {
            let rest = rest.split_once(']').map_or("", |(_, rest)| rest);
            format!("{address}]{rest}")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_provider_is_read() {
        let text = "\u{feff}# Key for PC\r\n[INTERFACE]\r\nprivatekey = aaa=\r\n\
            address=10.2.0.2/32, fd00::2/128\r\nAddress = 10.2.0.3/24 10.2.0.4,\r\nDNS = 10.2.0.1  fd00::53,Corp.Example,\r\ndns=example.net\r\n\
            ListenPort = 51821 ; ours\r\n\
            \r\n[ peer ]\r\n# US#17\r\nPublicKey = bbb=\r\nENDPOINT = Vpn.Example.ORG:51820 # now\r\n\
            [Peer]\r\nEndpoint=[2001:db8::1%eth0]:4500\r\n[Peer]\r\nDNS = 9.9.9.9\r\n\
            #Endpoint = 192.0.2.9:1\r\nEndpoint = 192.0.2.1:51820\r\n";
        let file = File::read(text.as_bytes());
        let endpoints: Vec<String> = file.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(
            endpoints,
            [
                "Vpn.Example.ORG:51820",
                "[2001:db8::1]:4500",
                "192.0.2.1:51820"
            ]
        );
        let ours: Vec<String> = file.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(ours, ["10.2.0.2", "fd00::2", "10.2.0.3", "10.2.0.4"]);
        let dns: [IpAddr; 2] = ["10.2.0.1".parse().unwrap(), "fd00::53".parse().unwrap()];
        assert_eq!(file.dns, dns);
        assert_eq!(file.search, ["Corp.Example", "example.net"]);
        assert_eq!(file.listen_port, 51821);
    }

    #[test]
    fn what_is_wrong_is_left_to_the_module() {
        for text in [
            &b"\xff\xfe[Peer]\nEndpoint = a"[..],
            b"Endpoint = a:1",
            b"[Interface]\nListenPort = 70000\nDNS",
            b"[Peer]\nEndpoint = [fe80::1%:1",
            b"[Peer\nEndpoint = :1",
        ] {
            let file = File::read(text);
            let expected = File {
                garbled: file.garbled,
                peers: file.peers,
                places: file.places,
                ..File::default()
            };
            assert_eq!(file, expected, "{text:?}");
        }
    }

    #[test]
    fn a_tunnel_needs_somebody_to_go_to_or_a_port_to_be_called_at() {
        for (text, missing) in [
            ("[Interface]\nPrivateKey = a", Some("has no [Peer] section")),
            ("[Peer]\nPublicKey = a", Some("no [Peer] has an Endpoint")),
            ("[Interface]\nListenPort = 7\n[Peer]\nPublicKey = a", None),
            ("[Peer]\nEndpoint = wrong\n[Peer]\n", None),
        ] {
            let checked = File::read(text.as_bytes()).check("wg0.conf");
            let said = checked.err().map(|failure| failure.to_string());
            match (&said, missing) {
                (None, None) => {}
                (Some(said), Some(missing)) => {
                    assert!(said.starts_with(&format!("wg0.conf: {missing}")), "{said}");
                }
                _ => panic!("{text}: {said:?}"),
            }
        }
    }
}
