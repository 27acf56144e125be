//! The configuration: accepted files, and the errors for all others.

mod support;

use support::{Sim, base64, peer_config, private_key, public_text, refusal, server_config};
use watm_core::{Destination, Level, Transport};
use watm_wireguard::fields::{INTERFACE, MITMPROXY, PEER, WATM};

fn server_key() -> String {
    base64(private_key(support::SERVER_KEY).as_bytes())
}

#[test]
fn a_whole_file_with_comments_and_any_case_is_taken() {
    let sim = Sim::new(&format!(
        "\u{feff}# the office\r\n\
         [interface] # ours\r\n\
         address = 10.0.0.254/24, fd00::1/64\r\n\
         ADDRESS=10.1.0.1\r\n\
         ListenPort=51820\r\n\
         privatekey = {} # secret\r\n\
         dns = 1.1.1.1, example.org\r\n\
         mtu = 1400\r\n\
         ; a laptop\r\n\
         [PEER] ; hers\r\n\
         PublicKey={}\r\n\
         PresharedKey = {}\r\n\
         AllowedIPs = 10.0.0.2/32 , fd00::2\r\n\
         allowedips = 10.0.1.7/24\r\n\
         Endpoint = [2001:DB8::1%eth0]:51820 ; at home\r\n\
         PersistentKeepalive = off\r\n\
         [Watm]\r\n\
         UdpIdleTimeout = 30\r\n\
         MaxFlows = 100\r\n\
         HandshakesPerSecond = 5\r\n\
         CongestionControl = bbr\r\n",
        server_key(),
        public_text(1),
        base64(&[7; 32]),
    ));
    assert!(sim.logged(Level::Warn).is_empty());
    assert_eq!(sim.counter("wireguard.peers"), 1);
}

