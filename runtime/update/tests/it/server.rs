//! A web server that follows a test's script, right or wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A client's request.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the start of the requested part.
    pub fn range(&self) -> Option<usize> {
        let range = self.header("range")?.strip_prefix("bytes=")?;
        range.strip_suffix('-')?.parse().ok()
    }
}

/// A step in the life of a connection, until it is closed.
#[derive(Debug, Clone)]
pub enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// Sends the bytes repeatedly, as long as somebody reads.
    Endless(Vec<u8>),
}

pub type Answer = Vec<Step>;

/// Makes a complete answer.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let length = body.len().to_string();
    let all = [headers, &[("Content-Length", length.as_str())]].concat();
    vec![head(status, &all), Step::Send(body.to_vec())]
}

/// Makes the head of an answer.
pub fn head(status: u16, headers: &[(&str, &str)]) -> Step {
    let mut text = format!("HTTP/1.1 {status} So\r\nConnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    Step::Send((text + "\r\n").into_bytes())
}

/// Answers as a good server does for a file of this tag.
pub fn serve(request: &Request, tag: &str, file: &[u8]) -> Answer {
    if request.header("if-none-match") == Some(tag) {
        return answer(304, &[("ETag", tag)], b"");
    }
    let same = request.header("if-range").is_none_or(|it| it == tag);
    match request.range().filter(|_| same) {
        Some(first) if first < file.len() => {
            let range = format!("bytes {first}-{}/{}", file.len() - 1, file.len());
            let headers = [("ETag", tag), ("Content-Range", range.as_str())];
            answer(206, &headers, &file[first..])
        }
        Some(_) => answer(416, &[], b""),
        None => answer(200, &[("ETag", tag)], file),
    }
}

/// Cuts an answer's body to this many bytes.
pub fn cut(mut whole: Answer, bytes: usize) -> Answer {
    if let Some(Step::Send(body)) = whole.last_mut() {
        body.truncate(bytes);
    }
    whole
}

pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server that answers each request, numbered from 0, by `script`.
    pub async fn new(script: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, script) = (seen.clone(), Arc::new(script));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, script) = (log.clone(), script.clone());
                tokio::spawn(async move {
                    // An error means that the client has heard enough.
                    let _ = converse(stream, &log, &*script).await;
                });
            }
        });
        Server {
            address,
            seen,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/module.wasm", self.address)
    }

    /// Returns all requests until now.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("whole").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(
    mut stream: TcpStream,
    log: &Mutex<Vec<Request>>,
    script: &(dyn Fn(usize, &Request) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1));
    let request = Request {
        path: path.unwrap_or_default().to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
    };
    let length = request.header("content-length");
    let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
    stream.read_exact(&mut vec![0; length]).await?;
    let number = {
        let mut log = log.lock().expect("whole");
        log.push(request.clone());
        log.len() - 1
    };
    for step in script(number, &request) {
        match step {
            Step::Send(bytes) => stream.write_all(&bytes).await?,
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Endless(bytes) => loop {
                stream.write_all(&bytes).await?;
            },
        }
    }
    stream.shutdown().await
}
