//! Runs a transport module and answers what comes out of it: HTTP on TCP flows to port 80, an
//! echo on every other flow.
//!
//! ```sh
//! cargo run --release --example serve -- wireguard.wasm server.conf 127.0.0.1:51820
//! ```
//!
//! With `--unsealed` in front the module may be one that has just been built, without a seal.
//!
//! The numbers are those of the run loop on the crate's page.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::runtime::Builder;
use watm_runtime::{
    DatagramFlow, Engine, EngineConfig, ErrorCode, Flow, Server, StreamFlow, Trust,
};

/// A request's head is shorter, or not worth reading on.
const MAX_HEAD: usize = 16 << 10;

/// The port of plain HTTP.
const HTTP: u16 = 80;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let unsealed = arguments.next_if_eq("--unsealed").is_some();
    let (Some(module), Some(config), Some(address)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: serve [--unsealed] MODULE.wasm CONFIG ADDRESS:PORT".into());
    };
    let address: SocketAddr = address.parse()?;

    // 1. Load: verified, checked, compiled, cached.
    let engine = Engine::new(EngineConfig {
        trust: Trust::of_user().allow_unsealed(unsealed),
        ..EngineConfig::default()
    })?;
    let module = engine.load_file(&module)?;
    for warning in module.warnings() {
        eprintln!("{}: {warning}", module.name());
    }
    println!("{} imports {:?}", module.name(), module.info().imports);

    // 2. Start: the program grants the socket.
    let server = Server::builder(&module)
        .config(std::fs::read(&config)?)
        .udp("listen", address)
        .start()?;
    let address = server.local_addr("listen").unwrap_or(address);
    println!("serving on {address}");
    match server.client_configs(&address.ip().to_string(), address.port()) {
        Ok(clients) => {
            for client in clients {
                println!("# {}\n{}", client.name, client.content);
            }
        }
        Err(error) => println!("no client configurations: {error}"),
    }

    // 3. Accept flows, on the server's own thread: a message then needs no switch between threads.
    // Any other executor works too.
    server.spawn(accept(server.clone()));
    Builder::new_current_thread()
        .build()?
        .block_on(server.wait_closed());
    Ok(())
}

async fn accept(server: Server) {
    while let Some(flow) = server.accept().await {
        let info = flow.info();
        println!("{} -> {} ({:?})", info.source, info.destination, info.peer);
        server.spawn(async {
            // 4. Read and write. An error is the end of one flow.
            let ended = match flow {
                Flow::Stream(flow) if flow.info().destination.port() == HTTP => answer(flow).await,
                Flow::Stream(flow) => echo(flow).await,
                Flow::Datagrams(flow) => echo_datagrams(flow).await,
            };
            if let Err(error) = ended {
                println!("flow ended: {error}");
            }
        });
    }
}

/// One HTTP response, whatever is asked.
async fn answer(mut flow: StreamFlow) -> Result<(), Box<dyn Error>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if flow.read_buf(&mut head).await? == 0 || head.len() > MAX_HEAD {
            return Ok(());
        }
    }
    let info = flow.info();
    let body = format!("you are {}, asking {}\n", info.source, info.destination);
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    flow.write_all(response.as_bytes()).await?;
    flow.shutdown().await?;
    Ok(())
}

async fn echo(flow: StreamFlow) -> Result<(), Box<dyn Error>> {
    let (mut reader, mut writer) = tokio::io::split(flow);
    tokio::io::copy_buf(
        &mut BufReader::with_capacity(64 << 10, &mut reader),
        &mut writer,
    )
    .await?;
    writer.shutdown().await?;
    Ok(())
}

async fn echo_datagrams(flow: DatagramFlow) -> Result<(), Box<dyn Error>> {
    while let Some(datagram) = poll_fn(|cx| flow.poll_receive(cx)).await? {
        match flow.send(&datagram) {
            Ok(_) => {}
            Err(ErrorCode::ConnectionAborted) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
