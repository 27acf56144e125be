use std::path::PathBuf;

use watm_runtime::Capture;

/// Files for who looks for a mistake.
#[derive(clap::Args)]
pub(crate) struct CaptureOptions {
    /// Write all packets of the module's tunnels, in the clear, to this new file, in pcapng.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Add the keys of the module's tunnels to this file, as Wireshark reads them (wg.keylog_file).
    /// Who has it can read all traffic that went by outside, and has our private key.
    #[arg(long, value_name = "FILE")]
    key_log: Option<PathBuf>,
}

impl CaptureOptions {
    /// What is wanted, if anything is.
    pub(crate) fn capture(&self) -> Option<Capturing> {
        Capture::wanted(self.pcap.clone(), self.key_log.clone()).map(Capturing)
    }
}

/// A capture, for as long as the command goes on: what it runs may end later than it, or not at all.
pub(crate) struct Capturing(Capture);

impl Capturing {
    /// For a module.
    pub(crate) fn capture(&self) -> Capture {
        self.0.clone()
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        self.0.end();
    }
}