#[test]
fn each_wrong_value_is_refused_with_its_line_its_field_and_what_would_be_right() {
    let key = server_key();
    let peer = public_text(1);
    let number = |field: &str, range: &str, value: &str| {
        format!("{field}: '{value}' is not a number {range}")
    };
    let not_base64 = "not base64; a key is 44 characters of base64, ending in '='";
    let no_endpoint = |value: &str| {
        format!(
            "line 5: [Peer] Endpoint: '{value}' is not a host and a port, such as \
             vpn.example.org:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"
        )
    };
    let length = "wrong length; a key is 32 bytes, which is 44 characters of base64";
    let interface = |line: &str| format!("[Interface]\nPrivateKey = {key}\n{line}\n");
    let in_peer = |line: &str| interface(&format!("[Peer]\nPublicKey = {peer}\n{line}"));
    let watm = |line: &str| interface(&format!("[Watm]\n{line}"));
    let cases = [
        (
            "[Interface]\nPrivateKey = secret!\n".to_owned(),
            format!("line 2: [Interface] PrivateKey: {not_base64}"),
        ),
        (
            "[Interface]\nPrivateKey = c2hvcnQ=\n".to_owned(),
            format!("line 2: [Interface] PrivateKey: {length}"),
        ),
        (
            format!("[Interface]\nPrivateKey = {}\n", base64(&[0; 32])),
            "line 2: [Interface] PrivateKey: all zero, which is not a key; make one with 'wg \
             genkey'"
                .to_owned(),
        ),
        (
            "\n[Interface]\nMTU = 1420\n".to_owned(),
            "line 2: [Interface] PrivateKey: missing; make one with 'wg genkey'".to_owned(),
        ),
        (
            interface("ListenPort = 65536"),
            number("line 3: [Interface] ListenPort", "from 0 to 65535", "65536"),
        ),
        (
            interface("ListenPort = +1"),
            number("line 3: [Interface] ListenPort", "from 0 to 65535", "+1"),
        ),
        (
            interface("MTU = 1279"),
            number(
                "line 3: [Interface] MTU",
                "of bytes from 1280 to 65475",
                "1279",
            ),
        ),
        (
            interface("Address = here"),
            "line 3: [Interface] Address: 'here' is not an IP address with a prefix length, \
             such as 10.0.0.2/32"
                .to_owned(),
        ),
        (
            interface("DNS = what?"),
            "line 3: [Interface] DNS: 'what?' is neither an IP address nor a search domain"
                .to_owned(),
        ),
        (
            in_peer("PresharedKey = x"),
            format!("line 5: [Peer] PresharedKey: {not_base64}"),
        ),
        (
            in_peer("AllowedIPs = 10.0.0.2/33"),
            "line 5: [Peer] AllowedIPs: '10.0.0.2/33' has no prefix length from 0 to 32 after \
             the '/'"
                .to_owned(),
        ),
        (
            in_peer("AllowedIPs = fd00::/129"),
            "line 5: [Peer] AllowedIPs: 'fd00::/129' has no prefix length from 0 to 128 after \
             the '/'"
                .to_owned(),
        ),
        (
            in_peer("AllowedIPs = 10.0.0.2,,10.0.0.3"),
            "line 5: [Peer] AllowedIPs: a comma with nothing before or after it".to_owned(),
        ),
        (
            in_peer("AllowedIPs = 10.0.0.300"),
            "line 5: [Peer] AllowedIPs: '10.0.0.300' is not an IP address with a prefix \
             length, such as 10.0.0.2/32"
                .to_owned(),
        ),
        (
            in_peer("PersistentKeepalive = 65536"),
            "line 5: [Peer] PersistentKeepalive: '65536' is neither 'off' nor a number of \
             seconds from 0 to 65535"
                .to_owned(),
        ),
        (
            in_peer("Endpoint = vpn.example.org"),
            no_endpoint("vpn.example.org"),
        ),
        (
            in_peer("Endpoint = vpn.example.org:65536"),
            no_endpoint("vpn.example.org:65536"),
        ),
        (
            in_peer("Endpoint = vpn_example/org:51820"),
            no_endpoint("vpn_example/org:51820"),
        ),
        (in_peer("Endpoint = 192.0.2.1"), no_endpoint("192.0.2.1")),
        (
            in_peer("Endpoint = [fe80::1%eth0]:51820"),
            "line 5: [Peer] Endpoint: '[fe80::1%eth0]:51820' is an address of one link, and a \
             module cannot choose the interface; use an address that is valid everywhere"
                .to_owned(),
        ),
        (
            in_peer("Endpoint = [2001:db8::1%]:51820"),
            no_endpoint("[2001:db8::1%]:51820"),
        ),
        (
            in_peer("DisallowedIPs = 10.0.0.0/33"),
            "line 5: [Peer] DisallowedIPs: '10.0.0.0/33' has no prefix length from 0 to 32 after \
             the '/'"
                .to_owned(),
        ),
        (
            in_peer("Endpoint = 192.0.2.1:0"),
            "line 5: [Peer] Endpoint: '192.0.2.1:0' has port 0; use one from 1 to 65535".to_owned(),
        ),
        (
            watm("Target = vpn.example.org:51820"),
            "line 4: [Watm] Target: 'vpn.example.org:51820' names a host, and a module cannot \
             resolve names; write an address and a port, such as 192.0.2.1:51820"
                .to_owned(),
        ),
        (
            interface("[Peer]\nAllowedIPs = 10.0.0.2"),
            "line 3: [Peer] PublicKey: missing; it is the peer's, from 'wg pubkey'".to_owned(),
        ),
        (
            watm("UdpIdleTimeout = 0"),
            number(
                "line 4: [Watm] UdpIdleTimeout",
                "of seconds from 1 to 86400",
                "0",
            ),
        ),
        (
            watm("MaxFlows = many"),
            number("line 4: [Watm] MaxFlows", "from 1 to 65535", "many"),
        ),
        (
            watm("HandshakesPerSecond = 0"),
            number(
                "line 4: [Watm] HandshakesPerSecond",
                "from 1 to 1000000",
                "0",
            ),
        ),
        (
            watm("CongestionControl = reno"),
            "line 4: [Watm] CongestionControl: 'reno' is not \"cubic\" or \"bbr\"".to_owned(),
        ),
        (
            watm("Network = 3g loss=2"),
            "line 4: [Watm] Network: loss: '2' is not a share such as \"1%\", from 0% to 100%"
                .to_owned(),
        ),
    ];
    let tables: [(&str, &[_]); 3] = [("Interface", &INTERFACE), ("Peer", &PEER), ("Watm", &WATM)];
    for (section, table) in tables {
        for (field, _) in table {
            let name = format!("[{section}] {}: ", field.name);
            let has_case = cases.iter().any(|(_, error)| error.contains(&name));
            assert!(has_case, "nothing is wrong for {name}");
        }
    }
    for (config, expected) in cases {
        assert_eq!(refusal(&config), expected);
    }
}

