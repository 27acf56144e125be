//! Names of network namespaces that exist already.

use std::ffi::OsString;
use std::path::PathBuf;

/// A network namespace as people name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// One that `ip netns` shows, the number of a process, or the path of a file.
    pub name: OsString,
}

impl Namespace {
    /// Returns the file of the network namespace. For a process also that of its user namespace,
    /// which has the rights over it.
    pub fn files(&self) -> (PathBuf, Option<PathBuf>) {
        match self.name.to_str() {
            Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                let of = |kind: &str| PathBuf::from(format!("/proc/{number}/ns/{kind}"));
                (of("net"), Some(of("user")))
            }
            Some(name) if !name.contains('/') => (PathBuf::from("/run/netns").join(name), None),
            _ => (PathBuf::from(&self.name), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_a_number_and_a_path_name_files() {
        let files = |name: &str| Namespace { name: name.into() }.files();
        assert_eq!(files("blue"), ("/run/netns/blue".into(), None));
        let of_process = ("/proc/12/ns/net".into(), Some("/proc/12/ns/user".into()));
        assert_eq!(files("12"), of_process);
        assert_eq!(files("/a/b"), ("/a/b".into(), None));
    }
}
