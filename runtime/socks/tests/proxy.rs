//! Proxies in front of the host's own TCP and UDP, with clients of all kinds.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;
use watm_socks::{
    Bypass, Bypassing, Destination, Dial, Direct, Limits, Proxy, Refusal, Users, forward,
};

const LOCALHOST: &str = "127.0.0.1:0";
const PATIENCE: Duration = Duration::from_secs(10);

/// Refuses names for a reason in the name, and connects to addresses.
struct Answers;

impl Dial for Answers {
    type Stream = TcpStream;
    type Datagrams = UdpSocket;

    async fn stream(&self, to: &Destination) -> Result<TcpStream, Refusal> {
        let Destination::Name(name, _) = to else {
            return Direct.stream(to).await;
        };
        Err(match name.as_str() {
            "denied" => Refusal::NotAllowed,
            "network" => Refusal::NetworkUnreachable,
            "host" => Refusal::HostUnreachable,
            "refused" => Refusal::Refused,
            "late" => Refusal::TimedOut,
            "never" => Refusal::NotSupported,
            other => Refusal::Failed(other.to_owned()),
        })
    }

    async fn datagrams(&self, to: &Destination) -> Result<UdpSocket, Refusal> {
        match to {
            Destination::Address(_) => Direct.datagrams(to).await,
            Destination::Name(..) => Err(Refusal::NotSupported),
        }
    }
}

#[derive(Clone, Copy)]
enum Protocol {
    Socks,
    Http,
}

fn soon() -> Limits {
    Limits {
        handshake: Duration::from_millis(500),
        flows: 2,
        ..Limits::default()
    }
}

/// Returns a proxy, and a connection to it.
async fn client(protocol: Protocol, users: Users) -> (Proxy<Answers>, TcpStream) {
    let proxy = Proxy::new(Arc::new(Answers), users, soon());
    let listener = TcpListener::bind(LOCALHOST).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = proxy.clone();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let _ = match protocol {
            Protocol::Socks => serving.socks(client).await,
            Protocol::Http => serving.http(client).await,
        };
    });
    (proxy, TcpStream::connect(address).await.unwrap())
}

/// Starts a server that echoes each connection.
async fn echo() -> u16 {
    let listener = TcpListener::bind(LOCALHOST).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    port
}

/// Starts a server that echoes each datagram.
async fn echo_datagrams() -> SocketAddr {
    let socket = UdpSocket::bind(LOCALHOST).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&buffer[..len], from).await.unwrap();
        }
    });
    address
}

async fn says(client: &mut TcpStream, parts: &[&[u8]]) {
    client.write_all(&parts.concat()).await.unwrap();
}

async fn read(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let all = timeout(PATIENCE, client.read_exact(&mut bytes)).await;
    all.expect("in time").expect("read");
    bytes
}

async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let all = timeout(PATIENCE, client.read_to_end(&mut bytes)).await;
    if let Err(error) = all.expect("in time") {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    bytes
}

/// Returns a SOCKS5 request for a port of localhost.
fn socks5(command: u8, port: u16) -> Vec<u8> {
    [&[5, command, 0, 1, 127, 0, 0, 1], &port.to_be_bytes()[..]].concat()
}

const GREETING: &[u8] = &[5, 1, 0];

#[tokio::test]
async fn a_client_of_socks5_is_connected_byte_by_byte_too() {
    let port = echo().await;
    let (proxy, mut client) = client(Protocol::Socks, Users::everybody()).await;
    for byte in [GREETING, &socks5(1, port)].concat() {
        says(&mut client, &[&[byte]]).await;
        tokio::task::yield_now().await;
    }
    let answer = [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(read(&mut client, 12).await, answer);
    says(&mut client, &[b"hello"]).await;
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, b"hello");
    assert_eq!(proxy.counters().connected.get(), 1);
}

