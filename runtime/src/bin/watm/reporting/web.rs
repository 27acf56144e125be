//! What others may know of the program, by HTTP: `/metrics`, `/status` and `/readyz`.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;

/// Collectors and people at once.
const MOST_CLIENTS: usize = 64;

/// How long a client may take to ask, and how long a connection may last.
const ASKING: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// How long to wait after none could be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// The page's media type, as prometheus-client writes it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What can be asked.
pub(crate) trait Pages: Send + Sync + 'static {
    /// What is counted, in OpenMetrics.
    fn metrics(&self) -> impl Future<Output = Result<String, fmt::Error>> + Send;

    /// How it is doing.
    fn status(&self) -> impl Future<Output = Value> + Send;

    /// Whether connections would get through; if not, why.
    fn ready(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Bound, and not yet answering.
pub(crate) struct Web {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Web {
    /// `option` is what the address was given by.
    pub(crate) async fn bind(option: &str, address: SocketAddr) -> Result<Web, Failure> {
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            Ok((listener.local_addr()?, listener))
        };
        let failed =
            |error: std::io::Error| Failure::failed(format!("{option}: {address}: {error}"));
        let (address, listener) = bound.await.map_err(failed)?;
        Ok(Web { listener, address })
    }

    /// Never ready.
    pub(crate) async fn serve(self, pages: Arc<impl Pages>) {
        let room = Arc::new(Semaphore::new(MOST_CLIENTS));
        // The semaphore is never closed.
        while let Ok(permit) = room.clone().acquire_owned().await {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let pages = pages.clone();
            tokio::spawn(async move {
                let answer = service_fn(move |request| answer(pages.clone(), request));
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(ASKING)
                    .serve_connection(TokioIo::new(stream), answer);
                // An error is the client's own.
                let _ = timeout(LONGEST, serving).await;
                drop(permit);
            });
        }
    }
}

async fn answer(
    pages: Arc<impl Pages>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Response::builder()
            .status(StatusCode::METHOD_NOT_ALLOWED)
            .header(ALLOW, "GET, HEAD")
            .body(Full::default());
    }
    let (status, media_type, body) = match request.uri().path() {
        "/metrics" => match pages.metrics().await {
            Ok(page) => (StatusCode::OK, OPEN_METRICS, page),
            Err(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                String::new(),
            ),
        },
        "/status" => {
            let status = pages.status().await;
            (StatusCode::OK, "application/json", format!("{status}\n"))
        }
        "/readyz" => match pages.ready().await {
            Ok(()) => (StatusCode::OK, "text/plain", "ready\n".to_owned()),
            Err(reason) => {
                let code = StatusCode::SERVICE_UNAVAILABLE;
                (code, "text/plain", format!("{reason}\n"))
            }
        },
        _ => {
            let pages = "/metrics, /status or /readyz\n".to_owned();
            (StatusCode::NOT_FOUND, "text/plain", pages)
        }
    };
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, media_type)
        .body(Full::new(body.into()))
}
