//! Status pages by HTTP: `/metrics`, `/status` and `/readyz`. Tunnels and `watm serve` provide
//! them.
//!
//! Every client gets an answer, whatever the others do:
//!
//! 1. A connection is always accepted. Beyond [`MOST_CLIENTS`], the oldest one that waits for its
//!    client ends, or the oldest of all.
//! 2. A client has [`ASKING`] for each request.
//! 3. Some [descriptors](Reserve) are kept back, for when the process has no others.
//!
//! Requests must name the program by an address, `localhost`, or a [name](Hosts) that the operator
//! gives. Otherwise a web page could make its visitor's browser ask, by a name of the page's own
//! that resolves to this machine (DNS rebinding).

mod hosts;
mod reserve;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;
pub(crate) use hosts::{Host, Hosts};
use reserve::Reserve;

/// The most connections of collectors and people at once.
const MOST_CLIENTS: usize = 64;

/// The time limits for a request, and for a connection.
const ASKING: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// The media type of the metrics.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content of the pages.
pub(crate) trait Pages: Send + Sync + 'static {
    /// Renders the metrics in Prometheus's text format.
    fn metrics(&self) -> impl Future<Output = Result<String, fmt::Error>> + Send;

    /// Describes the status of the program.
    fn status(&self) -> impl Future<Output = Value> + Send;

    /// Returns normally if connections would get through, or else fails with the reason.
    fn ready(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// A bound listener that does not answer yet.
pub(crate) struct Web {
    listener: TcpListener,
    hosts: Arc<Hosts>,
    pub(crate) address: SocketAddr,
}

impl Web {
    /// Binds the listener. `option` names the address's option in errors.
    pub(crate) async fn bind(
        option: &str,
        address: SocketAddr,
        hosts: Hosts,
    ) -> Result<Web, Failure> {
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            Ok((listener.local_addr()?, listener))
        };
        let failed = |error: io::Error| Failure::failed(format!("{option}: {address}: {error}"));
        let (address, listener) = bound.await.map_err(failed)?;
        Ok(Web {
            listener,
            hosts: Arc::new(hosts),
            address,
        })
    }

    /// Answers clients. Never returns.
    pub(crate) async fn serve(self, pages: Arc<impl Pages>) {
        let clients = Arc::<Clients>::default();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let client = Clients::admit(&clients);
                    let number = client.number;
                    let (pages, hosts) = (pages.clone(), self.hosts.clone());
                    let task = tokio::spawn(converse(stream, pages, hosts, client));
                    clients.serve(number, task.abort_handle());
                }
                // The next attempt gets a descriptor, unless another thread is faster.
                Err(error) if clients.relieve(&error) => {}
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

/// Answers one client's requests.
async fn converse(stream: TcpStream, pages: Arc<impl Pages>, hosts: Arc<Hosts>, client: Client) {
    let answer = service_fn(|request| {
        let answering = client.begin();
        let (pages, hosts) = (pages.clone(), hosts.clone());
        async move {
            let answer = answer(pages, &hosts, request).await;
            drop(answering);
            answer
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASKING)
        .serve_connection(TokioIo::new(stream), answer);
    // An error concerns this client only.
    let _ = timeout(LONGEST, serving).await;
}

/// Open connections, in the order of their arrival.
#[derive(Default)]
struct Clients(Mutex<Admitted>);

#[derive(Default)]
struct Admitted {
    last: u64,
    open: BTreeMap<u64, Connection>,
    reserve: Reserve,
}

#[derive(Default)]
struct Connection {
    answering: Arc<AtomicUsize>,
    /// The task that serves the connection, once it runs.
    task: Option<AbortHandle>,
}

impl Clients {
    /// Admits another connection. If there are too many, another ends.
    fn admit(clients: &Arc<Clients>) -> Client {
        let mut admitted = clients.lock();
        if admitted.open.len() >= MOST_CLIENTS {
            admitted.evict();
        }
        admitted.last += 1;
        let number = admitted.last;
        let connection = Connection::default();
        let answering = connection.answering.clone();
        admitted.open.insert(number, connection);
        Client {
            number,
            answering,
            clients: clients.clone(),
        }
    }

    /// Records the task of a connection.
    fn serve(&self, number: u64, task: AbortHandle) {
        if let Some(connection) = self.lock().open.get_mut(&number) {
            connection.task = Some(task);
        }
    }

    /// Frees a descriptor if this error reports a lack of them and one is left.
    fn relieve(&self, error: &io::Error) -> bool {
        self.lock().reserve.relieve(error)
    }

    fn lock(&self) -> MutexGuard<'_, Admitted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Ends the oldest connection that waits for its client, or the oldest of all.
    fn evict(&mut self) {
        let waits = |connection: &Connection| connection.answering.load(Ordering::Relaxed) == 0;
        let mut open = self.open.iter();
        let waiting = open.find_map(|(number, connection)| waits(connection).then_some(*number));
        let first = self.open.keys().next().copied();
        let ended = waiting
            .or(first)
            .and_then(|number| self.open.remove(&number));
        if let Some(task) = ended.and_then(|connection| connection.task) {
            task.abort();
        }
    }
}

/// One of the open connections, until it is dropped.
struct Client {
    number: u64,
    answering: Arc<AtomicUsize>,
    clients: Arc<Clients>,
}

impl Client {
    /// Begins a request, which counts as being answered until the returned value is dropped.
    fn begin(&self) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(self.answering.clone())
    }
}

impl Drop for Client {
    /// Removes the connection. Its descriptor may go to the reserve.
    fn drop(&mut self) {
        let mut admitted = self.clients.lock();
        admitted.reserve.fill();
        admitted.open.remove(&self.number);
    }
}

struct Answering(Arc<AtomicUsize>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn answer(
    pages: Arc<impl Pages>,
    hosts: &Hosts,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    if let Err(reason) = hosts.check(&request) {
        return text(StatusCode::MISDIRECTED_REQUEST, reason);
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Response::builder()
            .status(StatusCode::METHOD_NOT_ALLOWED)
            .header(ALLOW, "GET, HEAD")
            .body(Full::default());
    }
    match request.uri().path() {
        "/metrics" => match pages.metrics().await {
            Ok(page) => page_of(StatusCode::OK, PROMETHEUS, page),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        },
        "/status" => {
            let status = pages.status().await;
            page_of(StatusCode::OK, "application/json", format!("{status}\n"))
        }
        "/readyz" => match pages.ready().await {
            Ok(()) => text(StatusCode::OK, "ready\n".to_owned()),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        },
        _ => {
            let pages = "/metrics, /status or /readyz\n".to_owned();
            text(StatusCode::NOT_FOUND, pages)
        }
    }
}

fn text(status: StatusCode, body: String) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    page_of(status, "text/plain", body)
}

fn page_of(
    status: StatusCode,
    media_type: &str,
    body: String,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, media_type)
        .body(Full::new(body.into()))
}