#[tokio::test]
async fn each_reason_has_its_own_answer() {
    for (name, socks, http) in [
        ("other", 1, "502"),
        ("denied", 2, "403"),
        ("network", 3, "503"),
        ("host", 4, "503"),
        ("refused", 5, "502"),
        ("late", 6, "504"),
        ("never", 7, "501"),
    ] {
        let (_, mut near) = client(Protocol::Socks, Users::everybody()).await;
        let head = [5, 1, 0, 3, name.len() as u8];
        says(&mut near, &[GREETING, &head, name.as_bytes(), &[0, 80]]).await;
        let answer = [5, 0, 5, socks, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(rest(&mut near).await, answer, "{name}");
        let (_, mut near) = client(Protocol::Http, Users::everybody()).await;
        let request = format!("CONNECT {name}:80 HTTP/1.1\r\n\r\n");
        says(&mut near, &[request.as_bytes()]).await;
        let answer = String::from_utf8(rest(&mut near).await).unwrap();
        let status = format!("HTTP/1.1 {http} ");
        assert!(answer.starts_with(&status), "{name}: {answer}");
    }
}

/// Closing a connection with unread bytes resets it.
#[tokio::test]
async fn a_refused_client_that_sends_more_reads_its_answer() {
    let unknown_kind = b"\x05\x01\0\x05\x01\0\x09".to_vec();
    let refused = b"\x05\x01\0\x05\x01\0\x03\x07refused\0\x50".to_vec();
    let connect = b"CONNECT refused:80 HTTP/1.1\r\n\r\n".to_vec();
    for (protocol, request, answer) in [
        (Protocol::Socks, unknown_kind, &b"\x05\0\x05\x08"[..]),
        (Protocol::Socks, refused, b"\x05\0\x05\x05"),
        (Protocol::Http, connect, b"HTTP/1.1 502 "),
        (
            Protocol::Http,
            b"CONNECT nobody\r\n\r\n".to_vec(),
            b"HTTP/1.1 400 ",
        ),
    ] {
        let (_proxy, mut client) = client(protocol, Users::everybody()).await;
        says(&mut client, &[&request, &[7; 10_000]]).await;
        let mut read = Vec::new();
        let end = timeout(PATIENCE, client.read_to_end(&mut read)).await;
        end.expect("in time").expect("an end, and no reset");
        assert!(read.starts_with(answer), "{read:?}");
    }
}

#[tokio::test]
async fn users_have_to_say_who_they_are() {
    let port = echo().await;
    let users = Users::everybody().with("ann", "secret").unwrap();
    for (method, said, answer) in [
        (2, &b"\x01\x03ann\x06secret"[..], &[5, 2, 1, 0][..]),
        (2, b"\x01\x03ann\x06secreT", &[5, 2, 1, 1]),
        (2, b"\x01\x00\x00", &[5, 2, 1, 1]),
        (0, b"", &[5, 0xff]),
    ] {
        let (_, mut client) = client(Protocol::Socks, users.clone()).await;
        says(&mut client, &[&[5, 1, method], said]).await;
        assert_eq!(read(&mut client, answer.len()).await, answer);
    }
    for (field, status) in [
        ("Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n", "200"),
        ("Proxy-Authorization: Basic YW5uOnNlY3JlVA==\r\n", "407"),
        ("Proxy-Authorization: Basic ?\r\n", "407"),
        ("", "407"),
    ] {
        let (_, mut client) = client(Protocol::Http, users.clone()).await;
        let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n{field}\r\n");
        says(&mut client, &[request.as_bytes()]).await;
        let answer = read(&mut client, 12).await;
        assert_eq!(answer, format!("HTTP/1.1 {status}").as_bytes());
    }
    let (_, mut near) = client(Protocol::Socks, users).await;
    says(&mut near, &[b"\x04\x01\0\x50\x7f\0\0\x01ann\0"]).await;
    assert_eq!(rest(&mut near).await[..2], [0, 91]);
}

#[tokio::test]
async fn socks4a_and_plain_http_are_served() {
    let port = echo().await;
    let (_, mut near) = client(Protocol::Socks, Users::everybody()).await;
    let request = [b"\x04\x01", &port.to_be_bytes()[..], b"\x7f\0\0\x01ann\0"];
    says(&mut near, &[&request.concat(), b"hello"]).await;
    assert_eq!(read(&mut near, 13).await, b"\0\x5a\0\0\0\0\0\0hello");
    let (_, mut near) = client(Protocol::Socks, Users::everybody()).await;
    says(&mut near, &[b"\x04\x01\0\x50\0\0\0\x01\0refused\0"]).await;
    assert_eq!(rest(&mut near).await[..2], [0, 91]);
    let (_, mut near) = client(Protocol::Http, Users::everybody()).await;
    let request = format!("POST http://127.0.0.1:{port}/a HTTP/1.1\r\nConnection: x\r\n\r\nbody");
    says(&mut near, &[request.as_bytes()]).await;
    near.shutdown().await.unwrap();
    let echoed = rest(&mut near).await;
    assert_eq!(echoed, b"POST /a HTTP/1.1\r\nConnection: close\r\n\r\nbody");
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_counted() {
    let long = "a".repeat(20_000);
    for (protocol, said, answer) in [
        (Protocol::Socks, &b"GET / HTTP/1.1\r\n\r\n"[..], &b""[..]),
        // BIND, an unknown command, an unknown kind of address, invalid names.
        (
            Protocol::Socks,
            b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\x01\0\x50",
            b"\x05\0\x05\x07",
        ),
        (
            Protocol::Socks,
            b"\x05\x01\0\x05\x09\0\x01\x7f\0\0\x01\0\x50",
            b"\x05\0\x05\x07",
        ),
        (
            Protocol::Socks,
            b"\x05\x01\0\x05\x01\0\x02",
            b"\x05\0\x05\x08",
        ),
        (
            Protocol::Socks,
            b"\x05\x01\0\x05\x01\0\x03\0\0\x50",
            b"\x05\0\x05\x01",
        ),
        (
            Protocol::Socks,
            b"\x05\x01\0\x05\x01\0\x03\x03a\0b\0\x50",
            b"\x05\0\x05\x01",
        ),
        (Protocol::Socks, b"\x05\x01\0\x04\x01\0\x01", b"\x05\0"),
        (Protocol::Socks, b"\x05\0", b"\x05\xff"),
        // More is announced than sent.
        (Protocol::Socks, b"\x05\xff\0", b""),
        (Protocol::Http, b"CONNECT a", b""),
        (Protocol::Http, b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 "),
        (Protocol::Http, long.as_bytes(), b""),
    ] {
        let (proxy, mut client) = client(protocol, Users::everybody()).await;
        // It may be refused before everything is sent.
        let _ = client.write_all(said).await;
        let heard = rest(&mut client).await;
        assert!(heard.starts_with(answer), "{said:?}: {heard:?}");
        assert_eq!(proxy.counters().refused.get(), 1, "{said:?}");
    }
}

/// Returns an association, and the socket for its datagrams.
async fn association() -> (Proxy<Answers>, TcpStream, UdpSocket) {
    let (proxy, mut client) = client(Protocol::Socks, Users::everybody()).await;
    says(&mut client, &[GREETING, &socks5(3, 0)]).await;
    let answer = read(&mut client, 12).await;
    assert_eq!(answer[..10], [5, 0, 5, 0, 0, 1, 127, 0, 0, 1]);
    let socket = UdpSocket::bind(LOCALHOST).await.unwrap();
    let port = u16::from_be_bytes([answer[10], answer[11]]);
    socket.connect(("127.0.0.1", port)).await.unwrap();
    (proxy, client, socket)
}

fn wrapped(to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let port = to.port().to_be_bytes();
    [&[0, 0, 0, 1, 127, 0, 0, 1], &port[..], payload].concat()
}

async fn answered(socket: &UdpSocket, datagram: &[u8]) {
    socket.send(datagram).await.unwrap();
    let mut buffer = [0; 2048];
    let received = timeout(PATIENCE, socket.recv(&mut buffer)).await;
    let len = received.expect("in time").expect("received");
    assert_eq!(&buffer[..len], datagram);
}

#[tokio::test]
async fn datagrams_go_to_many_destinations_for_the_client_alone() {
    let (proxy, client, socket) = association().await;
    // More destinations than flows at once.
    for turn in 0..4 {
        let to = echo_datagrams().await;
        answered(&socket, &wrapped(to, &[turn; 100])).await;
        answered(&socket, &wrapped(to, b"")).await;
    }
    let to = echo_datagrams().await;
    let mut fragment = wrapped(to, b"part");
    fragment[2] = 1;
    socket.send(&fragment).await.unwrap();
    socket.send(b"\0\0").await.unwrap();
    let own = socket.peer_addr().unwrap();
    let stranger = UdpSocket::bind(LOCALHOST).await.unwrap();
    stranger.send_to(&wrapped(to, b"x"), own).await.unwrap();
    answered(&socket, &wrapped(to, b"after")).await;
    let counters = proxy.counters();
    assert_eq!(counters.dropped_fragments.get(), 1);
    assert_eq!(counters.dropped_malformed.get(), 1);
    assert_eq!(counters.dropped_strangers.get(), 1);
    assert_eq!(counters.datagrams_in.get(), 9);
    drop(client);
    for _ in 0..500 {
        if UdpSocket::bind(own).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the association lives on");
}

#[tokio::test]
async fn a_dialer_without_datagrams_ends_the_association() {
    let (proxy, mut client, socket) = association().await;
    socket.send(b"\0\0\0\x03\x01a\0\x35question").await.unwrap();
    assert!(rest(&mut client).await.is_empty());
    assert_eq!(proxy.counters().failed.get(), 1);
}

#[tokio::test]
async fn a_port_is_forwarded_for_each_client() {
    let dial = Arc::new(Bypassing::new(Answers, Bypass::default()));
    let to = Destination::Address(echo_datagrams().await);
    let socket = UdpSocket::bind(LOCALHOST).await.unwrap();
    let address = socket.local_addr().unwrap();
    let by = dial.clone();
    tokio::spawn(async move {
        let failed = |error| panic!("{error}");
        forward::datagrams(socket, &to, by, soon(), Arc::default(), failed).await;
    });
    for turn in 0..3 {
        let client = UdpSocket::bind(LOCALHOST).await.unwrap();
        client.connect(address).await.unwrap();
        answered(&client, &[turn; 9]).await;
    }
    let listener = TcpListener::bind(LOCALHOST).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut near = TcpStream::connect(address).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let refused = Destination::Name("refused".to_owned(), 80);
    let error = forward::stream(far, &refused, &*dial, &Default::default()).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "refused:80: connection refused");
    assert!(rest(&mut near).await.is_empty());
}

/// Serves a client with a dialer for its arguments. Returns them and the outcome. Arguments that
/// begin with `=` are refused.
fn with_arguments(client: TcpStream) -> tokio::task::JoinHandle<(String, bool)> {
    tokio::spawn(async move {
        let said = std::sync::Mutex::new(String::new());
        let dialer = |arguments: &str| {
            *said.lock().unwrap() = arguments.to_owned();
            match arguments.starts_with('=') {
                true => Err("no name".to_owned()),
                false => Ok(Answers),
            }
        };
        let served = watm_socks::arguments::serve(client, dialer, &soon()).await;
        (said.into_inner().unwrap(), served.is_ok())
    })
}

#[tokio::test]
async fn arguments_stand_in_the_place_of_a_user_and_a_password() {
    let port = echo().await;
    let named = |name: &[u8], password: &[u8]| {
        let sized = |text: &[u8]| [&[text.len() as u8], text].concat();
        [&[1][..], &sized(name), &sized(password)].concat()
    };
    // Offered methods, the bytes after them, the arguments.
    for (offered, user, expected) in [
        (
            &[5, 2, 0, 2][..],
            named(b"cert=ab", b"cd;x=1"),
            "cert=abcd;x=1",
        ),
        (&[5, 1, 2], named(b"a=1", &[0]), "a=1"),
        (&[5, 1, 0], Vec::new(), ""),
    ] {
        let (mut client, served) = arguments_of().await;
        client.write_all(offered).await.unwrap();
        let method = if user.is_empty() { 0 } else { 2 };
        assert_eq!(read(&mut client, 2).await, [5, method]);
        if !user.is_empty() {
            client.write_all(&user).await.unwrap();
            assert_eq!(read(&mut client, 2).await, [1, 0]);
        }
        client.write_all(&socks5(1, port)).await.unwrap();
        assert_eq!(read(&mut client, 10).await[..2], [5, 0]);
        client.write_all(b"hello").await.unwrap();
        assert_eq!(read(&mut client, 5).await, b"hello");
        client.shutdown().await.unwrap();
        assert_eq!(rest(&mut client).await, b"");
        assert_eq!(served.await.unwrap(), (expected.to_owned(), true));
    }
    let refused = |user: Vec<u8>, answer: [u8; 2]| async move {
        let (mut client, served) = arguments_of().await;
        client
            .write_all(&[&[5, 1, 2][..], &user].concat())
            .await
            .unwrap();
        assert_eq!(read(&mut client, 4).await[2..], answer);
        assert!(!served.await.unwrap().1);
    };
    refused(named(b"=", b"1"), [1, 1]).await;
    refused(named(b"\xff", b"1"), [1, 1]).await;
    // Another command, another protocol, and unknown methods.
    for (said, answer) in [
        (
            &[&[5, 1, 0][..], &socks5(3, port)].concat()[..],
            &[5, 0, 5, 7][..],
        ),
        (&[5, 1, 9], &[5, 0xff]),
        (&[4, 1], &[]),
    ] {
        let (mut client, served) = arguments_of().await;
        client.write_all(said).await.unwrap();
        assert_eq!(rest(&mut client).await.get(..answer.len()), Some(answer));
        assert!(!served.await.unwrap().1);
    }
}

/// Connects a client of [`with_arguments`].
async fn arguments_of() -> (TcpStream, tokio::task::JoinHandle<(String, bool)>) {
    let listener = TcpListener::bind(LOCALHOST).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    (client, with_arguments(accepted))
}
