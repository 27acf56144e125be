//! The client of `make bench-water` on this project's runtime: the same requests and replies as
//! `gowater client`, described in `tests/water/gowater/README.md`.
//!
//! ```sh
//! cargo run --release --example water_client -- raw
//! cargo run --release --example water_client -- watm/target/modules/plain.wasm
//! ```

mod connect;
mod latency;
mod pattern;
mod workloads;

use std::error::Error;
use std::io::{BufRead, Write};
use std::thread::available_parallelism;

use serde_derive::Serialize;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use connect::Connect;
use workloads::{Client, Request};

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Ok(Value),
    Error(String),
}

fn main() -> Result<(), Box<dyn Error>> {
    let kind = std::env::args()
        .nth(1)
        .ok_or("usage: water_client raw|hop|MODULE")?;
    let runtime = runtime()?;
    let mut client = Client::new(Connect::choose(&kind)?);
    answer(&Reply::Ok("ready".into()))?;
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        // On a thread of the runtime, next to the tasks of the connections.
        let result = runtime.block_on(runtime.spawn(async move {
            let result = client.perform(&request).await;
            (client, result)
        }));
        let reply;
        (client, reply) = result?;
        answer(&reply.map_or_else(Reply::Error, Reply::Ok))?;
    }
    Ok(())
}

/// With one CPU there is nothing to share out.
fn runtime() -> Result<Runtime, Box<dyn Error>> {
    let mut builder = match available_parallelism()?.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder.enable_all().build()?)
}

fn answer(reply: &Reply) -> Result<(), Box<dyn Error>> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, reply)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}
