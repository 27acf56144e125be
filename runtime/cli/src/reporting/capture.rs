//! Options for captures of packets and keys. Used by `options`.

use std::path::PathBuf;

use watm_runtime::{Capture, Error};

use crate::sizes::size;

/// Options for captures, for debugging.
#[derive(clap::Args)]
pub(crate) struct CaptureOptions {
    /// Write all packets of the module's tunnels, decrypted, to this new file, in pcapng.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Divide the packets among files of this size, such as 64MiB, with numbers in their names. Each
    /// opens on its own.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "pcap")]
    pcap_size: Option<u64>,
    /// Keep the newest files of the packets, by default ten of 64 MiB.
    #[arg(long, value_name = "NUMBER", requires = "pcap")]
    pcap_files: Option<usize>,
    /// Append the keys of the module's tunnels to this file, as Wireshark reads them
    /// (wg.keylog_file). Anyone with the file can decrypt all captured traffic, and has your
    /// private key.
    #[arg(long, value_name = "FILE")]
    key_log: Option<PathBuf>,
}

impl CaptureOptions {
    /// Returns the requested capture, if any.
    pub(crate) fn capture(&self) -> Result<Option<Capturing>, Error> {
        let (pcap, key_log) = (self.pcap.clone(), self.key_log.clone());
        let wanted = Capture::wanted(pcap, key_log, self.pcap_size, self.pcap_files)?;
        Ok(wanted.map(Capturing))
    }
}

/// A capture that ends with the command. Instances may end later than the command, or not at all.
pub(crate) struct Capturing(Capture);

impl Capturing {
    /// Returns a handle for a module.
    pub(crate) fn capture(&self) -> Capture {
        self.0.clone()
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        self.0.end();
    }
}
