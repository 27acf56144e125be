//! HTTP CONNECT (RFC 9110 section 9.3.6), and plain requests in absolute form, for `Proxy::http`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{Destination, Error, Refusal, Users};

/// The longest head, in bytes, as servers usually limit it.
const LONGEST: usize = 16 << 10;
const FIELDS: usize = 100;

/// A client's request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) to: Destination,
    /// True if the client expects an answer after connecting. Otherwise the server answers.
    pub(crate) tunnel: bool,
    /// Bytes for the server that precede everything read from the client afterwards.
    pub(crate) first: Vec<u8>,
}

/// Reads and parses the client's request. The caller must answer, unless this fails.
pub(crate) async fn request(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    users: &Users,
) -> Result<Request, Error> {
    let (head, rest) = read(client).await?;
    let request = parse(&head, users).map(|request| Request {
        first: [request.first, rest].concat(),
        ..request
    });
    if let Err(error) = &request {
        let status = match error {
            Error::Unknown => "407 Proxy Authentication Required",
            Error::Unsupported(_) => "501 Not Implemented",
            _ => "400 Bad Request",
        };
        say(client, status).await?;
    }
    request
}

/// Answers the client with the outcome.
pub(crate) async fn answer(
    client: &mut (impl AsyncWrite + Unpin),
    outcome: Result<(), &Refusal>,
) -> Result<(), Error> {
    let status = match outcome {
        Ok(()) => "200 Connection established",
        Err(Refusal::NotAllowed) => "403 Forbidden",
        Err(Refusal::TimedOut) => "504 Gateway Timeout",
        Err(Refusal::NotSupported) => "501 Not Implemented",
        Err(Refusal::NetworkUnreachable | Refusal::HostUnreachable) => "503 Service Unavailable",
        Err(Refusal::Refused | Refusal::Failed(_)) => "502 Bad Gateway",
    };
    say(client, status).await
}

async fn say(client: &mut (impl AsyncWrite + Unpin), status: &str) -> Result<(), Error> {
    let fields = match &status[..3] {
        "200" => "",
        "407" => {
            "Proxy-Authenticate: Basic realm=\"watm\"\r\nContent-Length: 0\r\nConnection: close\r\n"
        }
        _ => "Content-Length: 0\r\nConnection: close\r\n",
    };
    let answer = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
    client
        .write_all(answer.as_bytes())
        .await
        .map_err(Error::client)
}

/// Reads the head. Returns it with the bytes that came after it.
async fn read(client: &mut (impl AsyncRead + Unpin)) -> Result<(Vec<u8>, Vec<u8>), Error> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = Vec::new();
    loop {
        let before = head.len();
        let mut piece = [0; 2048];
        let len = client.read(&mut piece).await.map_err(Error::client)?;
        if len == 0 {
            return Err(Error::Client("truncated request"));
        }
        head.extend_from_slice(&piece[..len]);
        let from = before.saturating_sub(END.len() - 1);
        let end = head[from..].windows(END.len()).position(|four| four == END);
        let end = end.map(|end| from + end + END.len());
        if end.unwrap_or(head.len()) > LONGEST {
            return Err(Error::Client("request head too long"));
        }
        if let Some(end) = end {
            let rest = head.split_off(end);
            return Ok((head, rest));
        }
    }
}

fn parse(head: &[u8], users: &Users) -> Result<Request, Error> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    // A line that ends without a carriage return may end the head too early. The bytes after it
    // must go nowhere.
    let complete = request.parse(head) == Ok(httparse::Status::Complete(head.len()));
    let (true, Some(method), Some(target)) = (complete, request.method, request.path) else {
        return Err(Error::Client("not an HTTP request"));
    };
    if !users.is_everybody() && !is_known(request.headers, users) {
        return Err(Error::Unknown);
    }
    if method == "CONNECT" {
        let to = Destination::parse(target, None);
        let to = to.map_err(|_| Error::Client("CONNECT without a valid destination"))?;
        return Ok(Request {
            to,
            tunnel: true,
            first: Vec::new(),
        });
    }
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(Error::Unsupported("a page from the proxy itself"));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Error::Unsupported(
            "a scheme other than http without CONNECT",
        ));
    }
    let (authority, path) = match rest.find(['/', '?']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let to = Destination::parse(authority, Some(80));
    let to = to.map_err(|_| Error::Client("a URL without a valid host"))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut first = format!("{method} {slash}{path} HTTP/1.1\r\n").into_bytes();
    for field in request.headers.iter() {
        // Fields between the client and the proxy. The connection serves this request alone.
        let ours = [
            "proxy-authorization",
            "proxy-connection",
            "connection",
            "keep-alive",
        ];
        if !ours
            .iter()
            .any(|name| field.name.eq_ignore_ascii_case(name))
        {
            first.extend_from_slice(field.name.as_bytes());
            first.extend_from_slice(b": ");
            first.extend_from_slice(field.value);
            first.extend_from_slice(b"\r\n");
        }
    }
    first.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(Request {
        to,
        tunnel: false,
        first,
    })
}

fn is_known(fields: &[httparse::Header<'_>], users: &Users) -> bool {
    let said = fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("proxy-authorization"))
        .and_then(|field| std::str::from_utf8(field.value).ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"))
        .and_then(|(_, value)| STANDARD.decode(value.trim()).ok());
    let Some(said) = said else {
        return false;
    };
    let Some(colon) = said.iter().position(|byte| *byte == b':') else {
        return false;
    };
    users.has(&said[..colon], &said[colon + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Request, Error> {
        parse(head.as_bytes(), &Users::everybody())
    }

    #[test]
    fn a_plain_request_is_written_anew_for_the_server() {
        let head = "GET http://example.com:8080/a?b HTTP/1.1\r\nHost: example.com:8080\r\n\
                    Proxy-Authorization: Basic x\r\nConnection: keep-alive\r\nA: b\r\n\r\n";
        let request = parsed(head).unwrap();
        assert_eq!(
            request.to,
            Destination::Name("example.com".to_owned(), 8080)
        );
        assert!(!request.tunnel);
        let first =
            "GET /a?b HTTP/1.1\r\nHost: example.com:8080\r\nA: b\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8(request.first).unwrap(), first);
    }

    #[test]
    fn what_is_no_request_for_a_proxy_is_refused() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a/ HTTP/1.1\r\n\r\n",
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT a:0x HTTP/1.1\r\n\r\n",
            "GET http:///a HTTP/1.1\r\n\r\n",
            "\u{16}\u{3}\u{1}\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\n\nmore\r\n\r\n",
        ] {
            assert!(parsed(head).is_err(), "{head:?}");
        }
    }

    #[tokio::test]
    async fn a_head_may_be_as_long_however_it_comes() {
        for (length, expected) in [(LONGEST, true), (LONGEST + 1, false)] {
            let (start, end) = ("CONNECT a:1 HTTP/1.1\r\nA: ", "\r\n\r\n");
            let filling = "a".repeat(length - start.len() - end.len());
            let request = format!("{start}{filling}{end}more");
            for piece in [1, 2047, request.len()] {
                let (mut client, mut proxy) = tokio::io::duplex(piece);
                let saying = client.write_all(request.as_bytes());
                let reading = async move { read(&mut proxy).await.is_ok() };
                // An error of the client means that the proxy has read enough.
                let (_, read) = tokio::join!(saying, reading);
                assert_eq!(read, expected, "{length} bytes in pieces of {piece}");
            }
        }
    }
}
