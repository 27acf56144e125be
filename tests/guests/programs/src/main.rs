//! A program that does what its first argument says, good or bad. It connects to its second argument,
//! and reports there. It knows only the standard library.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, rest @ ..] = arguments.as_slice() else {
        return;
    };
    match (command.as_str(), rest) {
        ("return", _) => {}
        ("exit", [status]) => std::process::exit(status.parse().expect("a number")),
        ("panic", _) => panic!("as told"),
        ("spin", _) => loop {
            std::hint::black_box(());
        },
        ("sleep", _) => loop {
            sleep(Duration::from_secs(3600));
        },
        ("wait", [millis]) => sleep(Duration::from_millis(millis.parse().expect("a number"))),
        ("print", _) => loop {
            println!("{}", "x".repeat(10_000));
        },
        ("say", [text]) => eprintln!("{text}"),
        ("eat", _) => {
            let mut all = Vec::new();
            loop {
                all.push(vec![1u8; 1 << 20]);
            }
        }
        ("world", [to]) => report(to, world()),
        ("connect", [to, other]) => report(to, words(TcpStream::connect(other.as_str()))),
        ("listen", [to, other]) => report(to, words(TcpListener::bind(other.as_str()))),
        ("look-up", [to, name]) => {
            let found = (name.as_str(), 1).to_socket_addrs();
            report(to, words(found));
        }
        ("send", [to, other]) => {
            let sent = UdpSocket::bind("0.0.0.0:0").and_then(|it| it.send_to(b"hello", other));
            report(to, words(sent));
        }
        ("bind", [to, address]) => report(to, words(UdpSocket::bind(address.as_str()))),
        ("connections", [to, other]) => {
            let mut open = Vec::new();
            let error = loop {
                match TcpStream::connect(other.as_str()) {
                    Ok(stream) => open.push(stream),
                    Err(error) => break error,
                }
            };
            // The report needs a place of its own.
            let count = open.len();
            open.clear();
            report(to, format!("{count} then {error}"));
        }
        ("sockets", [to]) => {
            let mut open = Vec::new();
            // Closed sockets give their places back.
            for _ in 0..1000 {
                drop(UdpSocket::bind("0.0.0.0:0").expect("there is a place"));
            }
            let error = loop {
                match UdpSocket::bind("0.0.0.0:0") {
                    Ok(socket) => open.push(socket),
                    Err(error) => break error,
                }
            };
            let count = open.len();
            open.clear();
            report(to, format!("{count} then {error}"));
        }
        ("flood", [to]) => {
            let mut stream = TcpStream::connect(to.as_str()).expect("connects");
            loop {
                stream.write_all(&[7; 64 << 10]).expect("written");
            }
        }
        ("hold", [to]) => {
            let mut stream = TcpStream::connect(to.as_str()).expect("connects");
            stream.write_all(b"held").expect("written");
            // Waits for an end that does not come.
            let _ = stream.read(&mut [0]);
        }
        ("echo", [address]) => {
            let socket = UdpSocket::bind(address.as_str()).expect("binds");
            let mut buffer = [0; 2048];
            loop {
                let (count, from) = socket.recv_from(&mut buffer).expect("receives");
                socket.send_to(&buffer[..count], from).expect("sends");
            }
        }
        ("serve", [address]) => {
            let listener = TcpListener::bind(address.as_str()).expect("listens");
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepts");
                let mut line = [0; 5];
                if stream.read_exact(&mut line).is_ok() {
                    assert!(&line != b"panic", "as told");
                    stream.write_all(&line).expect("written");
                }
            }
        }
        (other, _) => panic!("no such command: {other}"),
    }
}

fn words<T, E: Display>(result: Result<T, E>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Returns everything that the program sees of the machine.
fn world() -> String {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).expect("read");
    let variables = std::env::vars().count();
    let files = ["/", ".", "/etc/passwd", "/proc/self/environ"]
        .iter()
        .filter(|path| std::fs::metadata(path).is_ok())
        .count();
    let written = std::fs::write("written", "x").is_ok();
    format!("input {input:?}, {variables} variables, {files} files, written: {written}")
}

fn report(to: &str, text: String) {
    let mut stream = TcpStream::connect(to).expect("connects");
    stream.write_all(text.as_bytes()).expect("written");
}
