//! `watm status`: asks a program that runs modules, and shows its answer.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::{Failure, Outcome};
use crate::inputs::listening_address;
use crate::output::refresh;
use crate::words;

/// The default address of status pages.
pub(crate) const ADDRESS: &str = "127.0.0.1:9586";

/// The time limit for the whole exchange. A program on this machine answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer, in bytes. No status is larger.
const LARGEST: usize = 16 << 20;

/// The time between two answers of `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address of the program's status page: its --status, or metrics in `watm serve`.
    #[arg(value_name = "ADDRESS:PORT", value_parser = listening_address, default_value = ADDRESS)]
    address: SocketAddr,
    /// Print the whole answer, in JSON.
    #[arg(long)]
    json: bool,
    /// Ask every two seconds, and show the latest answer, until it is stopped.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let address = arguments.address;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start a runtime: {error}")))?;
    let answer = || {
        let asked = runtime.block_on(async { timeout(PATIENCE, ask(address)).await });
        let said = match asked {
            Ok(said) => said,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        said.map_err(|reason| Failure::failed(format!("{address}: {reason}")))
    };
    let mut said = answer()?;
    if arguments.watch {
        while refresh(&text(&said)) {
            thread::sleep(INTERVAL);
            said = answer()?;
        }
        return Ok(Outcome::Well);
    }
    match arguments.json {
        true => println!("{said:#}"),
        false => print!("{}", text(&said)),
    }
    Ok(Outcome::Well)
}

async fn ask(address: SocketAddr) -> Result<Value, String> {
    let words = |error: hyper::Error| error.to_string();
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(words)?;
    let request = Request::get("/status")
        .header(HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let asking = async {
        let response = sender.send_request(request).await.map_err(words)?;
        if !response.status().is_success() {
            return Err(format!(
                "unexpected answer {}; is this the status page of watm?",
                response.status()
            ));
        }
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&body)
            .map_err(|_| "the answer is not a status; is this the status page of watm?".to_owned())
    };
    tokio::select! {
        said = asking => said,
        Err(error) = connection => Err(words(error)),
    }
}

/// Describes running modules and their peers, for people.
fn text(status: &Value) -> String {
    let mut text = String::new();
    for kind in ["tunnels", "listeners"] {
        for group in status[kind].as_array().into_iter().flatten() {
            let name = word(&group["name"]);
            let module = word(&group["module"]["file"]);
            let kind = kind.trim_end_matches('s');
            text += &format!("{kind} {name}, by {module}\n");
            // A tunnel has one instance, a listener one in each worker.
            let workers = group["workers"].as_array();
            let instances = workers.into_iter().flatten();
            for instance in instances.chain(group.get("instances")) {
                text += &of_instance(instance);
            }
            if let Some(granted) = group["module"].get("granted") {
                text += &format!(
                    "  the module {}\n",
                    clean(&words::permissions(granted).join("; "))
                );
            }
            let captures = group["captures"].as_array().into_iter().flatten();
            for capture in captures {
                text += &format!("  WRITES {}\n", word(capture));
            }
            for warning in group["module"]["warnings"].as_array().into_iter().flatten() {
                text += &format!("  warning: {}\n", word(warning));
            }
            text += &table(group["peers"].as_array().map_or(&[], Vec::as_slice));
        }
    }
    text
}

/// Describes an instance: its state, its usage, and former generations that finish their flows.
fn of_instance(instance: &Value) -> String {
    let mut text = format!("  {}", word(&instance["phase"]));
    if let Some(used) = instance.get("used") {
        text += &format!(", uses {}", words::usage(used).join("; "));
    }
    text.push('\n');
    for known in instance["generations"].as_array().into_iter().flatten() {
        let number = known["number"].as_u64().unwrap_or_default();
        let module = word(&known["module"]);
        let does = words::generation(known);
        text += &format!("  generation {number}, {module}: {does}\n");
    }
    text
}

const HEAD: [&str; 7] = [
    "peer",
    "endpoint",
    "last handshake",
    "received",
    "sent",
    "round trip",
    "lost",
];

fn table(peers: &[Value]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for peer in peers {
        let number = |name: &str| peer[name].as_f64();
        let endpoint = word(&peer["endpoint"]);
        rows.push([
            word(&peer["name"]),
            if endpoint.is_empty() {
                "-".to_owned()
            } else {
                endpoint
            },
            words::handshake(number("last_handshake_seconds")),
            number("received_bytes").map_or_else(String::new, words::size),
            number("sent_bytes").map_or_else(String::new, words::size),
            number("round_trip_seconds").map_or_else(|| "-".to_owned(), words::milliseconds),
            number("loss").map_or_else(|| "-".to_owned(), words::percent),
        ]);
    }
    if peers.is_empty() {
        return "  no peers\n".to_owned();
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Returns text of another program, safe for a terminal.
fn word(value: &Value) -> String {
    clean(value.as_str().unwrap_or_default())
}

/// Makes text safe for a terminal.
fn clean(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn peers_are_a_table() {
        let status = json!({"tunnels": [{
            "name": "wg0.conf", "module": {"file": "wireguard.wasm", "granted": null, "warnings": []},
            "instances": {"phase": "running", "generations": [{"number": 0, "module": "wireguard.wasm", "flows": 1,
                "age_seconds": 20, "draining_seconds": 12}], "used": {"memory_bytes": 1_441_792,
                "memory_peak_bytes": 1_441_792, "cpu_permille": 43, "flows": 1, "flows_opened": 1}},
            "captures": ["keys of all tunnels to k: 1 bytes so far"],
            "peers": [
                {"name": "abc=", "endpoint": "192.0.2.1:51820", "last_handshake_seconds": 12.4,
                 "received_bytes": 2048, "sent_bytes": 10, "round_trip_seconds": 0.0402, "loss": 0.012},
                {"name": "d\u{1b}[0m=", "endpoint": null, "last_handshake_seconds": null,
                 "received_bytes": 0, "sent_bytes": 0, "round_trip_seconds": null, "loss": null},
            ],
        }], "listeners": [{"name": "web", "module": {"file": "tls.wasm"}, "peers": []}]});
        let expected = "\
tunnel wg0.conf, by wireguard.wasm
  running, uses 1.4 MiB of memory, 1.4 MiB at most; 4.3 % of a core; 1 open flow, 1 in all
  generation 0, wireguard.wasm: finishes 1 flow, for 12 s
  the module has no seal, and therefore no limits besides those of this program; cannot read or write files; cannot start other programs
  WRITES keys of all tunnels to k: 1 bytes so far
  peer    endpoint         last handshake     received  sent  round trip  lost
  abc=    192.0.2.1:51820  12 s ago           2 KiB     10 B  40 ms       1.2 %
  d\u{fffd}[0m=  -                not connected yet  0 B       0 B   -           -
listener web, by tls.wasm
  no peers
";
        assert_eq!(text(&status), expected);
    }
}
