//! Connections that the application dials, between two transports of this crate.

mod support;

use std::time::Duration;

use support::{Outer, Pair, Random, SERVER, base64, peer_config, private_key, public_text};
use watm_core::ErrorCode;

const CLIENT_KEY: u8 = 1;
const BOTH: [Outer; 2] = [Outer::Datagrams, Outer::Streams];

/// The client's configuration, with `interface` and `peer` instead of the usual lines.
fn client_config(interface: &str, peer: &str) -> String {
    let key = base64(private_key(CLIENT_KEY).as_bytes());
    let server = public_text(support::SERVER_KEY);
    format!("[Interface]\nPrivateKey = {key}\n{interface}\n[Peer]\nPublicKey = {server}\n{peer}\n")
}

fn usual_client() -> String {
    client_config(
        "Address = 10.0.0.1/32, fd00::1/128\n[Watm]\nTarget = 10.9.8.7:80",
        &format!("AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = {SERVER}"),
    )
}

fn server() -> String {
    support::server_config(&peer_config(
        CLIENT_KEY,
        "AllowedIPs = 10.0.0.1/32, fd00::1/128",
    ))
}

fn pair(outer: Outer) -> Pair {
    Pair::new(&usual_client(), &server(), outer)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn bytes_pass_both_ways_with_the_ends_of_streams() {
    for outer in BOTH {
        for (to, destination) in [
            (None, "10.9.8.7:80"),
            (Some("10.1.1.1:443"), "10.1.1.1:443"),
            (Some("[fd00:9::7]:22"), "[fd00:9::7]:22"),
        ] {
            let mut pair = pair(outer);
            let near = pair.dial(to).unwrap();
            let (up, down) = (Random(1).bytes(300_000), Random(2).bytes(500_000));
            near.write(&up);
            near.close();
            pair.run_for(SECOND);
            let far = pair.server.host.app.streams()[0].clone();
            assert_eq!(far.info().destination.to_string(), destination);
            assert_eq!(far.info().peer, Some(public_text(CLIENT_KEY)));
            assert!(far.read() == up);
            assert!(far.ended() && !near.ended(), "one direction ends");
            far.write(&down);
            far.close();
            pair.run_for(SECOND);
            assert!(near.read() == down);
            assert!(near.ended() && near.finished() && far.finished());
            assert_eq!((near.reset(), far.reset()), (None, None));
        }
    }
}

#[test]
fn a_connection_comes_from_the_address_whose_network_it_goes_to() {
    let ours = "10.0.0.1/32 10.8.0.2/16, 10.8.1.2/24, 10.8.1.3/24, fd00::1, fd08::2/64";
    let client = client_config(
        &format!("Address = {ours}"),
        &format!("AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = {SERVER}"),
    );
    let peer = peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.0/8, fd00::/8");
    for (to, from) in [
        ("192.0.2.1:80", "10.0.0.1"),
        ("10.8.9.9:80", "10.8.0.2"),
        ("10.8.1.9:80", "10.8.1.2"),
        ("[2001:db8::1]:80", "fd00::1"),
        ("[fd08::9]:80", "fd08::2"),
    ] {
        let mut pair = Pair::new(&client, &support::server_config(&peer), Outer::Datagrams);
        let near = pair.dial(Some(to)).expect("dialled");
        near.write(b"hello");
        pair.run_for(SECOND);
        let far = pair.server.host.app.streams()[0].clone();
        assert_eq!(far.info().source.ip().to_string(), from, "{to}");
    }
}

#[test]
fn datagrams_pass_both_ways_each_whole() {
    for outer in BOTH {
        for (to, destination) in [
            (None, "10.9.8.7:80"),
            (Some("10.1.1.1:53"), "10.1.1.1:53"),
            (Some("[fd00:9::7]:53"), "[fd00:9::7]:53"),
        ] {
            let mut pair = pair(outer);
            let near = pair.dial_datagrams(to).unwrap();
            let questions = [1, 1300, 4000].map(|len| Random(1).bytes(len));
            questions.iter().for_each(|question| near.write(question));
            pair.run_for(SECOND);
            let far = pair.server.host.app.flows()[0].clone();
            assert_eq!(far.info().destination.to_string(), destination);
            assert_eq!(far.info().peer, Some(public_text(CLIENT_KEY)));
            let heard = far.read();
            assert!(heard == questions);
            heard.iter().for_each(|question| far.write(question));
            pair.run_for(SECOND);
            assert!(near.read() == questions);
        }
    }
    let error = pair(Outer::Datagrams).dial_datagrams(Some("example.com:53"));
    let error = error.err().expect("a name").to_string();
    assert!(error.contains("use an address"), "{error}");
}

#[test]
fn many_connections_share_one_tunnel() {
    for outer in BOTH {
        let mut pair = pair(outer);
        let streams: Vec<_> = (0..50u8)
            .map(|number| {
                let stream = pair.dial(None).unwrap();
                stream.write(&[number; 1000]);
                stream
            })
            .collect();
        pair.run_for(SECOND);
        let far = pair.server.host.app.streams().to_vec();
        assert_eq!(far.len(), 50);
        for stream in &far {
            stream.write(&stream.read());
        }
        pair.run_for(SECOND);
        for (stream, number) in streams.iter().zip(0u8..) {
            assert_eq!(stream.read(), [number; 1000]);
        }
        assert_eq!(pair.server.counter("wireguard.handshakes"), 1);
        if let Some(streams) = &pair.client.host.streams {
            assert_eq!(streams.connect_tries(), 1);
        }
    }
}

#[test]
fn a_refusal_inside_is_told() {
    for outer in BOTH {
        let mut pair = pair(outer);
        pair.server.host.app.refuse = Some(ErrorCode::AccessDenied);
        let stream = pair.dial(None).unwrap();
        pair.run_for(SECOND);
        // The server answers the handshake first, and then resets.
        assert!(matches!(
            stream.reset(),
            Some(ErrorCode::ConnectionRefused | ErrorCode::ConnectionReset)
        ));
    }
}

#[test]
fn nobody_out_there_is_a_timeout() {
    let mut pair = pair(Outer::Datagrams);
    pair.cut = true;
    let stream = pair.dial(None).unwrap();
    pair.run_for(Duration::from_secs(120));
    assert_eq!(stream.reset(), Some(ErrorCode::Timeout));
}

#[test]
fn a_lost_handshake_is_made_again() {
    let mut pair = pair(Outer::Datagrams);
    pair.cut = true;
    let stream = pair.dial(None).unwrap();
    stream.write(b"patience");
    pair.run_for(SECOND);
    pair.cut = false;
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.server.host.app.streams()[0].read(), b"patience");
}

