//! Configurations: valid ones, and the errors of others.

mod support;

use support::{config, configured, password};
use watm_core::{ConfigError, Destination};
use watm_shadowsocks::config::FIELDS;
use watm_shadowsocks::{Method, ShadowsocksStreams};
use watm_stream::{Codec, StreamTransport};

fn refused(config: &str) -> ConfigError {
    match ShadowsocksStreams::configure(config.as_bytes()) {
        Ok(_) => panic!("taken: {config}"),
        Err(error) => error,
    }
}

fn server(config: &str) -> Option<String> {
    let outer = configured(config).outer(None);
    outer.map(|server| server.to_string())
}

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQ==";

#[test]
fn the_configuration_of_other_programs_is_taken() {
    let file = r#"{
        "server": "::1", "server_port": 8388, "local_address": "127.0.0.1", "local_port": 1080,
        "password": "barfoo!", "timeout": 600, "method": "chacha20-ietf-poly1305",
        "mode": "tcp_and_udp", "fast_open": false, "plugin": "", "plugin_opts": null
    }"#;
    assert_eq!(server(file).as_deref(), Some("[::1]:8388"));
    let warnings = configured(file).warnings();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.starts_with("timeout")),
        "{warnings:?}"
    );
}

#[test]
fn a_document_of_sip008_is_taken() {
    let document = r#"{
        "version": 1, "bytes_used": 274877906944, "bytes_remaining": 824633720832,
        "servers": [
            {"id": "27b8a625", "remarks": "Name of the server", "server": "example.com",
             "server_port": 8388, "password": "example", "method": "chacha20-ietf-poly1305",
             "plugin": "", "plugin_opts": ""},
            {"id": "7842c068", "server": "192.0.2.1", "server_port": 8388, "password": "x",
             "method": "aes-256-gcm"}
        ]
    }"#;
    assert_eq!(server(document).as_deref(), Some("example.com:8388"));
    assert!(
        configured(document)
            .warnings()
            .iter()
            .any(|warning| warning.contains("first"))
    );
}

#[test]
fn a_document_of_sip008_may_have_fields_of_its_own() {
    let document = r#"{
        "version": 1, "user_uuid": "0b4a9f3e", "bytes_used": 1, "expires": {"at": 5},
        "servers": [
            {"id": "1", "server": "192.0.2.1", "server_port": 1, "password": "x",
             "method": "aes-256-gcm", "disabled": true},
            {"id": "2", "server": "192.0.2.2", "server_port": 2, "password": "x",
             "method": "aes-256-gcm", "country": "de", "plugin": ""}
        ]
    }"#;
    assert_eq!(server(document).as_deref(), Some("192.0.2.2:2"));
    let warnings = configured(document).warnings().join("; ");
    for name in [
        "user_uuid has no effect",
        "expires has",
        "servers[1].country has",
    ] {
        assert!(warnings.contains(name), "{name}: {warnings}");
    }
    // A field that restricts traffic is not ignored like others.
    let error = refused(&document.replace("\"country\"", "\"acl\"")).to_string();
    assert!(error.starts_with("servers[1].acl: "), "{error}");
    let error = refused(&document.replace("\"user_uuid\"", "\"acl\"")).to_string();
    assert!(error.starts_with("acl: "), "{error}");
}

#[test]
fn debians_configuration_of_shadowsocks_libev_is_taken() {
    let file = r#"{
    "server":["::1", "127.0.0.1"],
    "mode":"tcp_and_udp",
    "server_port":8388,
    "local_port":1080,
    "password":"IBnmZadEgPJp",
    "timeout":86400,
    "method":"chacha20-ietf-poly1305"
}
"#;
    assert_eq!(server(file).as_deref(), Some("[::1]:8388"));
    let warnings = configured(file).warnings().join("; ");
    assert!(warnings.contains("server has 2 addresses"), "{warnings}");
}

