//! The root and the floors that are built into a program. The command and the Python module read
//! them.

use std::collections::BTreeMap;

use watm_seal::{Name, Release, Root, SignedRoot};

use crate::Error;

/// The root that the build script writes; empty if there is none.
static ROOT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/root.watm"));

/// The root and the floors that a release of a program has by itself, even if the state is lost.
///
/// They are chosen when the program is built: `WATM_BUILT_IN_ROOT` names the file of a root, and
/// `WATM_BUILT_IN_FLOORS` the oldest releases that still run, as `wireguard=1.5,team-a/x=2.1`. By
/// default there is neither.
#[derive(Debug, Clone, Default)]
pub struct BuiltIn {
    /// The root for users who have trusted none.
    pub root: Option<Root>,
    /// The oldest releases that still run.
    pub floors: BTreeMap<Name, Release>,
}

impl BuiltIn {
    /// Returns what this library was built with. An error is a mistake of the builder.
    pub fn of_release() -> Result<BuiltIn, Error> {
        BuiltIn::parse(
            ROOT,
            option_env!("WATM_BUILT_IN_FLOORS").unwrap_or_default(),
        )
        .map_err(|reason| {
            Error::System(format!(
                "this program was built with an invalid root: {reason}"
            ))
        })
    }

    fn parse(root: &[u8], floors: &str) -> Result<BuiltIn, String> {
        let root = match root.is_empty() {
            true => None,
            false => Some(
                SignedRoot::from_file(root)
                    .and_then(Root::trust)
                    .map_err(|error| format!("WATM_BUILT_IN_ROOT: {error}"))?,
            ),
        };
        let floors = floors.split(',').map(str::trim).filter(|it| !it.is_empty());
        let floors = floors.map(|floor| {
            let parsed = floor
                .split_once('=')
                .and_then(|(name, release)| Some((name.parse().ok()?, release.parse().ok()?)));
            parsed.ok_or_else(|| {
                format!("WATM_BUILT_IN_FLOORS: {floor:?}; must be like wireguard=1.5")
            })
        });
        Ok(BuiltIn {
            root,
            floors: floors.collect::<Result<_, String>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use watm_seal::{DAY, PrivateKey, RootRecord};

    use super::*;
    use crate::trust::now;

    #[test]
    fn a_root_is_trusted_if_enough_have_signed_it() {
        let keys = [1, 2].map(|seed| PrivateKey::from_seed(&[seed; 32]));
        let record = RootRecord {
            version: 1,
            first: None,
            epoch: 1,
            expires: now() + DAY,
            threshold: 2,
            keys: keys.iter().map(PrivateKey::public).collect(),
            delegations: Vec::new(),
            revoked: [].into(),
        };
        let half = SignedRoot::new(record).and_then(|root| root.sign(&keys[0]));
        let half = half.expect("a possible record");
        let error = BuiltIn::parse(&half.to_file(), "").expect_err("one is missing");
        assert!(error.contains("WATM_BUILT_IN_ROOT"), "{error}");
        let whole = half.sign(&keys[1]).expect("one of its keys");
        let built = BuiltIn::parse(&whole.to_file(), "wireguard=1.5").expect("both");
        assert_eq!(built.root.map(|root| root.id()), Some(whole.id()));
        assert_eq!(built.floors.len(), 1);
    }

    #[test]
    fn by_default_there_is_neither() {
        let none = BuiltIn::parse(b"", "").expect("nothing is possible");
        assert!(none.root.is_none() && none.floors.is_empty());
        let own = BuiltIn::of_release().expect("built rightly");
        assert_eq!(own.root.is_some(), !ROOT.is_empty());
    }

    #[test]
    fn floors_are_names_and_releases() {
        let built = BuiltIn::parse(b"", " wireguard=1.5, team-a/x=2.1,").expect("floors");
        let floors: Vec<String> = built
            .floors
            .iter()
            .map(|(name, release)| format!("{name} {release}"))
            .collect();
        assert_eq!(floors, ["team-a/x 2.1", "wireguard 1.5"]);
        for wrong in ["wireguard", "wireguard=", "wireguard=x", "A=1.5", "a 1.5"] {
            let error = BuiltIn::parse(b"", wrong).expect_err(wrong);
            assert!(error.contains("WATM_BUILT_IN_FLOORS"), "{error}");
        }
        let error = BuiltIn::parse(b"no root", "").expect_err("refused");
        assert!(error.contains("WATM_BUILT_IN_ROOT"), "{error}");
    }
}
