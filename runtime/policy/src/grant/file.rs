//! Grants of the user, read from a file. The command reads it, and `Trust` looks modules up in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use etcetera::base_strategy::{BaseStrategy, choose_base_strategy};
use serde_derive::Deserialize;
use watm_seal::{Capabilities, ConnectPattern, Name, private};

use crate::Error;
use watm_types::printable;

/// The largest file of grants, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The longest reason in an error, in bytes: a sentence with a few names in it.
const LONGEST_REASON: usize = 500;

/// The user's grants to modules, by name, in a file:
///
/// ```toml
/// ["watm/wireguard"]
/// sockets = ["udp listen"]
/// connect = ["192.0.2.1:443", "*.example.com"]
/// host-crypto = true
/// bind-transparent = false
/// host-keys = false
/// capture = false
/// memory-mib = 256
/// cpu-permille = 500
/// flows = 1000
/// instances = 1
/// ```
///
/// A module that is named here has no more than its grant, whatever its seal asks for, and needs no
/// other approval for it. Fields that are left out are as the seal says, and must be approved as for
/// a module that is not named here.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    by_name: BTreeMap<Name, Grant>,
}

/// The user's grant to one module.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The upper limits; fields that are left out are not limited.
    pub most: Capabilities,
    /// The capabilities that need no other approval: those that the grant names, since they are
    /// limited to its values.
    pub approved: Capabilities,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    sockets: Option<Vec<String>>,
    connect: Option<Vec<String>>,
    host_crypto: Option<bool>,
    bind_transparent: Option<bool>,
    host_keys: Option<bool>,
    capture: Option<bool>,
    memory_mib: Option<u32>,
    cpu_permille: Option<u32>,
    flows: Option<u32>,
    instances: Option<u32>,
}

impl Grants {
    /// Reads the grants in this file. Errors name the file, the line and the field, in one line.
    pub fn read(path: &Path) -> Result<Grants, Error> {
        let file = |source| Error::File {
            path: path.to_owned(),
            source,
        };
        if std::fs::metadata(path).map_err(file)?.len() > MAX_BYTES {
            let reason = format!("is larger than {MAX_BYTES} bytes; must be a list of grants");
            return Err(Error::Options(format!("{}: {reason}", path.display())));
        }
        if let Some(open) = private::writable_by_everybody(path) {
            tracing::warn!(
                target: "watm::trust",
                "{0} is world-writable: any user could grant modules any capability; run \
                 `chmod o-w {0}`",
                open.display()
            );
        }
        let text = std::fs::read_to_string(path).map_err(file)?;
        Grants::parse(&text)
            .map_err(|reason| Error::Options(format!("{}: {reason}", path.display())))
    }

    /// Reads the grants in the user's folder for configuration (`$XDG_CONFIG_HOME/watm/grants.toml`,
    /// `~/.config/watm/grants.toml`; on Windows in `%APPDATA%`). Returns none if there is no such
    /// file.
    pub fn of_user() -> Result<Grants, Error> {
        match Grants::user_path() {
            Some(path) if path.exists() => Grants::read(&path),
            _ => Ok(Grants::default()),
        }
    }

    /// Returns the path of that file; `None` if the user has no such folder.
    pub fn user_path() -> Option<PathBuf> {
        let folders = choose_base_strategy().ok()?;
        Some(folders.config_dir().join("watm").join("grants.toml"))
    }

    #[doc(hidden)]
    pub fn of(&self, name: &Name) -> Option<&Grant> {
        self.by_name.get(name)
    }

    fn parse(text: &str) -> Result<Grants, String> {
        let entries: BTreeMap<String, toml::Spanned<Entry>> =
            toml::from_str(text).map_err(|error| located(text, error.span(), error.message()))?;
        let by_name = entries.into_iter().map(|(name, entry)| {
            let span = entry.span();
            let parsed = name
                .parse()
                .map_err(|error: watm_seal::Refused| error.to_string())
                .and_then(|parsed| Ok((parsed, entry.into_inner().parse()?)));
            parsed.map_err(|reason| located(text, Some(span), &format!("[\"{name}\"] {reason}")))
        });
        Ok(Grants {
            by_name: by_name.collect::<Result<_, _>>()?,
        })
    }
}

impl Entry {
    fn parse(self) -> Result<Grant, String> {
        Ok(Grant {
            approved: self.approved(),
            most: self.most()?,
        })
    }

    fn approved(&self) -> Capabilities {
        let all = Capabilities::unlimited();
        let none = Capabilities::default();
        Capabilities {
            sockets: self.sockets.as_ref().map_or(none.sockets, |_| all.sockets),
            connect: self.connect.as_ref().map_or(none.connect, |_| all.connect),
            host_crypto: self.host_crypto.is_some(),
            bind_transparent: self.bind_transparent.is_some(),
            host_keys: self.host_keys.is_some(),
            capture: self.capture.is_some(),
            memory_bytes: self.memory_mib.map_or(0, |_| u64::MAX),
            cpu_permille: self.cpu_permille.map_or(0, |_| u32::MAX),
            flows: self.flows.map_or(0, |_| u32::MAX),
            instances: self.instances.map_or(0, |_| u32::MAX),
        }
    }