#[test]
fn a_stream_that_cannot_be_connected_ends_what_waits_for_it() {
    let mut pair = pair(Outer::Streams);
    let streams = pair.client.host.streams.clone().expect("streams");
    let stream = pair.dial(None).unwrap();
    streams.connection(SERVER.parse().unwrap()).abort();
    pair.run_for(SECOND);
    assert_eq!(stream.reset(), Some(ErrorCode::ConnectionAborted));
    streams.set_unreachable(true);
    assert_eq!(pair.dial(None).err(), Some(ErrorCode::RemoteUnreachable));
}

#[test]
fn a_connection_that_is_lost_is_made_again_for_what_goes_on() {
    let mut pair = pair(Outer::Streams);
    let stream = pair.dial(None).unwrap();
    stream.write(b"before");
    pair.run_for(SECOND);
    let far = pair.server.host.app.streams()[0].clone();
    assert_eq!(far.read(), b"before");

    let (near_streams, far_streams) = (
        pair.client.host.streams.clone().expect("streams"),
        pair.server.host.streams.clone().expect("streams"),
    );
    let (near_end, far_end) = (SERVER.parse().unwrap(), support::CLIENT.parse().unwrap());
    near_streams.set_unreachable(true);
    near_streams.connection(near_end).abort();
    far_streams.connection(far_end).abort();
    pair.run_for(Duration::from_millis(10));
    near_streams.forget(near_end);
    far_streams.forget(far_end);
    stream.write(b"after");
    let tries = near_streams.connect_tries();
    pair.run_for(Duration::from_secs(10));
    let more = near_streams.connect_tries() - tries;
    assert!((1..=10).contains(&more), "{more} tries in 10 seconds");
    near_streams.set_unreachable(false);
    pair.run_for(Duration::from_secs(20));
    assert_eq!(far.read(), b"after");
}

#[test]
fn what_is_missing_is_named() {
    let cases = [
        (
            "",
            "AllowedIPs = 0.0.0.0/0",
            Some("10.9.8.7:80"),
            "[Interface] Address has no address of the family",
        ),
        (
            "Address = 10.0.0.1/32",
            "AllowedIPs = 10.0.0.0/8",
            Some("10.9.8.7:80"),
            "has no Endpoint to connect to",
        ),
        (
            "Address = 10.0.0.1/32",
            "AllowedIPs = 10.0.0.0/8\nEndpoint = 192.0.2.1:51820",
            Some("11.9.8.7:80"),
            "11.9.8.7 is not in the AllowedIPs of any [Peer]",
        ),
        (
            "Address = 10.0.0.1/32",
            "AllowedIPs = 10.0.0.0/8\nEndpoint = 192.0.2.1:51820",
            Some("example.com:80"),
            "example.com is a name",
        ),
        (
            "Address = 10.0.0.1/32",
            "AllowedIPs = 10.0.0.0/8\nEndpoint = 192.0.2.1:51820",
            None,
            "[Watm] has no Target",
        ),
    ];
    for outer in BOTH {
        for (interface, peer, to, why) in &cases {
            let mut pair = Pair::new(&client_config(interface, peer), &server(), outer);
            let error = pair.dial(*to).err().expect(why);
            // The code carries no text; the log has it.
            let told = match error {
                ErrorCode::AccessDenied => pair.client.host.logs.pop().expect("it is told").1,
                other => other.to_string(),
            };
            assert!(told.contains(why), "{told}");
        }
    }
}

#[test]
fn the_target_is_checked() {
    let config = format!(
        "{}\n[Watm]\nTarget = nowhere",
        client_config("Address = 10.0.0.1", "")
    );
    let error = support::refusal(&config);
    assert!(error.contains("[Watm] Target"), "{error}");
}
