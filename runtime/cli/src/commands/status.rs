//! `watm status`: asks a program that runs modules, and shows its answer.

use std::net::SocketAddr;
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

/// The default address of status pages.
pub(crate) const ADDRESS: &str = "127.0.0.1:9586";

/// The time limit for the whole exchange. A program on this machine answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer, in bytes. No status is larger.
const LARGEST: usize = 16 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address of the program's status page: its --status, or metrics in `watm serve`.
    #[arg(value_name = "ADDRESS:PORT", value_parser = listening_address, default_value = ADDRESS)]
    address: SocketAddr,
    /// Print the whole answer, in JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let address = arguments.address;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start a runtime: {error}")))?;
    let asked = runtime.block_on(async { timeout(PATIENCE, ask(address)).await });
    let said = match asked {
        Ok(said) => said,
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let said = said.map_err(|reason| Failure::failed(format!("{address}: {reason}")))?;
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
            number("last_handshake_seconds").map_or_else(|| "never".to_owned(), age),
            number("received_bytes").map_or_else(String::new, size),
            number("sent_bytes").map_or_else(String::new, size),
            number("round_trip_seconds")
                .map_or_else(|| "-".to_owned(), |s| format!("{:.1} ms", s * 1e3)),
            number("loss").map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 1e2)),
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

/// Makes text of another program safe for a terminal.
fn word(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.replace(char::is_control, "\u{fffd}")
}

fn age(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s ago"),
        ..7200.0 => format!("{:.0} min ago", seconds / 60.0),
        _ => format!("{:.0} h ago", seconds / 3600.0),
    }
}

fn size(bytes: f64) -> String {
    let mut rest = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 1024.0 {
            let digits = usize::from(unit != "B");
            return format!("{rest:.digits$} {unit}");
        }
        rest /= 1024.0;
    }
    format!("{rest:.1} TiB")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn peers_are_a_table() {
        let status = json!({"tunnels": [{
            "name": "wg0.conf", "module": {"file": "wireguard.wasm", "warnings": []},
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
  WRITES keys of all tunnels to k: 1 bytes so far
  peer    endpoint         last handshake  received  sent  round trip  lost
  abc=    192.0.2.1:51820  12 s ago        2.0 KiB   10 B  40.2 ms     1.2 %
  d\u{fffd}[0m=  -                never           0 B       0 B   -           -
listener web, by tls.wasm
  no peers
";
        assert_eq!(text(&status), expected);
    }

    #[test]
    fn ages_and_sizes_have_few_digits() {
        let ages = [0.4, 119.0, 300.0, 86_400.0].map(age);
        assert_eq!(ages, ["0 s ago", "119 s ago", "5 min ago", "24 h ago"]);
        let sizes = [0.0, 1023.0, 1536.0, 5e12].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "4.5 TiB"]);
    }
}