#[test]
fn servers_may_be_a_list_and_numbers_strings_as_in_shadowsocks_libev() {
    for (more, expected) in [
        (
            r#""server": "a.example", "server_port": "8388""#,
            "a.example:8388",
        ),
        (
            r#""server": ["a.example"], "server_port": 8388"#,
            "a.example:8388",
        ),
        (r#""server": ["a.example:1", "b.example:2"]"#, "a.example:1"),
        (
            r#""server": ["[2001:db8::1]:1"], "server_port": 8388"#,
            "[2001:db8::1]:1",
        ),
        (
            r#""server": ["2001:db8::1"], "server_port": 8388"#,
            "[2001:db8::1]:8388",
        ),
    ] {
        let file = config(Method::Aes256Gcm, &format!(", {more}"));
        assert_eq!(server(&file).as_deref(), Some(expected), "{more}");
    }
}

/// The treatment of a field.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Taken,
    Warned,
    Refused(&'static str),
}
use Fate::{Refused, Taken, Warned};

#[test]
fn the_fields_of_other_implementations_are_honoured_or_warned_of_or_refused() {
    const OUTGOING: Fate = Refused("choose the outgoing path");
    // The fields of shadowsocks-libev (3.3.5) and shadowsocks-rust (1.25.0), except those that
    // every test has.
    for (field, value, fate) in [
        (
            "acl",
            r#""/etc/ss.acl""#,
            Refused("set the allowed destinations"),
        ),
        ("acl", "null", Taken),
        ("auth", "true", Refused("one-time")),
        ("auth", "false", Taken),
        ("balancer", r#"{"max_server_rtt": 5}"#, Warned),
        ("disabled", "false", Taken),
        ("dns", r#""8.8.8.8,tcp""#, Warned),
        ("dns_cache_size", "5", Warned),
        ("dscp", r#"{"EF": [22]}"#, Warned),
        ("fast_open", "true", Warned),
        ("id", r#""5""#, Taken),
        ("inbound_udp_allow_fragmentation", "true", Warned),
        ("ipv6_first", "true", Warned),
        ("ipv6_only", "true", Warned),
        ("keep_alive", "15", Warned),
        ("key", r#""AAAA""#, Refused("expected a password")),
        ("launchd_tcp_socket_name", r#""x""#, Warned),
        ("launchd_udp_socket_name", r#""x""#, Warned),
        ("local_address", r#""127.0.0.1""#, Warned),
        ("local_ipv4_address", r#""192.0.2.1""#, OUTGOING),
        ("local_ipv6_address", r#""2001:db8::1""#, OUTGOING),
        ("local_port", "1080", Warned),
        ("locals", r#"[{"local_port": 1080}]"#, Warned),
        ("manager_address", r#""127.0.0.1""#, Warned),
        ("manager_port", "5", Warned),
        ("mode", r#""tcp_only""#, Taken),
        ("mptcp", "true", Warned),
        ("mtu", "1400", Warned),
        ("nameserver", r#""8.8.8.8""#, Warned),
        ("no_delay", "true", Warned),
        ("nofile", "10240", Warned),
        ("online_config", r#"{"config_url": "x"}"#, Warned),
        ("outbound_bind_addr", r#""192.0.2.1""#, OUTGOING),
        ("outbound_bind_interface", r#""tun0""#, OUTGOING),
        ("outbound_fwmark", "255", OUTGOING),
        (
            "outbound_proxy",
            r#"{"url": "x"}"#,
            Refused("bypass the proxy"),
        ),
        ("outbound_udp_allow_fragmentation", "true", Warned),
        ("outbound_user_cookie", "5", OUTGOING),
        ("plugin", r#""obfs-server""#, Refused("remove this field")),
        ("plugin", r#""""#, Taken),
        ("plugin_args", "[]", Taken),
        ("plugin_mode", r#""tcp_only""#, Warned),
        (
            "plugin_opts",
            r#""obfs=http""#,
            Refused("remove this field"),
        ),
        ("port_password", r#"{"5": "x"}"#, Refused("one port")),
        ("protocol", r#""http""#, Warned),
        ("remarks", r#""mine""#, Taken),
        ("reuse_port", "true", Warned),
        (
            "security",
            r#"{"replay_attack": {"policy": "reject"}}"#,
            Warned,
        ),
        ("tcp_tproxy", "true", Warned),
        ("tcp_weight", "1.0", Warned),
        ("timeout", "300", Warned),
        ("tunnel_address", r#""a:1""#, Warned),
        ("udp_max_associations", "5", Warned),
        ("udp_mtu", "1400", Warned),
        ("udp_timeout", "300", Taken),
        ("udp_timeout", "30", Warned),
        (
            "udp_timeout",
            r#""x""#,
            Refused("expected a number of seconds from 60 to 86400"),
        ),
        ("udp_weight", "1.0", Warned),
        ("use_syslog", "true", Warned),
        ("user", r#""nobody""#, Warned),
        ("version", "1", Taken),
        ("workdir", r#""/tmp""#, Warned),
    ] {
        let file = config(Method::Aes256Gcm, &format!(r#", "{field}": {value}"#));
        let found = ShadowsocksStreams::configure(file.as_bytes());
        let about = format!("{field}: {value}");
        match (found.map(|transport| transport.warnings()), fate) {
            (Ok(warnings), Taken) => assert!(warnings.is_empty(), "{about}: {warnings:?}"),
            (Ok(warnings), Warned) => {
                assert_eq!(warnings.len(), 1, "{about}");
                assert!(warnings[0].starts_with(field), "{about}: {warnings:?}");
            }
            (Err(error), Refused(right)) => {
                let error = error.to_string();
                assert!(error.starts_with(&format!("{field}: ")), "{about}: {error}");
                assert!(error.contains(right), "{about}: {error}");
            }
            (found, _) => panic!("{about}: {found:?}, not {fate:?}"),
        }
    }
}

#[test]
fn a_key_that_is_there_twice_is_named() {
    let listed = r#"{"servers": [{"method": "aes-256-gcm", "a": [{"b": 1, "b": 1}]}]}"#.to_owned();
    for (config, name) in [
        (
            config(Method::Aes256Gcm, r#", "password": "other""#),
            "password",
        ),
        (listed, "b"),
    ] {
        let error = refused(&config).to_string();
        assert!(
            error.starts_with(&format!("{name}: duplicate field at line 1")),
            "{error}"
        );
    }
}

#[test]
fn ciphers_may_be_called_as_in_go_shadowsocks2() {
    let url = "ss://AEAD_CHACHA20_POLY1305:x@example.com:1";
    let mut client = support::End::client(&configured(url));
    let ours = config(Method::Chacha20IetfPoly1305, "").replace("password 1", "x");
    let mut server = support::End::server(&configured(&ours));
    server.receive(&client.begin()).unwrap();
    assert!(server.codec.established());
}

#[test]
fn urls_are_taken() {
    for (url, expected) in [
        // The example of SIP002's own page, with a method that is supported.
        (
            "ss://YWVzLTEyOC1nY206dGVzdA@192.168.100.1:8888#Example1",
            "192.168.100.1:8888",
        ),
        (
            "ss://YWVzLTEyOC1nY206dGVzdA==@192.168.100.1:8888/",
            "192.168.100.1:8888",
        ),
        (
            "ss://YWVzLTEyOC1nY206dGVzdA%3D%3D@[2001:db8::1]:8888/?#x",
            "[2001:db8::1]:8888",
        ),
        ("ss://aes-128-gcm:test@example.com:1", "example.com:1"),
        (
            "ss://2022-blake3-aes-128-gcm:AQEBAQEBAQEBAQEBAQEBAQ%3D%3D@192.0.2.1:8888?outline=1",
            "192.0.2.1:8888",
        ),
        // The older form, all in base64: aes-128-gcm:test@192.168.100.1:8888.
        (
            "ss://YWVzLTEyOC1nY206dGVzdEAxOTIuMTY4LjEwMC4xOjg4ODg=#Example",
            "192.168.100.1:8888",
        ),
        (
            "  ss://aes-128-gcm:p%40ss@example.com:1?prefix=HTTP%2F1.1\n",
            "example.com:1",
        ),
        (
            "\u{feff}ss://aes-128-gcm:test@example.com:1\r\n",
            "example.com:1",
        ),
        ("SS://aes-128-gcm:test@example.com:1", "example.com:1"),
        (
            "ss://aes-128-gcm:test@example.com:1#My server",
            "example.com:1",
        ),
        ("ss://aes-128-gcm%3Atest@example.com:1", "example.com:1"),
        (
            "ss://aes-128-gcm:test@example.com:1/?type=tcp&group=R3JvdXA&security=none#x",
            "example.com:1",
        ),
    ] {
        assert_eq!(server(url).as_deref(), Some(expected), "{url}");
    }
}

#[test]
fn outlines_prefixes_are_characters_that_stand_for_bytes() {
    let url = "ss://aes-256-gcm:x@example.com:1?prefix=%16%03%01%00%C2%A8%01%01";
    let first = support::End::client(&configured(url)).begin();
    assert!(first.starts_with(b"\x16\x03\x01\x00\xa8\x01\x01"));
    let json = config(
        Method::Aes256Gcm,
        r#", "prefix": "\u0016\u0003\u0001\u0000\u00a8\u0001\u0001""#,
    );
    let first = support::End::client(&configured(&json)).begin();
    assert!(first.starts_with(b"\x16\x03\x01\x00\xa8\x01\x01"));
}

#[test]
fn what_clients_are_given_is_a_configuration() {
    let public: Destination = "[2001:db8::1]:8388".parse().unwrap();
    for method in Method::ALL {
        let transport = configured(&config(method, ""));
        let files = transport.client_configs(&public).unwrap();
        assert_eq!(files.len(), 1);
        let clients = configured(&files[0].content);
        assert_eq!(clients.outer(None), Some(public.clone()));
        let mut server = support::End::server(&transport);
        server
            .receive(&support::End::client(&clients).begin())
            .unwrap();
        assert!(
            server.info().destination.to_string() == support::TARGET,
            "{method}"
        );
    }
    let key = password(Method::Blake3Aes128Gcm, 2);
    let users = format!(r#", "users": [{{"name": "a b", "password": "{key}"}}]"#);
    let transport = configured(&config(Method::Blake3Aes128Gcm, &users));
    let files = transport.client_configs(&public).unwrap();
    assert_eq!(files[0].peer.as_deref(), Some("a b"));
    let mut server = support::End::server(&transport);
    server
        .receive(&support::End::client(&configured(&files[0].content)).begin())
        .unwrap();
    assert_eq!(server.info().peer.as_deref(), Some("a b"));
}

#[test]
fn what_is_wrong_is_named() {
    let with = |more: &str| config(Method::Aes256Gcm, more);
    let new = |more: &str| config(Method::Blake3Aes128Gcm, more);
    let url = |rest: &str| format!("ss://{rest}");
    let cases = [
        (r#"{"password": "x"}"#.to_owned(), "method", "missing"),
        (
            r#"{"method": "aes-256-gcm"}"#.to_owned(),
            "password",
            "missing",
        ),
        (
            r#"{"method": "aes-256-gcm", "password": ""}"#.to_owned(),
            "password",
            "empty",
        ),
        (
            r#"{"method": "aes-256-gcm", "password": 5}"#.to_owned(),
            "password",
            "expected a string",
        ),
        (
            r#"{"method": "rc4-md5", "password": "x"}"#.to_owned(),
            "method",
            "not supported",
        ),
        (
            r#"{"method": "none", "password": "x"}"#.to_owned(),
            "method",
            "not supported",
        ),
        (
            r#"{"method": "aes", "password": "x"}"#.to_owned(),
            "method",
            "2022-blake3-aes-128-gcm",
        ),
        (
            r#"{"method": "2022-blake3-aes-128-gcm", "password": "secret"}"#.to_owned(),
            "password",
            "16 bytes, 24 characters",
        ),
        (
            r#"{"method": "2022-blake3-aes-256-gcm", "password": "AQEBAQEBAQEBAQEBAQEBAQ=="}"#
                .to_owned(),
            "password",
            "32 bytes, 44 characters",
        ),
        (
            r#"{"method": "2022-blake3-chacha20-poly1305", "password": "a:b"}"#.to_owned(),
            "password",
            "does not support users",
        ),
        (with(r#", "tcp_port": 5"#), "tcp_port", "unknown"),
        (
            with(r#", "plugin": "obfs-local""#),
            "plugin",
            "remove this field",
        ),
        (
            with(r#", "server": "example.com""#),
            "server_port",
            "missing",
        ),
        (with(r#", "server_port": 5"#), "server", "missing"),
        (
            with(r#", "server": "exa mple", "server_port": 5"#),
            "server",
            "host name",
        ),
        (
            with(r#", "server": "example.com", "server_port": 0"#),
            "server_port",
            "1 to 65535",
        ),
        (
            with(r#", "server": "example.com", "server_port": 65536"#),
            "server_port",
            "1 to 65535",
        ),
        (
            with(r#", "target": "nowhere""#),
            "target",
            "host and a port",
        ),
        (with(r#", "mode": "udp""#), "mode", "udp_only"),
        (
            with(r#", "udp_idle_timeout": 59"#),
            "udp_idle_timeout",
            "60",
        ),
        (with(r#", "prefix": "123456789""#), "prefix", "random"),
        (with(r#", "prefix": "€""#), "prefix", "U+00FF"),
        (
            with(r#", "users": []"#).replace("[]", "{}"),
            "users",
            "list",
        ),
        (
            with(r#", "users": [{"name": "a", "password": "b"}]"#),
            "users[0]",
            "does not support users",
        ),
        (
            new(r#", "users": [{"name": "a"}]"#),
            "users[0].password",
            "missing",
        ),
        (
            new(r#", "users": [{"name": "a", "password": "b"}]"#),
            "users[0].password",
            "24 characters",
        ),
        (
            new(r#", "users": [{"name": "a", "password": "b", "id": 1}]"#),
            "users[0].id",
            "unknown",
        ),
        (
            new(&format!(
                r#", "users": [{{"name": "a", "password": "{KEY}"}}, {{"name": "b", "password": "{KEY}"}}]"#
            )),
            "users",
            "same key",
        ),
        (
            with(r#", "gfw_report_compat": "yes""#),
            "gfw_report_compat",
            "insecure",
        ),
        (
            new(r#", "gfw_report_compat": "insecure""#),
            "gfw_report_compat",
            "not supported by",
        ),
        (
            with(r#", "segmented_header": true"#),
            "segmented_header",
            "does not have this header",
        ),
        (
            new(r#", "segmented_header": 1"#),
            "segmented_header",
            "expected true or false",
        ),
        (r#"{"servers": []}"#.to_owned(), "servers", "object"),
        (
            r#"{"servers": [{"method": "x", "password": "y"}]}"#.to_owned(),
            "servers[0].method",
            "unknown",
        ),
        (
            r#"{"servers": [], "bogus": 1}"#.to_owned(),
            "bogus",
            "unknown",
        ),
        (url("aes-128-gcm:x@example.com"), "host", "host and a port"),
        (url("aes-128-gcm:x@2001:db8::1:5"), "host", "[2001:db8::1]"),
        (
            url("aes-128-gcm:x@example.com:0"),
            "host",
            "host and a port",
        ),
        (url("rc4:x@example.com:1"), "method", "not supported"),
        (url("!!!@example.com:1"), "userinfo", "base64"),
        (
            url("aes-128-gcm:x@example.com:1?plugin=obfs-local%3Bobfs%3Dhttp"),
            "plugin",
            "remove this field",
        ),
        (
            url("aes-128-gcm:x@example.com:1?prefix=123456789"),
            "prefix",
            "random",
        ),
        (
            url("aes-128-gcm:x@example.com:1?type=ws"),
            "type",
            "ws: not supported; expected tcp",
        ),
        (
            url("aes-128-gcm:x@example.com:1?uot=1"),
            "uot",
            "unknown parameter",
        ),
        (with(r#", "server": []"#), "server", "a list of them"),
        (
            with(r#", "server": [5], "server_port": 5"#),
            "server",
            "a list of them",
        ),
        (
            with(r#", "server": "a", "address": "b", "port": 5"#),
            "address",
            "duplicates server",
        ),
        (
            r#"{"version": 2, "servers": []}"#.to_owned(),
            "version",
            "expected 1",
        ),
        (
            r#"{"version": 1, "servers": [{"disabled": true}]}"#.to_owned(),
            "servers",
            "not disabled",
        ),
    ];
    for (field, _) in FIELDS {
        let has_case = cases.iter().any(|(_, name, _)| *name == field.name);
        assert!(has_case, "nothing is wrong for {}", field.name);
    }
    for (config, field, right) in cases {
        let error = refused(&config).to_string();
        assert!(
            error.starts_with(&format!("{field}: ")),
            "{config}: {error}"
        );
        assert!(error.contains(right), "{config}: {error}");
    }
}

#[test]
fn what_is_no_configuration_says_what_one_looks_like() {
    for (config, right) in [
        ("", "ss://"),
        ("method = x", "ss://"),
        ("[]", "JSON object"),
        ("{\"a\": }", "not JSON"),
        ("ss://", "ss://METHOD:PASSWORD@HOST:PORT"),
        ("ss://abc", "ss://METHOD:PASSWORD@HOST:PORT"),
        (
            "ss://aes-128-gcm:x@a:1\nss://aes-128-gcm:x@b:1",
            "second line",
        ),
    ] {
        let ConfigError::Syntax(error) = refused(config) else {
            panic!("not a matter of syntax: {config}");
        };
        assert!(error.contains(right), "{config:?}: {error}");
    }
    assert!(ShadowsocksStreams::configure(b"\xff").is_err());
}

#[test]
fn no_key_stands_in_an_error() {
    let secret = password(Method::Blake3Aes256Gcm, 77);
    for config in [
        format!(r#"{{"method": "2022-blake3-aes-128-gcm", "password": "{secret}"}}"#),
        format!(r#"{{"method": "{secret}x", "password": "y"}}"#).replace("method", "metho"),
        format!("ss://2022-blake3-aes-128-gcm:{secret}@example.com:1"),
    ] {
        assert!(!refused(&config).to_string().contains(&secret), "{config}");
    }
}
