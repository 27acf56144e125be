//! A fleet of hosts that take one module from one registry: staged rollout, rollback, and the power
//! of stolen keys. `README.md` describes the steps. This program runs them with real updates from a
//! real registry, and counts the outcomes.
//!
//!     fleet REGISTRY [HOSTS]
//!
//! REGISTRY is `host:port` without TLS, as on loopback.

mod hosts;
mod publisher;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use watm_update::{Network, NetworkOptions, Source};

use hosts::{Fleet, Who};
use publisher::{Asks, Keys, Publisher};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The percentages of hosts that follow `canary`, and that follow `early`.
const CANARY_PERCENT: usize = 1;
const EARLY_PERCENT: usize = 9;
/// Hosts look once an hour, each at its own minute: so many of a hundred have looked when an attack
/// is noticed after six minutes.
const HIT_PERCENT: usize = 10;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let registry = arguments.first().ok_or("usage: fleet REGISTRY [HOSTS]")?;
    let count = match arguments.get(1) {
        Some(count) => count.parse()?,
        None => 1000,
    };
    let folder = std::env::temp_dir().join(format!("watm-fleet-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let played = play(registry, count, folder.clone()).await;
    std::fs::remove_dir_all(&folder)?;
    played
}

async fn play(registry: &str, count: usize, folder: PathBuf) -> Outcome {
    let network = Network::from(NetworkOptions {
        plain_http: true,
        connect_timeout: Duration::from_secs(5),
        ..NetworkOptions::default()
    });
    let repository = format!("oci://{registry}/fleet/wireguard");
    let mut publisher = Publisher::new(&repository)?;
    let mut fleet = Fleet::new(&repository, folder, count, &publisher.root()?, &network)?;
    let everywhere = ["canary", "early", "stable"];
    println!("{}", fleet.describe());

    println!("\nThe same module for all, then nothing new");
    publisher
        .publish("1.1", Asks::AsBefore, Keys::Two, &everywhere)
        .await?;
    fleet.look("1.1 to every channel", Who::All).await?;
    fleet.look("the next hour", Who::All).await?;

    println!("\nA release, in stages");
    publisher
        .publish("1.2", Asks::AsBefore, Keys::Two, &["canary"])
        .await?;
    fleet.look("1.2 to canary", Who::All).await?;
    publisher
        .publish("1.2", Asks::AsBefore, Keys::Two, &["early"])
        .await?;
    fleet.look("1.2 to early", Who::All).await?;
    publisher
        .publish("1.2", Asks::AsBefore, Keys::Two, &["stable"])
        .await?;
    fleet.look("1.2 to stable", Who::All).await?;

    println!("\nA bad release is found in canary, and rolled back by a floor");
    publisher
        .publish("1.3", Asks::AsBefore, Keys::Two, &["canary"])
        .await?;
    fleet.look("1.3, bad, to canary", Who::All).await?;
    publisher.floor("1.4");
    publisher
        .publish("1.4", Asks::AsBefore, Keys::Two, &everywhere)
        .await?;
    fleet.look("1.4, which is 1.2, to all", Who::All).await?;
    publisher.replay("1.3", "canary", &everywhere).await?;
    fleet.look("the registry replays 1.3", Who::All).await?;

    println!("\nAn attacker with the registry, and no key");
    publisher.change("1.4", &everywhere).await?;
    fleet.look("1.4 with an added section", Who::All).await?;
    publisher.replay("1.4", "canary", &everywhere).await?;
    fleet.look("canary's 1.4 under every tag", Who::All).await?;
    fleet.announce(&publisher.note("1.5")?)?;
    publisher.replay_own("1.4", &everywhere).await?;
    fleet.look("1.5 is out, but withheld", Who::All).await?;

    println!("\nAn attacker with one release key of two");
    publisher
        .publish("1.6", Asks::AsBefore, Keys::OneStolen, &everywhere)
        .await?;
    fleet.look("1.6 signed with it", Who::All).await?;

    println!("\nAn attacker with two release keys of two: enough");
    publisher
        .publish("1.6", Asks::More, Keys::TwoStolen, &everywhere)
        .await?;
    fleet.look("1.6 asks for connections", Who::All).await?;
    publisher
        .publish("2.1", Asks::AsBefore, Keys::TwoStolen, &everywhere)
        .await?;
    fleet.look("2.1, another epoch", Who::All).await?;
    let highest = format!("1.{}", u64::MAX);
    publisher
        .publish(&highest, Asks::AsBefore, Keys::TwoStolen, &everywhere)
        .await?;
    fleet
        .look("1.(2^64-1) asks for nothing", Who::Percent(HIT_PERCENT))
        .await?;

    println!("\nThe root revokes the keys and raises the epoch");
    publisher.rotate()?;
    publisher
        .publish("2.1", Asks::AsBefore, Keys::Two, &everywhere)
        .await?;
    fleet.look("2.1 brings the new root", Who::All).await?;
    publisher
        .publish("2.2", Asks::AsBefore, Keys::TwoStolen, &everywhere)
        .await?;
    fleet.look("2.2 by the stolen keys", Who::All).await?;
    publisher.replay(&highest, "stable", &everywhere).await?;
    fleet.look("1.(2^64-1) once more", Who::All).await?;

    println!("\nThe registry is gone");
    let nowhere = Source::parse("oci://127.0.0.1:9/fleet/wireguard:stable")?;
    fleet.look_at(nowhere, "no answer").await?;
    Ok(())
}
