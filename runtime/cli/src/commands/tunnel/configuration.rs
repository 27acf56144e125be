//! The configuration of a tunnel: its file, and the options that change it. Used by `tunnel`.

use std::path::{Path, PathBuf};

use watm_runtime::Dialer;

use super::applications::Applications;
use super::file::File;
use crate::failure::Failure;
use crate::follow::changed;
use crate::inputs::read;
use crate::logging::PROGRAM;
use crate::watch::Mark;

#[derive(clap::Args)]
pub(super) struct ConfigurationOptions {
    /// A file of wg-quick(8), as providers hand it out.
    #[arg(value_name = "CONF")]
    file: PathBuf,
    /// Put a bad network between this end and its peers, in place of the file's: its name, such as
    /// `3g`, or words, such as `delay=100ms loss=1%`.
    #[arg(long, value_name = "WORDS", value_parser = line)]
    network: Option<String>,
    /// Read CONF again when it changes, while connections go on. Endpoint, Address, DNS, ListenPort
    /// and AllowedApps need a restart.
    #[arg(long)]
    watch_config: bool,
}

/// A configuration that was read, and its source.
pub(super) struct Configuration<'a> {
    options: &'a ConfigurationOptions,
    mark: Option<Mark>,
    /// The bytes for the module.
    pub(super) bytes: Vec<u8>,
    /// The parts that this program uses.
    pub(super) file: File,
    /// The programs that may use the tunnel, if this program can tell them apart.
    pub(super) applications: Option<Applications>,
    tells_apart: bool,
}

impl ConfigurationOptions {
    /// Returns the name of the file.
    pub(super) fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// Reads the file, and applies the options. `tells_apart`: this program knows the programs behind
    /// connections, so that it enforces the lines about them, and the module does not refuse them.
    pub(super) fn read(&self, tells_apart: bool) -> Result<Configuration<'_>, Failure> {
        let mark = Mark::of(&self.file);
        let mut bytes = read(&self.file)?;
        let file = File::read(&bytes);
        file.check(&self.name())?;
        let mut applications = None;
        if let Ok(text) = std::str::from_utf8(&bytes)
            && tells_apart
        {
            let split = Applications::split(text);
            let (rules, rest) =
                split.map_err(|error| Failure::unusable(format!("{}: {error}", self.name())))?;
            (applications, bytes) = (rules, rest.into_bytes());
        }
        Ok(Configuration {
            options: self,
            mark,
            bytes: match &self.network {
                Some(words) => with_network(bytes, words),
                None => bytes,
            },
            file,
            applications,
            tells_apart,
        })
    }
}

impl Configuration<'_> {
    /// Gives the dialer each new configuration, with `--watch-config`, and logs the results. After an
    /// error the previous one stays in force. Never returns.
    pub(super) async fn follow(&self, dialer: &Dialer) {
        if self.options.watch_config {
            self.follow_file(&self.options.file, dialer).await;
        }
        std::future::pending().await
    }

    async fn follow_file(&self, path: &Path, dialer: &Dialer) {
        let mut known = self.mark;
        loop {
            changed(path, &mut known).await;
            match self.replace(dialer).await {
                Ok(()) => tracing::info!(target: PROGRAM, "read {} again", path.display()),
                Err(failure) => {
                    tracing::error!(target: PROGRAM, "{failure}; keeping the previous configuration");
                }
            }
        }
    }

    async fn replace(&self, dialer: &Dialer) -> Result<(), Failure> {
        let next = self.options.read(self.tells_apart)?;
        if next.file != self.file || next.applications != self.applications {
            return Err(Failure::unusable(format!(
                "{}: Endpoint, Address, DNS, ListenPort or AllowedApps has changed; restart the tunnel to use it",
                self.options.name()
            )));
        }
        Ok(dialer.reconfigure(next.bytes).await?)
    }
}

/// Parses one line.
fn line(text: &str) -> Result<String, String> {
    match text.contains(['\n', '\r']) {
        false => Ok(text.to_owned()),
        true => Err("must be one line, such as: delay=100ms loss=1%".to_owned()),
    }
}

/// Returns the configuration with this network in place of its own. The module checks the words, and
/// reports a file that is not text.
fn with_network(config: Vec<u8>, words: &str) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&config) else {
        return config;
    };
    let (mut out, mut own, mut placed) = (String::new(), false, false);
    for line in text.lines() {
        let content = line.trim_start_matches('\u{feff}').trim();
        if let Some(heading) = content.strip_prefix('[') {
            let name = heading.split(']').next().unwrap_or_default();
            own = name.trim().eq_ignore_ascii_case("watm");
        }
        let field = content.split('=').next().unwrap_or_default();
        if own && field.trim().eq_ignore_ascii_case("network") {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if own && !placed {
            placed = true;
            out.push_str(&format!("Network = {words}\n"));
        }
    }
    if !placed {
        out.push_str(&format!("\n[Watm]\nNetwork = {words}\n"));
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_takes_the_place_of_the_files() {
        let with = |text: &str| String::from_utf8(with_network(text.into(), "3g")).unwrap();
        for (text, expected) in [
            (
                "[Peer]\nNetwork = x",
                "[Peer]\nNetwork = x\n\n[Watm]\nNetwork = 3g\n",
            ),
            (
                "\u{feff}[ WATM ]\r\nnetwork=4g\r\nMaxFlows = 9\nNetwork = dsl\n[Peer]\n",
                "\u{feff}[ WATM ]\nNetwork = 3g\nMaxFlows = 9\n[Peer]\n",
            ),
        ] {
            assert_eq!(with(text), expected);
            assert_eq!(with(&with(text)), expected);
        }
        assert_eq!(with_network(vec![0xff], "3g"), [0xff]);
    }

    #[test]
    fn a_network_is_one_line() {
        assert_eq!(line("3g loss=1%").unwrap(), "3g loss=1%");
        assert!(line("3g\n[Peer]").is_err());
    }
}
