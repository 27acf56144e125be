//! Faults of WATER modules, their connections and their users, which cost no more than the
//! connection that they affect.

mod cancel;
mod close;
mod concurrency;
mod config;
mod connectors;
mod damaged;
mod hogs;
mod logs;
mod pressure;
mod relay;
#[cfg(target_os = "linux")]
mod resources;

use std::net::SocketAddr;
use std::sync::OnceLock;

use tokio::net::TcpListener;
use watm_runtime::Module;

use watm_test_support::{LOCALHOST, PATIENCE, engine, repository};

/// Runs a future to its end on several threads, within a time limit.
fn run_on_threads<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future)
            .await
            .expect("in time")
    })
}

/// Loads this project's own module that passes bytes on unchanged.
fn our_plain() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let load = || {
        let path = repository().join("watm/target/modules/plain.watm1.wasm");
        engine()
            .load_file(path)
            .expect("`make modules` has built it")
    };
    MODULE.get_or_init(load).clone()
}

/// Returns an address on which nobody listens.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
    listener.local_addr().expect("bound")
}
