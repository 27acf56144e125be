//! `watm publish`: uploads a sealed module to a registry.

use std::path::PathBuf;

use watm_update::{PublishError, Source};

use crate::failure::{Failure, Outcome};
use crate::inputs::read;
use crate::network::NetworkArguments;
use crate::sealing::invalid;
use crate::stop;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A sealed module.
    file: PathBuf,
    /// Destination, oci://registry/repository:tag. An existing tag moves to this module.
    #[arg(value_name = "DESTINATION")]
    to: Source,
    #[command(flatten)]
    network: NetworkArguments,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let file = read(&arguments.file)?;
    let network = arguments.network.options()?;
    let to = &arguments.to;
    stop::run(async |mut stop| {
        let publishing = watm_update::publish(&file, to, &network);
        let digest = match stop.unless(publishing).await {
            None => return Ok(()),
            Some(Ok(digest)) => digest,
            Some(Err(PublishError::Module(error))) => {
                return Err(invalid(&arguments.file, error));
            }
            Some(Err(error @ PublishError::Destination(_))) => {
                return Err(Failure::unusable(error));
            }
            Some(Err(error)) => return Err(Failure::failed(format!("{to}: {error}"))),
        };
        match arguments.json {
            true => println!("{}", serde_json::json!({ "digest": digest })),
            false => println!("published {to}\ndigest    {digest}"),
        }
        Ok(())
    })
}