#[test]
fn what_does_not_belong_is_refused_with_the_reason() {
    for (config, expected) in [
        (
            server_config("PrivateKay = x"),
            "line 3: [Interface] PrivateKay: unknown; [Interface] has PrivateKey, ListenPort, \
             Address, DNS, MTU",
        ),
        (
            server_config("AllowedIPs = 10.0.0.2"),
            "line 3: [Interface] AllowedIPs: belongs in [Peer]",
        ),
        (
            server_config(&peer_config(1, "PostUp = x")),
            "line 5: [Peer] PostUp: belongs in [Interface]",
        ),
        (
            server_config("[Watm]\nMTU = 1280"),
            "line 4: [Watm] MTU: belongs in [Interface]",
        ),
        (
            server_config("[Client]"),
            "line 3: unknown section [Client]; expected [Interface], [Peer] or [Watm]",
        ),
        (
            server_config("[Peer"),
            "line 3: a section heading without its ']'",
        ),
        (
            server_config("hello"),
            "line 3: neither a [Section] nor 'Field = value'",
        ),
        (
            server_config(" = 1280"),
            "line 3: no field's name before the '='",
        ),
        (
            "PrivateKey = x".to_owned(),
            "line 1: a field before the first section; begin with [Interface]",
        ),
        (
            String::new(),
            "no [Interface] section; add one with the server's PrivateKey",
        ),
        (
            server_config("[interface]"),
            "line 3: a second [Interface] section, after the one in line 1; put its fields there",
        ),
        (
            server_config("MTU = 1280\nmtu = 1281"),
            "line 4: [Interface] MTU: already set in line 3; remove one of the two",
        ),
    ] {
        assert_eq!(refusal(&config), expected);
    }
}

#[test]
fn rules_by_application_are_refused_also_where_wiresock_hides_them() {
    let why = "a module does not know which application opened a connection, so it cannot enforce \
               this; remove the line, or use `watm tunnel --exec`, a mitmproxy upstream or Python, which enforce it";
    for line in [
        "AllowedApps = chrome",
        "disallowedapps=x",
        "#@ws:AllowedApps = chrome",
    ] {
        let field = match line.contains("dis") {
            true => "DisallowedApps",
            false => "AllowedApps",
        };
        assert_eq!(
            refusal(&server_config(&peer_config(1, line))),
            format!("line 5: [Peer] {field}: {why}")
        );
    }
    let error = refusal(&server_config(&peer_config(1, "#@ws:Jc = 3")));
    assert!(error.starts_with("line 5: [Peer] Jc: unknown"), "{error}");
    Sim::new(&server_config(&peer_config(
        1,
        "AllowedIPs = 0.0.0.0/0\n#@WS:DisallowedIPs = 10.0.0.0/8",
    )));
}

#[test]
fn what_changes_the_system_has_no_effect_and_is_named() {
    let sim = Sim::new(&server_config(&format!(
        "PostUp = iptables -A FORWARD -i %i -j ACCEPT; ip route add 10.0.0.0/8 dev %i\n\
         postup = echo a = b # twice\n\
         PreUp=x\nPreDown=x\nPostDown=x\n\
         TABLE = off\nFwMark = 0xca6c\nSaveConfig = true\n{}",
        peer_config(1, "AllowedIPs = 10.0.0.2/32")
    )));
    let expected = "[Interface] PostUp (line 3), PreUp (line 5), PreDown (line 6), \
                    PostDown (line 7), Table (line 8), FwMark (line 9), SaveConfig (line 10) have \
                    no effect: a sandboxed module runs no commands, changes no routes and writes \
                    no files";
    assert_eq!(sim.logged(Level::Info), [expected]);
    // Files from providers cause no warning.
    assert_eq!(sim.logged(Level::Warn), Vec::<String>::new());
}

#[test]
fn fields_without_effect_are_named_once() {
    let config =
        |line: &str| server_config(&format!("{line}\n{}", peer_config(1, "AllowedIPs = ::/0")));
    let mut sim = Sim::new(&config("PostUp = x"));
    sim.reconfigure(&config("PostUp = x")).unwrap();
    assert_eq!(sim.logged(Level::Info).len(), 1);
    sim.reconfigure(&config("PostDown = x")).unwrap();
    let told = sim.logged(Level::Info);
    assert_eq!(told.len(), 2);
    assert!(
        told[1].starts_with("[Interface] PostDown (line 3) has no effect: "),
        "{told:?}"
    );
}

