//! Echoes the bodies of HTTP/1.1 requests: what a benchmark puts behind a server of its own, so that
//! it is not the backend that is measured.
//!
//! `echo ADDRESS:PORT [THREADS]`

use std::error::Error;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The longest request.
const MOST: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .ok_or("usage: echo ADDRESS:PORT [THREADS]")?;
    let threads = arguments
        .next()
        .map_or(Ok(1), |threads| threads.parse::<usize>())?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?
        .block_on(async {
            let listener = TcpListener::bind(address).await?;
            println!("listening on {}", listener.local_addr()?);
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::spawn(async move {
                    // Clients may leave at any time.
                    let _ = serve(stream).await;
                });
            }
        })
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut input = Vec::with_capacity(16 << 10);
    let mut output = Vec::with_capacity(16 << 10);
    let mut last = false;
    loop {
        while let Some(Request { head, body, close }) = Request::parse(&input) {
            let Some(text) = input.get(head..head + body) else {
                break;
            };
            let connection = if close { "close" } else { "keep-alive" };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: {body}\r\n\r\n"
            );
            output.extend_from_slice(answer.as_bytes());
            output.extend_from_slice(text);
            input.drain(..head + body);
            last |= close;
        }
        if !output.is_empty() {
            stream.write_all(&output).await?;
            output.clear();
        }
        if last {
            return stream.shutdown().await;
        }
        if input.len() > MOST || stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

struct Request {
    /// Bytes of the head, and of the body.
    head: usize,
    body: usize,
    /// It is the connection's last.
    close: bool,
}

impl Request {
    /// `None`: its head is not whole.
    fn parse(input: &[u8]) -> Option<Request> {
        let head = input.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&input[..head]).ok()?;
        let value = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        let body = value("content-length").and_then(|length| length.parse().ok());
        Some(Request {
            head,
            body: body.unwrap_or(0).min(MOST),
            close: value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        })
    }
}
