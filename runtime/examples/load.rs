//! How long it takes to verify a sealed module and to load it, from when its file is read to when a
//! server could start it, once it has been compiled.
//!
//! ```sh
//! cargo run --release --example load -- module.wasm root.watm
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use watm_runtime::seal::{Root, SignedRoot};
use watm_runtime::{Engine, EngineConfig, Trust};

/// The first compiles; the median of the others is shown.
const ROUNDS: usize = 51;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(module), Some(root)) = (arguments.next(), arguments.next()) else {
        return Err("usage: load MODULE.wasm ROOT".into());
    };
    let root = Root::trust(SignedRoot::from_file(&std::fs::read(root)?)?)?;
    let engine = Engine::new(EngineConfig {
        trust: Trust::packaged(root),
        ..EngineConfig::default()
    })?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        engine.load_file(&module)?;
        rounds.push(begin.elapsed());
    }
    let first = rounds.remove(0);
    rounds.sort();
    let shown = |took: Duration| took.as_secs_f64() * 1000.0;
    println!(
        "first {:.1} ms, then {:.1} ms (median of {}, at most {:.1} ms)",
        shown(first),
        shown(rounds[rounds.len() / 2]),
        rounds.len(),
        shown(rounds[rounds.len() - 1])
    );
    Ok(())
}