#[test]
fn what_wg_prints_is_taken() {
    // The output of wg showconf, from wireguard-tools 1.0.20210914.
    let sim = Sim::new(&format!(
        "[Interface]\nListenPort = 47115\nFwMark = 0xca6c\nPrivateKey = {}\n\n\
         [Peer]\nPublicKey = {}\nPresharedKey = {}\nAllowedIPs = 0.0.0.0/0, ::/0\n\
         Endpoint = [2001:db8::7]:51820\nPersistentKeepalive = 25\n\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 10.2.0.0/16\nEndpoint = 192.0.2.9:51820\n",
        server_key(),
        public_text(1),
        base64(&[3; 32]),
        public_text(2),
    ));
    assert_eq!(sim.counter("wireguard.peers"), 2);
}

#[test]
fn a_server_has_so_many_peers_and_no_more() {
    let peers: String = (0..=32_768u32)
        .map(|n| {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&n.to_be_bytes());
            format!("[Peer]\nPublicKey={}\n", support::base64(&key))
        })
        .collect();
    assert_eq!(
        refusal(&server_config(&peers)),
        "line 65540: [Peer] PublicKey: too many peers: a server has at most 32768; start \
         another server"
    );
}

#[test]
fn peers_are_told_apart() {
    let two = |first: &str, second: &str| server_config(&(first.to_owned() + second));
    assert_eq!(
        refusal(&two(&peer_config(1, ""), &peer_config(1, ""))),
        "line 7: [Peer] PublicKey: already used by the peer in line 3; give each peer a key of \
         its own"
    );
    assert_eq!(
        refusal(&server_config(&peer_config(support::SERVER_KEY, ""))),
        "line 4: [Peer] PublicKey: this is our own public key; write the client's"
    );
    // The same network in two notations.
    assert_eq!(
        refusal(&two(
            &peer_config(1, "AllowedIPs = 10.0.0.1/24"),
            &peer_config(2, "AllowedIPs = 10.0.0.2/24"),
        )),
        "line 8: [Peer] AllowedIPs: 10.0.0.2/24 already belongs to the peer in line 3; give \
         each peer addresses of its own"
    );
    // A part of it is another network, and so is the whole internet.
    Sim::new(&two(
        &peer_config(1, "AllowedIPs = 0.0.0.0/0, 10.0.0.1/24, 10.0.0.1/24"),
        &peer_config(2, "AllowedIPs = 10.0.0.2/32"),
    ));
}

#[test]
fn a_key_never_stands_in_an_error() {
    let secret = base64(&[77; 32]);
    for config in [
        format!("[Interface]\nPrivateKey = {secret}x\n"),
        server_config(&format!("[Peer]\nPublicKey = {secret}{secret}\n")),
        format!("{{\"server_key\": \"{secret}=\"}}"),
        server_config(&format!("MTU = {secret}\n")),
        server_config(&format!("{secret}\n")),
        server_config(&format!("[{secret}]\n")),
        server_config(&peer_config(1, &format!("AllowedIPs = {secret}"))),
        server_config(&peer_config(1, &format!("Endpoint = {secret}:1"))),
        server_config(&peer_config(1, &format!("PersistentKeepalive = {secret}"))),
        format!("{{\"{secret}\": 1}}"),
    ] {
        let error = refusal(&config);
        assert!(!error.contains(&secret[..20]), "{error}");
    }
}

