//! The files `case.json` of the kit, whose format `tests/hosts/README.md` describes. `stage` performs
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_derive::Deserialize;
use watm_test_support::repository;

/// An expectation of one module.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    pub about: String,
    pub rule: Rule,
    pub since: String,
    #[serde(default)]
    pub tcp: Vec<String>,
    #[serde(default)]
    pub udp: Vec<String>,
    #[serde(default)]
    pub packets: Vec<String>,
    #[serde(default)]
    pub servers: BTreeMap<String, ServerKind>,
    #[serde(default)]
    pub reach: Vec<String>,
    #[serde(default)]
    pub accepts: Option<Vec<String>>,
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    #[serde(default)]
    pub log_level: Option<String>,
    #[serde(default)]
    pub config: String,
    pub checks: u64,
    pub steps: Vec<Step>,
}

/// The sentence of `wit/` that a case is about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub file: String,
    pub item: String,
    pub says: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    Tcp,
    Udp,
    /// A port at which nobody listens.
    None,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    #[default]
    Bytes,
    Datagrams,
}

/// The bytes that a step sends or expects.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    Text(String),
    /// A number of bytes, of which byte i is i modulo 251.
    Pattern(usize),
}

impl Content {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Content::Text(text) => text.clone().into_bytes(),
            Content::Pattern(count) => (0..*count).map(|i| (i % 251) as u8).collect(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Step {
    Connect {
        r#as: String,
        to: String,
    },
    Bind {
        r#as: String,
        to: String,
    },
    Accept {
        r#as: String,
        at: String,
    },
    Flow {
        r#as: String,
        kind: Kind,
        source: Option<String>,
        destination: Option<String>,
        peer: Option<String>,
        attributes: Option<Vec<(String, String)>>,
    },
    Dial {
        r#as: String,
        to: Option<String>,
        #[serde(default)]
        kind: Kind,
        error: Option<String>,
    },
    Send {
        on: String,
        #[serde(flatten)]
        content: Content,
    },
    Receive {
        on: String,
        #[serde(flatten)]
        content: Content,
    },
    ReceiveNothing {
        on: String,
        ms: u64,
    },
    ReceiveEnd {
        on: String,
    },
    ReceiveError {
        on: String,
        error: String,
    },
    End {
        on: String,
    },
    Reset {
        on: String,
    },
    Close {
        on: String,
    },
    Pause {
        ms: u64,
    },
    Reconfigure {
        config: String,
        refused: Option<String>,
    },
    Swap {
        config: Option<String>,
        refused: Option<String>,
    },
    ClientConfigs {
        host: String,
        port: u16,
        name: String,
        content: String,
    },
    BeginCapture,
    EndCapture {
        has: Option<String>,
        lacks: Option<String>,
    },
    Log {
        has: Option<String>,
        lacks: Option<String>,
    },
    NetworkChanged,
    System {
        run: String,
    },
    Verdict {
        #[serde(rename = "at-least-ms")]
        at_least_ms: Option<u64>,
    },
}

/// Returns the folder of the kit.
pub fn folder() -> PathBuf {
    repository().join("tests/hosts")
}

pub fn read(name: &str) -> Case {
    let file = folder().join("cases").join(name).join("case.json");
    let text = fs::read_to_string(&file).expect("a case has a file");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the documentation in a file of `wit/`, in one line.
pub fn documentation(file: &str) -> String {
    let path = repository().join("wit").join(Path::new(file));
    let text = fs::read_to_string(path).expect("a file of wit/");
    let comments = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("///"));
    let words: Vec<&str> = comments.flat_map(str::split_whitespace).collect();
    words.join(" ")
}
