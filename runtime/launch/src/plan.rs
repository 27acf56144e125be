//! The plan of a launch, with its form on the control socket.

use std::ffi::OsString;
use std::net::IpAddr;

use crate::Namespace;

/// The settings of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The namespace in which the device is made, whose programs use it from then on. `None`: a new
    /// one, for the program.
    pub namespace: Option<Namespace>,
    /// The program and its arguments. Empty: the helper ends once it has made the device.
    pub program: Vec<OsString>,
    /// Variables of the environment that are set for the program, beside those that it inherits.
    pub environment: Vec<(OsString, OsString)>,
    /// The addresses of the program. For each family with one, the device is the default route.
    pub addresses: Vec<IpAddr>,
    /// The MTU of the device.
    pub mtu: u32,
    /// The name servers in the program's `/etc/resolv.conf`. Empty: the file stays.
    pub resolvers: Vec<IpAddr>,
    /// Files that the program sees with other contents. Those that do not exist are left out.
    pub files: Vec<(OsString, Vec<u8>)>,
}