#[test]
fn an_error_is_one_line_however_long_the_file_is() {
    let long = "1 ".repeat(1000);
    for (config, expected) in [
        (
            "{\"a\\nb\": 1}".to_owned(),
            "a\u{fffd}b: unknown; expected one of server_key".to_owned(),
        ),
        (
            server_config("MTU = 1\u{1b}[2J"),
            "line 3: [Interface] MTU: '1\u{fffd}[2J' is not a number".to_owned(),
        ),
        (
            server_config(&format!("MTU = {long}")),
            format!(
                "line 3: [Interface] MTU: '{}…' is not a number of bytes from 1280 to 65475",
                &long[..60]
            ),
        ),
    ] {
        let error = refusal(&config);
        assert!(error.starts_with(&expected), "{error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let mut sim = Sim::new(&server_config("ListenPort = 1"));
    assert_eq!(
        sim.logged(Level::Warn),
        [
            "no [Peer] section, so no peer can connect or be connected to; add one with the \
             peer's PublicKey and AllowedIPs",
            "ListenPort is 1, but the host listens on 192.0.2.1:51820; ListenPort has no effect",
        ]
    );
    sim.host.logs.clear();
    sim.reconfigure(&server_config(&peer_config(1, "")))
        .unwrap();
    assert_eq!(
        sim.logged(Level::Warn),
        ["line 3: [Peer] has no AllowedIPs, so all packets from this peer are dropped"]
    );
}

#[test]
fn a_file_that_is_not_text_is_refused() {
    support::seed(1);
    let mut sim = Sim::with_one_client();
    let error = sim
        .server
        .reconfigure(b"[Interface]\n\xff\n", &mut sim.host)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2: not UTF-8; the configuration is a text file"
    );
}

#[test]
fn each_wrong_field_of_the_json_is_refused() {
    let key = server_key();
    let (own, first) = (
        base64(support::public_key(support::SERVER_KEY).as_bytes()),
        public_text(1),
    );
    let with = |field: &str| {
        format!(
            "{{\"server_key\": \"{key}\", \"client_key\": \"{}\", {field}}}",
            base64(&[5; 32])
        )
    };
    let keys =
        |keys: &str| format!("{{\"server_key\": \"{key}\", \"peer_public_keys\": [{keys}]}}");
    let cases = [
        (
            "{\"server_key\": 1,\n}".to_owned(),
            "not JSON: trailing comma at line 2 column 1",
        ),
        (
            "{\"\": 1}".to_owned(),
            "not a configuration: a field without a name",
        ),
        (
            "{\"client_key\": \"x\"}".to_owned(),
            "server_key: missing; make one with 'wg genkey'",
        ),
        (
            "{\"server_key\": 1}".to_owned(),
            "server_key: not a string of 44 characters of base64",
        ),
        (
            "{\"server_key\": \"x\"}".to_owned(),
            "server_key: not base64; a key is 44 characters of base64, ending in '='",
        ),
        (
            format!("{{\"server_key\": \"{key}\"}}"),
            "client_key: missing; give the client's private key here, or public keys in \
             peer_public_keys",
        ),
        (
            format!("{{\"server_key\": \"{key}\", \"client_key\": \"{key}\"}}"),
            "client_key: this is our own public key; write the client's",
        ),
        (
            keys(&format!("\"{first}\", \"c2hvcnQ=\"")),
            "peer_public_keys[1]: wrong length; a key is 32 bytes, which is 44 characters of \
             base64",
        ),
        (
            keys(&format!("\"{first}\", \"{first}\"")),
            "peer_public_keys[1]: already used by peer_public_keys[0]; give each peer a key of \
             its own",
        ),
        (
            keys(&format!("\"{own}\"")),
            "peer_public_keys[0]: this is our own public key; write the client's",
        ),
        (
            with("\"peer_public_keys\": \"x\""),
            "peer_public_keys: not a list of keys, each 44 characters of base64",
        ),
        (
            with("\"mtu\": \"\""),
            "mtu: empty; must be a number of bytes from 1280 to 65475",
        ),
        (
            with("\"mtu\": \"large\""),
            "mtu: 'large' is not a number of bytes from 1280 to 65475",
        ),
        (
            with("\"udp_idle_timeout\": -1"),
            "udp_idle_timeout: '-1' is not a number of seconds from 1 to 86400",
        ),
        (
            with("\"max_flows\": 1.5"),
            "max_flows: '1.5' is not a number from 1 to 65535",
        ),
        (
            with("\"handshakes_per_second\": 0"),
            "handshakes_per_second: '0' is not a number from 1 to 1000000",
        ),
        (
            with("\"congestion_control\": \"reno\""),
            "congestion_control: 'reno' is not \"cubic\" or \"bbr\"",
        ),
        (
            with("\"network\": \"5g\""),
            "network: '5g' is not the name of a network; expected edge, 3g, 4g, dsl, wifi, train, \
             satellite, offline, or words such as delay=100ms",
        ),
        (
            with("\"dns\": 1"),
            "dns: not a string, such as \"10.0.0.53\"",
        ),
        (
            with("\"client_address\": \"10.0.0.1/40\""),
            "client_address: '10.0.0.1/40' has no prefix length from 0 to 32 after the '/'",
        ),
        (
            with("\"Mtu\": 1420"),
            "Mtu: unknown; expected one of server_key, client_key, peer_public_keys, mtu, \
             udp_idle_timeout, max_flows, handshakes_per_second, congestion_control, network, \
             client_address, dns",
        ),
    ];
    for (field, _) in MITMPROXY {
        let has_case = cases.iter().any(|(_, error)| error.starts_with(field.name));
        assert!(has_case, "nothing is wrong for {}", field.name);
    }
    for (config, expected) in cases {
        assert_eq!(refusal(&config), expected);
    }
}

#[test]
fn the_client_of_mitmproxys_file_gets_a_whole_configuration() {
    let client_key = base64(private_key(1).as_bytes());
    let sim = Sim::new(&format!(
        "{{\"server_key\": \"{}\", \"client_key\": \"{client_key}\"}}",
        server_key()
    ));
    let public = Destination::Address("[2001:db8::9]:51820".parse().unwrap());
    let configs = sim.server.client_configs(&public).unwrap();
    let [config] = configs.as_slice() else {
        panic!("one client");
    };
    assert_eq!(config.peer, Some(public_text(1)));
    assert_eq!(config.name, "wg0.conf");
    assert_eq!(config.media_type, "text/plain");
    let server_public = base64(support::public_key(support::SERVER_KEY).as_bytes());
    assert_eq!(
        config.content,
        format!(
            "[Interface]\n\
             PrivateKey = {client_key}\n\
             Address = 10.0.0.1/32, fd77:6174:6d::1/128\n\
             DNS = 10.0.0.53\n\
             MTU = 1420\n\
             \n\
             [Peer]\n\
             PublicKey = {server_public}\n\
             AllowedIPs = 0.0.0.0/0, ::/0\n\
             Endpoint = [2001:db8::9]:51820\n"
        )
    );
    // It is a configuration of this transport: the client's side of it starts as a server.
    Sim::new(&config.content);
}

#[test]
fn a_client_of_a_wg_file_is_told_what_can_be_known() {
    let psk = base64(&[7; 32]);
    let sim = Sim::new(&server_config(
        &("DNS = 9.9.9.9  lan,\nAddress = 10.0.0.1/8, fd00::1/64,\nMTU = 1300\n".to_owned()
            + &peer_config(
                1,
                &format!("AllowedIPs = 10.0.0.2/32, fd00::2, 10.7.0.0/16\nPresharedKey = {psk}"),
            )
            + &peer_config(2, "AllowedIPs = 10.8.0.0/16")),
    ));
    let public = Destination::Name("vpn.example.org".to_owned(), 51820);
    let configs = sim.server.client_configs(&public).unwrap();
    let names: Vec<_> = configs.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["wg0.conf", "wg1.conf"]);
    let server_public = base64(support::public_key(support::SERVER_KEY).as_bytes());
    let content = |number: u8, address: &str, psk: &str| {
        format!(
            "[Interface]\n\
             # PrivateKey = (the client's own, whose public key is {})\n\
             {address}\n\
             DNS = 9.9.9.9, lan\n\
             MTU = 1300\n\
             \n\
             [Peer]\n\
             PublicKey = {server_public}\n\
             {psk}AllowedIPs = 0.0.0.0/0, ::/0\n\
             Endpoint = vpn.example.org:51820\n",
            public_text(number)
        )
    };
    assert_eq!(
        configs[0].content,
        content(
            1,
            "Address = 10.0.0.2/32, fd00::2/128",
            &format!("PresharedKey = {psk}\n")
        )
    );
    assert_eq!(
        configs[1].content,
        content(2, "# Address = (one out of 10.8.0.0/16)", "")
    );
}

#[test]
fn a_socket_that_is_taken_is_an_error() {
    support::seed(1);
    let now = watm_core::Instant(1);
    let mut host = support::SimHost::new(support::SERVER.parse().unwrap(), now);
    let config = server_config("");
    let first = support::start(&config, &mut host);
    assert!(first.is_ok());
    // The socket can be taken once.
    let error = support::start(&config, &mut host).err().expect("refused");
    assert_eq!(
        error.to_string(),
        "the socket granted to WireGuard as 'listen': invalid state"
    );
}