    fn most(self) -> Result<Capabilities, String> {
        let all = Capabilities::unlimited();
        let sockets = |texts: Vec<String>| {
            texts
                .iter()
                .map(|text| text.parse().map_err(|error| format!("sockets: {error}")))
                .collect::<Result<_, String>>()
        };
        let connect = |texts: Vec<String>| {
            let mut all = BTreeSet::new();
            for text in texts {
                let patterns = ConnectPattern::parse(&text)
                    .map_err(|error| format!("connect: {text:?}: {error}"))?;
                all.extend(patterns);
            }
            Ok::<_, String>(all)
        };
        Ok(Capabilities {
            sockets: self.sockets.map_or(Ok(all.sockets), sockets)?,
            connect: self.connect.map_or(Ok(all.connect), connect)?,
            host_crypto: self.host_crypto.unwrap_or(true),
            bind_transparent: self.bind_transparent.unwrap_or(true),
            host_keys: self.host_keys.unwrap_or(true),
            capture: self.capture.unwrap_or(true),
            memory_bytes: self.memory_mib.map_or(u64::MAX, |mib| u64::from(mib) << 20),
            cpu_permille: self.cpu_permille.unwrap_or(u32::MAX),
            flows: self.flows.unwrap_or(u32::MAX),
            instances: self.instances.unwrap_or(u32::MAX),
        })
    }
}

/// Returns the reason with the line that it is on, and without characters that could forge log lines.
fn located(text: &str, span: Option<std::ops::Range<usize>>, reason: &str) -> String {
    let reason = printable(reason, LONGEST_REASON);
    let before = span.and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {reason}", before.matches('\n').count() + 1),
        None => reason.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use watm_schema::Kind;

    use super::super::fields::GRANT;
    use super::*;

    #[test]
    fn grants_are_read_and_what_is_left_out_is_not_bounded() {
        let text = "[\"watm/wireguard\"]\nsockets = [\"udp listen\"]\nconnect = [\"192.0.2.1:443\"]\nmemory-mib = 2\n";
        let grants = Grants::parse(text).expect("grants");
        let granted = grants.of(&"watm/wireguard".parse().expect("a name"));
        let granted = granted.expect("one of that name");
        assert_eq!(granted.most.memory_bytes, 2 << 20);
        assert_eq!(granted.most.flows, u32::MAX);
        // A field in the grant needs no approval, and one that is left out does.
        assert_eq!(granted.approved.memory_bytes, u64::MAX);
        assert_eq!(granted.approved.flows, 0);
        assert!(!granted.approved.capture && !granted.approved.sockets.is_empty());
        let connect: Vec<&str> = granted
            .most
            .connect
            .iter()
            .map(ConnectPattern::as_str)
            .collect();
        assert_eq!(connect, ["tcp://192.0.2.1:443", "udp://192.0.2.1:443"]);
        assert!(grants.of(&"other".parse().expect("a name")).is_none());
    }

    #[test]
    fn a_file_of_grants_is_read_up_to_its_bound() {
        let path = std::env::temp_dir().join(format!("watm-grants-{}", std::process::id()));
        let text = "[a]\nflows = 1\n";
        let room = usize::try_from(MAX_BYTES).expect("a size") - text.len();
        let read = |comment: usize| {
            std::fs::write(&path, text.to_owned() + &"#".repeat(comment)).expect("written");
            Grants::read(&path)
        };
        for comment in [0, room] {
            let grants = read(comment).expect("a list");
            assert!(grants.of(&"a".parse().expect("a name")).is_some());
        }
        let error = read(room + 1).expect_err("too large").to_string();
        assert!(error.contains("is larger than 1048576 bytes"), "{error}");
        std::fs::remove_file(&path).expect("removed");
        assert!(Grants::read(&path).is_err());
        let path = Grants::user_path().expect("a home folder");
        assert!(path.ends_with(Path::new("watm").join("grants.toml")));
    }

    #[test]
    fn errors_name_the_line_and_the_field() {
        for (text, expected) in [
            ("[a]\nflows = 1\nflow = 2\n", "line 3: unknown field `flow`"),
            ("[a]\nflows = \"x\"\n", "line 2: "),
            ("[a]\nsockets = [\"sctp listen\"]\n", "sockets"),
            (
                "[a]\nconnect = [\"http://x\"]\n",
                "connect: \"http://x\": network",
            ),
            ("[\"A B\"]\nflows = 1\n", "name"),
            ("[a\n", "line 1: "),
        ] {
            let error = Grants::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(error.contains("line "), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_error_is_one_line_whatever_it_repeats() {
        let long = format!("[a]\n{} = 1\n", "a".repeat(100_000));
        for text in [
            "[\"A\\nB\"]\nflows = 1\n",
            "[a]\n\"flow\\u0007\\u001b[31m\" = 1\n",
            "[a]\nsockets = [\"sctp\\r\\nlisten\"]\n",
            "[a]\nconnect = [\"a\\n:1\"]\n",
            &long,
        ] {
            let error = Grants::parse(text).expect_err(text);
            assert!(!error.contains(char::is_control), "{text:?}: {error:?}");
            assert!(error.len() < 600, "{} bytes: {error}", error.len());
        }
    }

    #[test]
    fn the_fields_are_those_of_the_table_and_of_the_page() {
        let names: Vec<_> = GRANT.iter().map(|(field, _)| field.name).collect();
        let error = Grants::parse("[a]\nodd = 1\n").expect_err("an unknown field");
        let (_, list) = error.split_once(", expected ").expect(&error);
        let expected: Vec<_> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(expected, names);
        for (field, _) in GRANT {
            let parse = |value: &str| Grants::parse(&format!("[a]\n{} = {value}\n", field.name));
            let (right, wrong) = match field.kind {
                Kind::Switch => (["true", "false"], ["1", "\"x\""]),
                Kind::List(_) => (["[]", "[ ]"], ["true", "\"x\""]),
                _ => (["0", "4294967295"], ["-1", "4294967296"]),
            };
            for value in right {
                assert!(parse(value).is_ok(), "{} = {value}", field.name);
            }
            for value in wrong {
                assert!(parse(value).is_err(), "{} = {value}", field.name);
            }
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/grants.md");
        watm_schema::page::check(page, &[("grants", &GRANT)]);
    }
}
