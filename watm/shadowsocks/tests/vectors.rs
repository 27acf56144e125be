//! Requests made by another implementation of the specifications: see vectors.py.

mod support;

use serde_json::Value;
use support::host::World;
use support::{End, TARGET, configured};
use watm_stream::Codec;

const VECTORS: &str = include_str!("vectors.json");
const PAYLOAD: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

fn vectors() -> Vec<(String, Value)> {
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    assert_eq!(vectors.len(), 10);
    let config = |vector: &Value| {
        let mut config = vector.as_object().unwrap().clone();
        config.retain(|name, _| ["method", "password", "users"].contains(&name.as_str()));
        Value::Object(config).to_string()
    };
    vectors
        .iter()
        .map(|vector| (config(vector), vector.clone()))
        .collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap();
    (0..digits.len() / 2)
        .map(|place| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).unwrap())
        .collect()
}

#[test]
fn requests_in_streams_are_understood() {
    for (config, vector) in vectors() {
        let transport = configured(&config);
        let mut server = End::server(&transport);
        server.receive(&bytes(&vector["stream"])).unwrap();
        assert!(server.codec.established(), "{config}");
        assert_eq!(server.info().destination.to_string(), TARGET);
        assert_eq!(server.received(), PAYLOAD, "{config}");
        let user = vector.get("users").map(|_| "alice");
        assert_eq!(server.info().peer.as_deref(), user);
    }
}

#[test]
fn datagrams_are_understood() {
    for (config, vector) in vectors() {
        let mut server = World::new(&config);
        server.arrive("198.51.100.7:5000", &bytes(&vector["datagram"]));
        assert_eq!(server.host.flows.len(), 1, "{config}");
        let flow = server.host.flows[0].clone();
        assert_eq!(flow.received(), [PAYLOAD.to_vec()]);
        let info = flow.info.unwrap();
        assert_eq!(info.destination.to_string(), "[2001:db8::1]:53");
        assert_eq!(info.peer.as_deref(), vector.get("users").map(|_| "alice"));
    }
}
