//! The names of artifacts in registries, by the distribution specification of the Open Container
//! Initiative. Used by `source`, `publish` and `fetch`.

use std::fmt;
use std::str::FromStr;

use watm_seal::Digest;

/// The longest name of a repository, and the longest tag, that registries accept.
const LONGEST_REPOSITORY: usize = 255;
const LONGEST_TAG: usize = 128;
/// The tag of a reference without one.
const DEFAULT_TAG: &str = "latest";

/// A reference that names its registry: `REGISTRY/REPOSITORY:TAG`, or `…@sha256:DIGEST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Returns the host, and the port if there is one, at which the registry answers.
    pub(crate) fn host(&self) -> &str {
        match self.registry.as_str() {
            "docker.io" => "index.docker.io",
            registry => registry,
        }
    }

    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the digest of the manifest that the reference is pinned to.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns what a manifest is requested by: the digest, or else the tag.
    pub(crate) fn manifest(&self) -> String {
        match &self.digest {
            Some(digest) => format!("sha256:{digest}"),
            None => self.tag.clone().unwrap_or_default(),
        }
    }
}

impl FromStr for Reference {
    type Err = String;

    /// Requires the registry. Other clients take a reference without one for one of a particular
    /// company.
    fn from_str(text: &str) -> Result<Reference, String> {
        let Some((registry, rest)) = text.split_once('/').filter(|(host, _)| is_named(host)) else {
            return Err("must be oci://REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST".to_owned());
        };
        if !is_registry(registry) {
            return Err(format!(
                "{registry:?} is not the host of a registry; must be HOST or HOST:PORT"
            ));
        }
        let (rest, digest) = match rest.split_once('@') {
            None => (rest, None),
            Some((rest, digest)) => (rest, Some(parse_digest(digest)?)),
        };
        let (repository, tag) = match rest.split_once(':') {
            None => (rest, None),
            Some((repository, tag)) => (repository, Some(tag)),
        };
        if !is_repository(repository) {
            return Err(format!(
                "{repository:?} is not a repository; must be parts of lowercase letters and digits, \
                 with '/' between them, and single '.', '_' or '-' inside them"
            ));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(format!(
                "{tag:?} is not a tag; must be 1 to {LONGEST_TAG} letters, digits, '_', '.' and '-'"
            ));
        }
        let default = digest.is_none().then_some(DEFAULT_TAG);
        Ok(Reference {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.or(default).map(str::to_owned),
            digest,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@sha256:{digest}"),
            None => Ok(()),
        }
    }
}

/// Returns true if the first part of a reference is a host, and not a part of a repository.
fn is_named(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        None => (text, None),
        Some((host, port)) => (host, Some(port)),
    };
    let is_label = |label: &str| {
        let inside = |character: char| character.is_ascii_alphanumeric() || character == '-';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inside)
    };
    let is_number =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    host.split('.').all(is_label) && port.is_none_or(is_number)
}

/// Checks parts of letters and digits that one of `.`, `_`, `__` or any number of `-` separates.
fn is_repository(text: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    let is_separator = |between: &str| {
        matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
    };
    let is_part = |part: &str| {
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part.split(is_plain).all(is_separator)
    };
    text.len() <= LONGEST_REPOSITORY && text.split('/').all(is_part)
}

fn is_tag(text: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.len() <= LONGEST_TAG
        && text.starts_with(is_word)
        && text
            .chars()
            .all(|character| is_word(character) || matches!(character, '.' | '-'))
}

fn parse_digest(text: &str) -> Result<Digest, String> {
    let digits = text.strip_prefix("sha256:");
    let digest = digits.and_then(|digits| digits.parse().ok());
    digest.ok_or_else(|| {
        format!("has an unsupported digest {text:?}; must be sha256: and 64 hexadecimal digits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_shown_as_it_is_written() {
        let digest = "0a".repeat(32);
        for text in [
            "registry.example/a:b",
            "localhost/a/b-c/d__e.f:Stable_1.2-x",
            "127.0.0.1:5000/a--b:1",
            &format!("r.example/a@sha256:{digest}"),
            &format!("r.example/a:b@sha256:{digest}"),
        ] {
            assert_eq!(text.parse::<Reference>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn a_manifest_is_requested_by_its_digest_before_its_tag() {
        let parse = |text: &str| text.parse::<Reference>().expect(text).manifest();
        let pinned = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(parse("r.example/a"), "latest");
        assert_eq!(parse("r.example/a:b"), "b");
        assert_eq!(parse(&format!("r.example/a:b@{pinned}")), pinned);
    }

    #[test]
    fn what_an_address_could_not_contain_is_refused() {
        let long = "a".repeat(256);
        for (text, why) in [
            ("", "REGISTRY"),
            ("a", "REGISTRY"),
            ("team/a", "REGISTRY"),
            ("r.example", "REGISTRY"),
            ("-r.example/a", "host of a registry"),
            ("r..example/a", "host of a registry"),
            ("me@r.example/a", "host of a registry"),
            ("r.example:/a", "host of a registry"),
            ("r.example:+1/a", "host of a registry"),
            ("r.example:65536/a", "host of a registry"),
            ("r.example/", "repository"),
            ("r.example/A", "repository"),
            ("r.example/a//b", "repository"),
            ("r.example/../a", "repository"),
            ("r.example/a..b", "repository"),
            ("r.example/a___b", "repository"),
            ("r.example/a?b", "repository"),
            ("r.example/a%2fb", "repository"),
            (&format!("r.example/{long}"), "repository"),
            ("r.example/a:", "tag"),
            ("r.example/a:.b", "tag"),
            ("r.example/a:b/c", "tag"),
            (&format!("r.example/a:{}", &long[..129]), "tag"),
            ("r.example/a@sha256:12", "digest"),
            (&format!("r.example/a@sha512:{}", "0a".repeat(64)), "digest"),
            (&format!("r.example/a@sha256:{}", "0g".repeat(32)), "digest"),
        ] {
            let error = text.parse::<Reference>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
