//! The standard output and error of a program, whose lines become log records. `program` gives them
//! to it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};
use watm_engine::output::{Output, Stream};

/// The most bytes that a program prints in one call.
const MAX_PRINT: usize = 64 << 10;

/// One of the two streams. Clones are the same.
#[derive(Clone)]
pub(crate) struct Lines {
    output: Arc<Mutex<Output>>,
    stream: Stream,
}

impl Lines {
    pub(crate) fn new(output: &Arc<Mutex<Output>>, stream: Stream) -> Lines {
        Lines {
            output: output.clone(),
            stream,
        }
    }

    fn print(&self, text: &[u8]) {
        let mut output = self.output.lock().expect("no panic under this lock");
        output.write(self.stream, text);
    }
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Lines {
    async fn ready(&mut self) {}
}

impl OutputStream for Lines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > MAX_PRINT {
            return Err(StreamError::trap("printed more than check-write permits"));
        }
        self.print(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_PRINT)
    }
}

impl AsyncWrite for Lines {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let data = &data[..data.len().min(MAX_PRINT)];
        self.print(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
