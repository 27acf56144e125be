//! Names that DNS servers resolve, which are asked through the dialer.

use std::net::SocketAddr;

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use watm_socks::{Destination, Dial, Direct, Refusal, Resolver, Resolving, Servers};

/// The behaviour of a server for datagrams.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Well,
    /// The very first question is lost.
    Forgetful,
    /// The full answer is available by a stream only.
    Briefly,
    /// Answers to other questions come first.
    Lying,
    Refusing,
    Silent,
    /// Answers about one name, with both its addresses, and never again.
    Once,
}

fn answer(question: &[u8], manner: Manner) -> Vec<u8> {
    let query = Packet::parse(question).unwrap();
    let mut reply = Packet::new_reply(query.id());
    reply.questions = query.questions.clone();
    let asked = &query.questions[0];
    let rdata = match asked.qtype {
        QTYPE::TYPE(TYPE::A) => RData::A(A {
            address: 0x7f00_0001,
        }),
        _ => RData::AAAA(AAAA { address: 1 }),
    };
    match manner {
        Manner::Refusing => *reply.rcode_mut() = RCODE::Refused,
        Manner::Briefly => reply.set_flags(PacketFlag::TRUNCATION),
        _ if asked.qname.to_string() == "nowhere.test" => *reply.rcode_mut() = RCODE::NameError,
        _ => reply.answers.push(ResourceRecord::new(
            asked.qname.clone(),
            CLASS::IN,
            60,
            rdata,
        )),
    }
    reply.build_bytes_vec().unwrap()
}

async fn server(manner: Manner) -> SocketAddr {
    let (socket, listener) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            break (socket, listener);
        }
    };
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        let mut lost = manner != Manner::Forgetful;
        let mut questions = 0;
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            if manner == Manner::Silent || !std::mem::replace(&mut lost, true) {
                continue;
            }
            questions += 1;
            if manner == Manner::Once && questions > 2 {
                continue;
            }
            let answered = answer(&buffer[..len], manner);
            if manner == Manner::Lying {
                let mut other = answered.clone();
                other[0] ^= 1;
                for lie in [&other[..], &buffer[..len], b"", &answered[..20]] {
                    socket.send_to(lie, from).await.unwrap();
                }
            }
            socket.send_to(&answered, from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let answered = answer(&question, Manner::Well);
            stream.write_u16(answered.len() as u16).await.unwrap();
            stream.write_all(&answered).await.unwrap();
        }
    });
    address
}

/// Dials `name`, whose address is this machine's. Returns the outcome.
async fn dialled(servers: Vec<SocketAddr>, name: &str) -> Result<SocketAddr, Refusal> {
    dialled_by(Servers::new(servers), name).await
}

async fn dialled_by(servers: Servers, name: &str) -> Result<SocketAddr, Refusal> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let dial = Resolving::new(Direct, Resolver::Servers(servers));
    let to = Destination::Name(name.to_owned(), port);
    let stream = dial.stream(&to).await?;
    Ok(stream.peer_addr().unwrap())
}

#[tokio::test]
async fn servers_are_asked_again_by_a_stream_and_in_turn() {
    for manner in [
        Manner::Well,
        Manner::Forgetful,
        Manner::Briefly,
        Manner::Lying,
    ] {
        let found = dialled(vec![server(manner).await], "somewhere.test.").await;
        assert!(found.unwrap().ip().is_loopback());
    }
    let servers = vec![server(Manner::Refusing).await, server(Manner::Well).await];
    assert!(dialled(servers, "Somewhere.test").await.is_ok());
}

#[tokio::test]
async fn what_nobody_knows_is_unreachable() {
    let nowhere = dialled(vec![server(Manner::Well).await], "nowhere.test").await;
    assert_eq!(nowhere, Err(Refusal::HostUnreachable));
    let silent = dialled(vec![server(Manner::Silent).await], "somewhere.test").await;
    assert_eq!(silent, Err(Refusal::TimedOut));
    let label = "a".repeat(64);
    let none = dialled(vec![server(Manner::Well).await], &label).await;
    assert_eq!(none, Err(Refusal::HostUnreachable));
    let refused = dialled(vec![server(Manner::Refusing).await], "somewhere.test").await;
    assert!(matches!(refused, Err(Refusal::Failed(_))));
}

#[tokio::test]
async fn an_answer_is_remembered_and_names_are_looked_for_in_domains() {
    let servers = Servers::new(vec![server(Manner::Once).await]).search(["Test".to_owned()]);
    for name in ["somewhere", "somewhere.test", "SOMEWHERE.test."] {
        let found = dialled_by(servers.clone(), name).await;
        assert!(found.unwrap().ip().is_loopback(), "{name}");
    }
    let other = dialled_by(servers, "elsewhere").await;
    assert_eq!(other, Err(Refusal::TimedOut));
}
