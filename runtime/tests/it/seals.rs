//! The commands around seals, as people use them who make roots, seal modules and check them.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use watm_test_support::command::{plain, run, unread};
use watm_test_support::directory;

/// A folder with the keys and descriptions of one test.
struct Desk(PathBuf);

impl Desk {
    fn new(name: &str) -> Desk {
        let desk = Desk(directory(&format!("seals-{name}")));
        fs::write(desk.path("passphrase"), "correct horse\n").expect("written");
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs `watm`. Arguments that begin with `@` are files of this folder. Returns its status and
    /// both outputs.
    fn watm(&self, arguments: &str) -> (Option<i32>, String) {
        let arguments: Vec<PathBuf> = arguments
            .split_whitespace()
            .map(|word| match word.strip_prefix('@') {
                Some(name) => self.path(name),
                None => PathBuf::from(word),
            })
            .collect();
        let arguments: Vec<&dyn AsRef<OsStr>> = arguments
            .iter()
            .map(|argument| argument as &dyn AsRef<OsStr>)
            .collect();
        let (status, output, said) = run(&arguments, b"");
        let output = String::from_utf8(output).expect("text");
        (status, output + &said)
    }

    /// Runs [`watm`](Desk::watm) without the switch for modules without a seal.
    fn watm_sealed(&self, arguments: &str) -> (Option<i32>, String) {
        self.watm(&format!("--sealed {arguments}"))
    }

    /// Runs [`watm`](Desk::watm), which must succeed.
    fn well(&self, arguments: &str) -> String {
        let (status, said) = self.watm(arguments);
        assert_eq!(status, Some(0), "{arguments}: {said}");
        said
    }

    fn json(&self, arguments: &str) -> Value {
        let (_, said) = self.watm(&format!("{arguments} --json"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Makes a private key without a passphrase. Returns the public one.
    fn key(&self, name: &str) -> String {
        let made = self.json(&format!("keygen @{name} --unencrypted"));
        made["public"].as_str().expect("a key").to_owned()
    }

    fn describe(&self, name: &str, description: &Value) {
        fs::write(self.path(name), description.to_string()).expect("written");
    }

    /// Makes a root with one key, `root.key`, by which two of `keys` may seal `demo/*`.
    fn root(&self, keys: &[String]) {
        let own = self.key("root.key");
        self.describe("root.json", &root_description(&own, keys));
        self.well("root new @root.json --output @root --key @root.key");
    }

    /// Seals `plain.wat` as this release of `demo/plain`.
    fn seal(&self, release: &str, keys: &str, output: &str) -> String {
        self.describe("manifest.json", &manifest_description(release));
        let module = plain();
        let module = module.to_str().expect("text");
        self.well(&format!(
            "seal {module} --manifest @manifest.json --root @root {keys} --output @{output}"
        ))
    }
}

fn root_description(own: &str, keys: &[String]) -> Value {
    json!({
        "expires": "2100-01-01",
        "threshold": 1,
        "keys": [own],
        "delegations": [{
            "name": "release",
            "threshold": 2,
            "keys": keys,
            "names": ["demo/*"],
            "ceiling": {
                "connect": ["tcp://*:*"],
                "memory-bytes": 1 << 30,
                "cpu-permille": 1000,
                "flows": 100,
                "instances": 100,
            },
        }],
    })
}

fn manifest_description(release: &str) -> Value {
    json!({
        "name": "demo/plain",
        "release": release,
        "version": "0.1.0",
        "expires": "2099-01-01",
        "capabilities": {
            "connect": ["tcp://*.example.com:443"],
            "memory-bytes": 1 << 20,
            "cpu-permille": 1000,
            "flows": 10,
            "instances": 10,
        },
    })
}

#[test]
fn a_module_is_sealed_by_two_and_verified_with_nothing_but_the_root() {
    let desk = Desk::new("two");
    let keys = [desk.key("a.key"), desk.key("b.key"), desk.key("c.key")];
    desk.root(&keys);
    // One signs, and sends the file to the other.
    desk.seal("1.1", "--key @a.key", "half.wasm");
    let half = desk.json("verify @half.wasm --root @root --state @state");
    assert_eq!(half["accepted"], false);
    assert_eq!(half["code"], "threshold");
    let (status, said) = desk.watm("seal @half.wasm --key @c.key --output @plain.wasm");
    assert_eq!(status, Some(2));
    assert!(said.contains("pass it with --root"), "{said}");
    desk.well("seal @half.wasm --root @root --key @c.key --output @plain.wasm");

    let [file, root, state] = ["plain.wasm", "root", "state"].map(|name| desk.path(name));
    let verify: [&dyn AsRef<OsStr>; 6] = [&"verify", &file, &"--root", &root, &"--state", &state];
    assert_eq!(unread(&verify), [Some(0); 2]);
    let shown = desk.json("verify @plain.wasm --root @root --state @state");
    assert_eq!(shown["accepted"], true);
    assert_eq!(shown["delegation"], "release");
    let mut signers = [keys[0].as_str(), keys[2].as_str()];
    signers.sort_unstable();
    assert_eq!(shown["signers"], json!(signers));
    assert_eq!(shown["manifest"]["world"], "water-v1");
    assert_eq!(shown["warnings"][0]["code"], "expiry-far-off");
    let said = desk.well("verify @plain.wasm --root @root --state @state");
    for line in [
        "accepted  yes",
        "name      demo/plain",
        "release   1.1 (0.1.0)",
        "expires   2099-01-01 00:00 UTC",
        "may have  connect to tcp://*.example.com:443",
        &format!("signed by {}", keys[0]),
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    // Nothing was recorded, as nobody requested it.
    assert!(!desk.path("state").exists());
    // Programs that know nothing of seals see the same module as before.
    let (sealed, module) = (desk.json("inspect @plain.wasm"), plain());
    let before = desk.json(&format!("inspect {}", module.to_str().expect("text")));
    assert_eq!(sealed["sealed"], "demo/plain 1.1");
    assert_eq!(before["sealed"], Value::Null);
    for same in ["kind", "roles", "imports", "exports", "problems"] {
        assert_eq!(sealed[same], before[same]);
    }
}

#[test]
fn what_was_accepted_is_not_undone() {
    let desk = Desk::new("rollback");
    let keys = [desk.key("a.key"), desk.key("b.key")];
    desk.root(&keys);
    desk.seal("1.2", "--key @a.key --key @b.key", "new.wasm");
    desk.seal("1.1", "--key @a.key --key @b.key", "old.wasm");
    let id = desk.json("root show @root")["id"].clone();
    let id = id.as_str().expect("an id");
    let (status, said) = desk.watm(&format!(
        "trust @root --id {} --state @state",
        "0".repeat(64)
    ));
    assert_eq!(status, Some(2), "{said}");
    desk.well(&format!("trust @root --id {id} --state @state"));
    // It is recorded from here on.
    desk.well("verify @old.wasm --state @state");
    desk.well("verify @new.wasm --state @state --accept");
    let (status, said) = desk.watm("verify @old.wasm --state @state");
    assert_eq!(status, Some(1));
    assert!(said.starts_with("accepted  no, rollback: "), "{said}");
    desk.well("verify @old.wasm --state @state --name demo/plain --allow-downgrade 1.1");
    let known = desk.json("trust --state @state");
    assert_eq!(known["root"], id);
    assert_eq!(known["modules"][0]["name"], "demo/plain");
    assert_eq!(known["modules"][0]["accepted"], "1.2");
    assert_eq!(known["modules"][0]["approved"]["instances"], 10);
    // A damaged state is an error, not an empty state.
    fs::write(desk.path("state"), "").expect("written");
    let (status, said) = desk.watm("verify @old.wasm --root @root --state @state");
    assert_eq!(status, Some(2));
    assert!(said.contains("state: is truncated"), "{said}");
}

#[test]
fn a_key_is_replaced_by_the_next_root() {
    let desk = Desk::new("rotation");
    let keys = [desk.key("a.key"), desk.key("b.key"), desk.key("c.key")];
    desk.root(&keys[..2]);
    desk.seal("1.1", "--key @a.key --key @b.key", "old.wasm");
    desk.well("trust @root --state @state");
    // The output is input for the next version.
    let mut next = desk.json("root show @root")["description"].clone();
    next["delegations"][0]["keys"] = json!(keys[1..]);
    next["revoked"] = json!([keys[0]]);
    desk.describe("next.json", &next);
    let said = desk.well("root new @next.json --after @root --output @root-2");
    assert!(said.contains("complete  no: "), "{said}");
    let said = desk.well("root sign @root-2 --after @root --key @root.key");
    assert!(said.contains("complete  yes"), "{said}");
    let signers = "--rotation @root-2 --key @b.key --key @c.key";
    desk.seal("1.2", signers, "new.wasm");
    desk.well("verify @new.wasm --state @state --accept");
    let known = desk.json("trust --state @state");
    assert_eq!(known["version"], 2);
    let refused = desk.json("verify @old.wasm --state @state --name demo/plain");
    assert_eq!(refused["code"], "revoked");
    // The same root again changes nothing; an old one and another one are refused.
    desk.well("trust @root-2 --state @state");
    let (status, said) = desk.watm("trust @root --state @state");
    assert_eq!(status, Some(2));
    assert!(
        said.contains("is version 1 of the root, but version 2 is already trusted"),
        "{said}"
    );
    next["expires"] = json!("2090-01-01");
    desk.describe("fork.json", &next);
    desk.well("root new @fork.json --after @root --output @fork --key @root.key");
    let (status, said) = desk.watm("trust @fork --state @state");
    assert_eq!(status, Some(2));
    assert!(
        said.contains("differs from the trusted version 2 of the root"),
        "{said}"
    );
    assert_eq!(desk.json("trust --state @state")["version"], 2);
    let other = desk.key("other.key");
    desk.describe("other.json", &root_description(&other, &keys));
    desk.well("root new @other.json --output @other --key @other.key");
    let (status, said) = desk.watm("trust @other --state @state");
    assert_eq!(status, Some(2));
    assert!(said.contains("belongs to the root"), "{said}");
}

#[test]
fn a_root_is_complete_when_hosts_that_trust_the_one_before_it_take_it() {
    let desk = Desk::new("complete");
    desk.root(&[desk.key("a.key"), desk.key("b.key")]);
    desk.well("trust @root --state @state");
    let mut next = desk.json("root show @root")["description"].clone();
    next["keys"] = json!([desk.key("next.key")]);
    desk.describe("next.json", &next);
    let said = desk.well("root new @next.json --after @root --output @root-2 --key @next.key");
    let reason = "root version 2: signed by 0 of the keys of version 1, which requires 1";
    assert!(said.contains(&format!("complete  no: {reason}")), "{said}");
    assert_eq!(
        desk.json("root show @root-2 --after @root")["complete"],
        false
    );
    let (status, said) = desk.watm("trust @root-2 --state @state");
    assert_eq!(status, Some(2));
    assert!(said.contains(reason), "{said}");
    // Without the previous version, completeness is unknown.
    let shown = desk.json("root show @root-2");
    assert_eq!(shown["complete"], Value::Null);
    let said = desk.well("root sign @root-2 --key @root.key");
    assert!(
        said.contains("complete  unknown: keys of version 1 must"),
        "{said}"
    );
    assert_eq!(
        desk.json("root show @root-2 --after @root")["complete"],
        true
    );
    desk.well("trust @root-2 --state @state");
}

#[test]
fn keys_sign_what_the_root_lets_them_sign() {
    let desk = Desk::new("undelegated");
    desk.root(&[desk.key("a.key"), desk.key("b.key")]);
    let other = desk.key("other.key");
    desk.describe("manifest.json", &manifest_description("1.1"));
    let module = plain();
    let module = module.to_str().expect("text");
    let seal = |key: &str| {
        format!("seal {module} --manifest @manifest.json --root @root --key {key} -o @out.wasm")
    };
    let (status, said) = desk.watm(&seal("@other.key"));
    assert_eq!(status, Some(2));
    let reason = format!("version 1 of the root delegates nothing to {other}; sealing a module");
    assert!(
        said.contains(&reason) && said.contains("--undelegated"),
        "{said}"
    );
    // A name that belongs to another delegation.
    let mut manifest = manifest_description("1.1");
    manifest["name"] = json!("other/plain");
    desk.describe("manifest.json", &manifest);
    let (status, said) = desk.watm(&seal("@a.key"));
    assert_eq!(status, Some(2));
    assert!(said.contains("which may sign demo/* only"), "{said}");
    assert!(!desk.path("out.wasm").exists());

    let said = desk.well(&format!("{} --undelegated", seal("@other.key")));
    assert!(
        said.contains("watm: warning: ") && said.contains(&reason),
        "{said}"
    );
    let (status, said) = desk.watm("note demo/plain 1.2 --root @root --key @a.key -o @note");
    assert_eq!(status, Some(2));
    assert!(said.contains("\"purpose\": \"freshness\""), "{said}");
    let (_, help) = desk.watm("root new --help");
    assert!(help.contains("\"purpose\": \"freshness\""), "{help}");
}

#[test]
fn a_note_tells_of_a_newer_release() {
    let desk = Desk::new("note");
    let keys = [desk.key("a.key"), desk.key("b.key")];
    let (own, fresh) = (desk.key("root.key"), desk.key("fresh.key"));
    let mut description = root_description(&own, &keys);
    description["delegations"]
        .as_array_mut()
        .expect("a list")
        .push(json!({
            "name": "fresh", "purpose": "freshness", "threshold": 1,
            "keys": [fresh], "names": ["*"],
        }));
    desk.describe("root.json", &description);
    desk.well("root new @root.json --output @root --key @root.key");
    desk.well("trust @root --state @state");
    desk.seal("1.1", "--key @a.key --key @b.key", "plain.wasm");
    desk.well("note demo/plain 1.2 --root @root --key @fresh.key --output @note");
    desk.well("trust --note @note --state @state");
    let shown = desk.json("verify @plain.wasm --state @state");
    let codes: Vec<&Value> = shown["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|warning| &warning["code"])
        .collect();
    assert!(codes.contains(&&json!("outdated")), "{codes:?}");
    desk.well("note demo/plain 1.1 --root @root --key @fresh.key --output @older");
    let (status, said) = desk.watm("trust --note @older --state @state");
    assert_eq!(status, Some(2));
    assert!(
        said.contains("older: says that demo/plain 1.1 was the newest at "),
        "{said}"
    );
    assert!(said.contains(" named 1.2, which is kept"), "{said}");
    // The same note again is no step back.
    desk.well("trust --note @note --state @state");
    let forge = "note demo/plain 1.2 --root @root --key @a.key --output @forged";
    let (status, said) = desk.watm(forge);
    assert_eq!(status, Some(2));
    let needed = "belongs to release, whose purpose is \"modules\"; signing a note requires a \
                  delegation with \"purpose\": \"freshness\"";
    assert!(said.contains(needed), "{said}");
    assert!(!desk.path("forged").exists());
    let said = desk.well(&format!("{forge} --undelegated"));
    assert!(
        said.contains("watm: warning: ") && said.contains(needed),
        "{said}"
    );
    let (status, said) = desk.watm("trust --note @forged --state @state");
    assert_eq!(status, Some(2));
    assert!(
        said.contains("demo/plain: signed by 0 of the keys of fresh"),
        "{said}"
    );
}

#[test]
fn a_key_is_encrypted_unless_asked_otherwise() {
    let desk = Desk::new("keys");
    let made = desk.json("keygen @root.key --passphrase-file @passphrase");
    let own = made["public"].as_str().expect("a key").to_owned();
    let text = fs::read_to_string(desk.path("root.key")).expect("text");
    assert!(text.starts_with("watm private key v1\n") && text.contains("argon2id"));
    desk.describe(
        "root.json",
        &root_description(&own, &[desk.key("a.key"), desk.key("b.key")]),
    );
    desk.well("root new @root.json --output @root --key @root.key --passphrase-file @passphrase");
    fs::write(desk.path("wrong"), "battery staple\n").expect("written");
    let sign = "root sign @root --key @root.key --passphrase-file";
    let (status, said) = desk.watm(&format!("{sign} @wrong"));
    assert_eq!(status, Some(2));
    assert!(said.contains("root.key: wrong passphrase"), "{said}");
    // An existing key stays.
    let (status, said) = desk.watm("keygen @root.key --unencrypted");
    assert_eq!(status, Some(2));
    assert!(said.starts_with("watm: "), "{said}");
    assert_eq!(
        fs::read_to_string(desk.path("root.key")).expect("text"),
        text
    );
    fs::write(desk.path("empty"), "\n").expect("written");
    let (status, _) = desk.watm("keygen @other.key --passphrase-file @empty");
    assert_eq!(status, Some(2));
    assert!(!desk.path("other.key").exists());
}

#[test]
fn what_is_wrong_is_said_with_the_file_and_the_field() {
    let desk = Desk::new("wrong");
    let keys = [desk.key("a.key"), desk.key("b.key")];
    desk.root(&keys);
    let module = plain();
    let module = module.to_str().expect("text");
    let seal = format!("seal {module} --manifest @m.json --root @root --key @a.key -o @out.wasm");
    for (field, value, expected) in [
        ("release", json!("1"), "EPOCH.SEQUENCE"),
        ("expires", json!("tomorrow"), "2026-11-21"),
        ("expires", json!("2020-01-01"), "not-before"),
        ("roles", json!(["server"]), "fixed-dialer"),
        ("name", json!("Demo"), "a-z"),
        (
            "capabilities",
            json!({"connect": ["example.com"]}),
            "tcp://",
        ),
        ("colour", json!("red"), "unknown field `colour`"),
    ] {
        let mut manifest = manifest_description("1.1");
        manifest[field] = value;
        desk.describe("m.json", &manifest);
        let (status, said) = desk.watm(&seal);
        assert_eq!(status, Some(2), "{field}: {said}");
        assert!(
            said.contains("m.json: ") && said.contains(expected),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
    }
    assert!(!desk.path("out.wasm").exists());
    for (arguments, expected) in [
        (
            format!("verify {module} --state @state"),
            "no root is trusted yet",
        ),
        (
            format!("verify {module} --root {module} --state @state"),
            "has the wrong magic bytes",
        ),
        (
            "verify @nothing --root @root --state @state".to_owned(),
            "nothing: ",
        ),
        (
            format!("seal {module} --key @a.key -o @out.wasm"),
            "not sealed",
        ),
        (
            format!("root sign @root --key {module}"),
            "is not a key file",
        ),
        ("trust @root.json --state @state".to_owned(), "root.json: "),
    ] {
        let (status, said) = desk.watm(&arguments);
        assert_eq!(status, Some(2), "{arguments}: {said}");
        assert!(said.contains(expected), "{said}");
    }
    // A file that is not a module is examined, and refused.
    let (status, said) = desk.watm("verify @root.json --root @root --state @state");
    assert_eq!(status, Some(1));
    assert!(said.starts_with("accepted  no, not-wasm: "), "{said}");
}

#[test]
fn what_a_module_asks_for_is_approved_taken_back_and_granted_by_a_file() {
    let desk = Desk::new("approved");
    let keys = [desk.key("a.key"), desk.key("b.key")];
    desk.root(&keys);
    desk.seal("1.1", "--key @a.key --key @b.key", "plain.wasm");
    desk.well("trust @root --state @state");
    let dial = "dial @plain.wasm 127.0.0.1:1 --state @state --grants @grants.toml";
    fs::write(desk.path("grants.toml"), "").expect("written");
    // Nobody can be asked.
    let (status, said) = desk.watm_sealed(dial);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("watm trust --approve"), "{said}");
    // Refused by the network, and no longer by its seal.
    let connects = |said: &(Option<i32>, String)| {
        assert_eq!(said.0, Some(1), "{}", said.1);
        assert!(said.1.contains("connection refused"), "{}", said.1);
    };
    desk.well("trust --approve @plain.wasm --state @state");
    let known = desk.json("trust --state @state");
    assert_eq!(known["modules"][0]["approved"]["instances"], 10);
    connects(&desk.watm_sealed(dial));
    desk.well("trust --revoke demo/plain --state @state");
    let (status, said) = desk.watm("trust --revoke demo/plain --state @state");
    assert_eq!(status, Some(2), "{said}");
    assert_eq!(desk.watm_sealed(dial).0, Some(2));
    // A written grant applies, also if it allows less. It does not approve the rest.
    let grant = |text: &str| {
        let text = format!("[\"demo/plain\"]\n{text}\n");
        fs::write(desk.path("grants.toml"), text).expect("written");
    };
    grant("flows = 9");
    let (status, said) = desk.watm_sealed(dial);
    assert_eq!(status, Some(2), "{said}");
    let rest = "than is approved: connect tcp://*.example.com:443, memory-bytes 1048576 (at most 0), \
                cpu-permille 1000 (at most 0), instances 10 (at most 0);";
    assert!(said.contains(rest), "{said}");
    let rest =
        "connect = [\"*.example.com:443\"]\nmemory-mib = 1\ncpu-permille = 500\ninstances = 1";
    grant(&format!("flows = 9\n{rest}"));
    connects(&desk.watm_sealed(dial));
    grant(&format!("flows = 0\n{rest}"));
    let (status, said) = desk.watm_sealed(dial);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("its grant sets flows to 0"), "{said}");
    fs::write(desk.path("grants.toml"), "[\"demo/plain\"]\nflow = 9\n").expect("written");
    let (status, said) = desk.watm_sealed(dial);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("grants.toml: line 2: unknown field `flow`"),
        "{said}"
    );
    // Everything is forgotten.
    desk.well("trust --forget demo/plain --state @state");
    assert_eq!(desk.json("trust --state @state")["modules"], json!([]));
}

#[cfg(unix)]
#[test]
fn files_that_every_user_may_write_are_warned_of() {
    use std::os::unix::fs::PermissionsExt;

    let desk = Desk::new("open");
    desk.root(&[desk.key("a.key"), desk.key("b.key")]);
    desk.seal("1.1", "--key @a.key --key @b.key", "plain.wasm");
    fs::create_dir(desk.path("folder")).expect("made");
    let chmod = |name: &str, mode: u32| {
        fs::set_permissions(desk.path(name), fs::Permissions::from_mode(mode)).expect("ours");
    };
    fs::write(desk.path("grants.toml"), "").expect("written");
    // Independent of the mask of new files.
    for (name, mode) in [("", 0o755), ("folder", 0o755), ("grants.toml", 0o644)] {
        chmod(name, mode);
    }
    let dial = "dial @plain.wasm 127.0.0.1:1 --state @folder/state --grants @grants.toml";
    let warned_of = |said: &str, name: &str| {
        let path = desk.path(name);
        said.contains(&format!("{} is world-writable", path.display()))
    };
    let said = desk.well("trust @root --state @folder/state");
    assert!(!said.contains("world-writable"), "{said}");
    desk.well("trust --approve @plain.wasm --state @folder/state");
    let (_, said) = desk.watm_sealed(dial);
    assert!(!said.contains("world-writable"), "{said}");

    chmod("grants.toml", 0o666);
    let (_, said) = desk.watm_sealed(dial);
    assert!(warned_of(&said, "grants.toml"), "{said}");
    for (name, mode, expected) in [
        ("folder", 0o777, true),
        // In this folder users remove only their own files.
        ("folder", 0o1777, false),
        ("folder/state", 0o666, true),
    ] {
        chmod(name, mode);
        let (_, dialled) = desk.watm_sealed(dial);
        // A later write of the state makes it private again.
        chmod(name, mode);
        let shown = desk.well("trust --state @folder/state");
        assert_eq!(warned_of(&dialled, name), expected, "{dialled}");
        assert_eq!(warned_of(&shown, name), expected, "{shown}");
    }
}
