//! Sealed modules: one `.wasm` file that carries the proof of its origin, capabilities and release,
//! so that any channel may deliver it: a mail, a USB stick, a mirror, a torrent. The runtime, the
//! updates and the command `watm` build on this crate.
//!
//! A runtime that does not know seals ignores them, since a seal is a custom section. One that
//! does needs a [`Root`] and nothing else: no registry, no connection, no other file.
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//! use watm_seal::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Once: a root, and a release key that may seal modules whose names begin with `demo/`.
//! let (root_key, release_key) = (PrivateKey::generate()?, PrivateKey::generate()?);
//! let record = RootRecord {
//!     version: 1,
//!     first: None,
//!     epoch: 1,
//!     expires: 4_000_000_000,
//!     threshold: 1,
//!     keys: [root_key.public()].into(),
//!     delegations: vec![Delegation {
//!         name: "release".parse()?,
//!         purpose: Purpose::Seal,
//!         threshold: 1,
//!         keys: [release_key.public()].into(),
//!         names: ["demo/*".parse()?].into(),
//!         ceiling: Capabilities::unlimited(),
//!     }],
//!     revoked: BTreeSet::new(),
//! };
//! let root = Root::trust(SignedRoot::new(record)?.sign(&root_key)?)?;
//!
//! // For each release.
//! let body = b"\0asm\x01\0\0\0";
//! let manifest = Manifest {
//!     root: root.id(),
//!     name: "demo/empty".parse()?,
//!     world: World::WaterV1,
//!     roles: [ModuleRole::Dialer].into(),
//!     release: "1.1".parse()?,
//!     version: "0.1.0".to_owned(),
//!     body_length: 0,
//!     body_sha256: Digest::of(b""),
//!     not_before: 1_700_000_000,
//!     expires: 1_800_000_000,
//!     channel: "stable".parse()?,
//!     audience: None,
//!     min_host: "0.1.0".parse()?,
//!     config_schema: 1,
//!     capabilities: Capabilities::default(),
//!     floors: BTreeMap::new(),
//!     requires: BTreeMap::new(),
//!     source_commit: String::new(),
//!     toolchain: String::new(),
//! };
//! let file = seal(body, manifest, &[], &[release_key])?;
//!
//! // On each host.
//! let mut state = State::default();
//! let verified = verify(&file, &root, &state, &Policy::default(), 1_750_000_000)?;
//! assert_eq!(verified.module(), file);
//! state.accept(&verified);
//! # Ok(())
//! # }
//! ```
//!
//! # The format
//!
//! All integers are little-endian. `u8`, `u16`, `u32`, `u64` have a fixed width; `LEB` is
//! WebAssembly's variable-length `u32` in its shortest form. `lp` is a `u16` length and as many
//! bytes. `text` is an `lp` of printable ASCII. `list` is a `u8` count and as many entries, which
//! ascend strictly. `opt` is a `u8`, 0 or 1, and if it is 1 the field. `name` is a `text` as
//! [`Name`] has it, `version` one with a semantic version, `release` a `u32` epoch and a `u64`
//! sequence. A key is the 32 bytes of an Ed25519 public key. Every field must have exactly this
//! form, with nothing after the last. A version refuses encodings that it does not know.
//!
//! A **file** is
//!
//! | field | bytes | |
//! |---|---|---|
//! | header | 8 | `\0asm` and the version: module or component |
//! | section id | `u8` | 0, a custom section |
//! | section length | `LEB` | |
//! | name length | `LEB` | 9 |
//! | name | 9 | `watm.seal` |
//! | seal | to the section's end | at most 16 KiB |
//! | rest | to the file's end | all other sections, with no seal at the top |
//!
//! The **body**, which the seal covers, is the header and the rest.
//!
//! The **seal** is
//!
//! | field | type | |
//! |---|---|---|
//! | format | `u8` | 1 |
//! | root chain | `lp` | a `u8` count (at most 32) and as many signed roots, each one version above the one before |
//! | manifest | `lp` | |
//! | signatures | `list` of (key, 64 bytes) | at most 16, each over `watm/seal/v1\0` and the manifest |
//!
//! The **manifest** is
//!
//! | field | type | |
//! |---|---|---|
//! | format | `u8` | 1 |
//! | root | 32 | the id of the root |
//! | name | `name` | |
//! | world | `u8` | 1: a component, followed by `text` (`watm:transport/module`) and `version`; 2: WATER v0; 3: WATER v1 |
//! | roles | `u8` | bits: 1 dialer, 2 fixed dialer, 4 listener, 8 relay; not 0 |
//! | release | `release` | |
//! | version | `text` | for people, at most 64 |
//! | body length | `u64` | |
//! | body SHA-256 | 32 | |
//! | not before, expires | `u64`, `u64` | seconds since 1970; the second is the greater |
//! | channel | `name` | |
//! | audience | `opt` `name` | |
//! | oldest host | `version` | |
//! | configuration schema | `u32` | |
//! | capabilities | as below | each label is one name |
//! | floors | `list` of (`name`, `release`) | at most 32, a name once |
//! | requires | `list` of (`name`, `release`) | at most 32, a name once |
//! | source commit | `text` | at most 64 |
//! | toolchain | `text` | at most 128 |
//!
//! **Capabilities** are
//!
//! | field | type | |
//! |---|---|---|
//! | sockets | `list` of (`u8`, `text`) | 1 tcp, 2 udp, 3 packets; label, or a pattern as [`NamePattern`] has it; at most 16 |
//! | connect | `list` of `text` | as [`ConnectPattern`] has them; at most 16 |
//! | powers | `u8` | the sum of 1 host's ciphers, 2 clients' addresses as sources, 4 host's keys, 8 capture |
//! | memory, in bytes | `u64` | |
//! | thousandths of a core | `u32` | |
//! | flows, instances | `u32`, `u32` | |
//!
//! A **signed root** is an `lp` with the record, and a `list` of at most 16 (key, 64 bytes), each
//! signature over `watm/root/v1\0` and the record. A file of its own begins with
//! `watm/root-file/v1\0`. The **record** is
//!
//! | field | type | |
//! |---|---|---|
//! | format | `u8` | 1 |
//! | version | `u32` | from 1 |
//! | first root | 32 | zeros in version 1; then the id: the SHA-256 of `watm/root-id/v1\0` and version 1's record |
//! | epoch | `u32` | not below that of the version before |
//! | expires | `u64` | |
//! | threshold | `u8` | 1 to the number of keys |
//! | keys | `list` of keys | at most 16 |
//! | delegations | `u8` count (at most 16), then by ascending name | |
//! | · name | `name` | |
//! | · purpose | `u8` | 1 modules, 2 freshness notes |
//! | · threshold, keys | `u8`, `list` of keys | |
//! | · names | `list` of `text` | as [`NamePattern`] has them; at most 16 |
//! | · ceiling | capabilities | |
//! | revoked | `list` of keys | at most 64, none of them in use |
//!
//! A **freshness note** is `watm/note-file/v1\0`, an `lp` with the note, and a `list` of at most 16
//! (key, 64 bytes), each signature over `watm/freshness/v1\0` and the note, which is a `u8` 1, the
//! root's id, a `name`, a `release`, and a `u64` with the time.
//!
//! # Signatures
//!
//! Ed25519, verified strictly: keys and points in their one encoding and not of small order, `S`
//! below the order of the group. A key is its own id, so every signature in a file is checked.
//! A file with a bad signature is refused even if that signature would not count. Signatures of
//! keys that the root does not know or has revoked do not count. The signed bytes begin with
//! their purpose, so a signature has one meaning.
//!
//! The signed bytes include the root's id, which stays the same when the root's keys change. A
//! module stays valid through rotations as long as its signers keep their delegation. It is not
//! valid under another root that happens to have the same keys.
//!
//! # Guarantees and their limits
//!
//! [`verify`] lists the order of the checks. A module that it accepts was signed by enough of the
//! keys that the root lets sign this name, and is identical to the signed one to the last bit. It
//! requests no more than its signers may give and the user approved, and is not older than the
//! one this host accepted before.
//!
//! There is no guarantee that two hosts get the same module: an attacker with enough keys can make
//! one for one user. [`Verified::sha256`] can be compared, and [`Policy::pins`] compares it. A
//! module that keeps to its patterns can send everything that it sees to destinations they allow.
//! A host that has lost its state, and whose clock somebody else sets, knows only the
//! [`Policy::floors`] of its own release.
//!
//! # Attacks and their tests
//!
//! The tests are in `runtime/seal/tests/it`; `host` stands for `runtime/tests/it`. Another test
//! checks that each of them exists.
//!
//! | | attack | outcome | tests |
//! |---|---|---|---|
//! | 1 | a bit is flipped | `bad-hash`, `bad-signature`, or it does not parse | `damage::every_flipped_bit_is_refused` |
//! | 2 | bytes or sections added, cut off, a second or later seal | refused | `damage::every_truncation_is_refused`, `damage::what_is_appended_is_refused`, `damage::a_seal_anywhere_else_is_refused`, `damage::a_signed_seal_within_the_body_is_refused` |
//! | 3 | a seal on another body | `bad-hash` | `damage::a_seal_of_another_module_is_refused` |
//! | 4 | the seal taken off | `unsealed`, unless for development, with a warning | `damage::a_module_without_a_seal_needs_the_switch`, `host::attacks::a_4_a_seal_that_was_taken_off_is_missed` |
//! | 5 | module and component exchanged in the header | `bad-hash` | `damage::the_header_is_part_of_what_is_signed` |
//! | 6 | an older release; the state lost | `rollback`, by the state or the floors of the host's release | `attacks::an_older_release_is_refused`, `attacks::the_floors_of_the_host_survive_its_state`, `attacks::a_floor_of_a_module_holds_for_others`, `host::attacks::a_6_an_older_release_is_refused_and_without_its_state_the_host_has_its_floors` |
//! | 7 | nothing new ever comes | `expired`; a running module warns; notes tell earlier | `attacks::an_expired_module_is_not_loaded`, `clock::a_running_module_warns_before_and_after_it_expires`, `notes::a_note_tells_of_a_release_that_did_not_come` |
//! | 8 | the highest number under a stolen key | the next epoch of the root is above it | `attacks::a_new_epoch_recovers_from_the_highest_sequence`, `attacks::a_floor_beyond_the_epoch_is_refused` |
//! | 9 | modules that do not belong together | `requires`, `rollback`: the set as a whole | `set::a_set_is_accepted_or_refused_as_a_whole`, `set::a_floor_or_a_root_of_one_holds_for_those_before_it` |
//! | 10 | another module, role, channel, audience | `wrong-name` | `attacks::another_module_than_the_one_asked_for_is_refused` |
//! | 11 | one key of two stolen | `threshold`; the same key counts once | `delegation::a_threshold_counts_distinct_keys`, `delegation::a_repeated_signature_is_refused` |
//! | 12 | a name or capability that is another's | `delegation` | `delegation::a_team_signs_its_own_names_only`, `delegation::a_ceiling_holds_for_every_capability`, `delegation::a_team_sets_floors_for_its_own_names_only` |
//! | 13 | a revoked key, a root that does not follow | `revoked`, `bad-root` | `roots::a_rotation_in_the_file_is_followed`, `roots::a_root_that_does_not_follow_is_refused` |
//! | 14 | an update that asks for more | `needs-approval`; the old one serves | `attacks::more_capabilities_wait_for_approval`, `host::attacks::a_14_what_asks_for_more_waits_for_its_approval_and_the_old_one_serves` |
//! | 15 | files that are huge, deep, or would take a compiler hours or gigabytes | refused by a count of what they would cost, before they are compiled, within two seconds and 32 MiB; those below the bounds compile within 512 MiB | `damage::sizes_are_bounded`, `strict::lengths_do_not_wrap`, `host::attacks::bombs::a_15_what_is_too_much_for_the_compiler_is_refused_in_no_time`, `host::attacks::bombs::a_15_what_is_refused_costs_no_memory`, `host::attacks::bombs::a_15_what_is_accepted_compiles_within_bounds`, `host::attacks::bombs::a_15_modules_that_work_are_within_bounds` |
//! | 16 | the file changes between verifying and compiling | no effect: one buffer | `damage::the_buffer_is_the_one_that_was_verified`, `host::attacks::a_16_what_is_verified_is_what_is_run_whatever_becomes_of_the_file` |
//! | 17 | compiled code, a poisoned cache | no module; compiled again | `attacks::a_precompiled_module_is_no_module`, `host::attacks::a_17_compiled_code_comes_from_the_compiler_and_a_poisoned_cache_is_not_used` |
//! | 18 | the clock set back or forward | a warning, never an older state | `clock::a_clock_set_back_brings_no_expired_module_back`, `clock::a_clock_once_far_ahead_does_not_brick_the_host` |
//! | 19 | other encodings of keys, signatures, manifests | refused | `ed25519::keys_of_small_order_are_no_keys`, `ed25519::the_second_half_of_a_signature_is_below_the_order`, `parsing::a_manifest_that_is_read_is_written_the_same`, `strict::signatures_stand_in_one_order` |
//! | 20 | a signature that was meant for something else | `bad-signature`: each has its domain | `ed25519::a_signature_for_something_else_is_refused`, `ed25519::each_kind_is_signed_for_itself` |
//! | 21 | a module made to fail until an older one runs | falls back to the module that this process ran before, once, unless that is below a floor by now, and says so | `attacks::a_downgrade_needs_leave_and_keeps_to_the_floors`, `host::attacks::a_crash_loop_leads_to_nothing_that_a_floor_excludes`, `host::swap::a_crash_loop_ends_with_the_module_that_did_well`, `host::water::probation::strangers_do_not_say_which_module_runs` |
//! | 22 | the power is cut | the state before or after | `power::a_power_cut_leaves_the_old_state_or_the_new_one` |
//! | 23 | a signed module misbehaves | held to its imports, sockets, patterns and limits; others live | `host::attacks::a_23_an_import_that_is_not_the_worlds_is_refused_though_it_is_signed`, `host::attacks::a_23_a_module_is_held_to_its_seal`, `host::attacks::a_23_hogs_and_floods_cost_their_own_instance`, `host::attacks::shares::instances_have_their_modules_share_together` |
//! | 24 | another build for one user | shown and pinned by SHA-256; else not prevented | `attacks::a_pinned_file_is_the_only_one`, `attacks::a_number_stands_for_one_module` |
//! | 25 | an old root or note once more | ignored | `roots::an_old_root_changes_nothing`, `notes::an_older_note_changes_nothing` |
//!
//! Remaining risks: attackers who also withhold notes are noticed only when the module expires
//! (7). Attackers who can make every module fail stop a service (21). A module can send everything
//! that it sees to destinations that its patterns allow, and the CPU time of one call counts
//! against its quota only after the call (23). Without a pin, two hosts may run different modules
//! of one release (24).
//!
//! # Panics
//!
//! None that a file can cause.

mod announcement;
mod bytes;
mod capabilities;
mod clock;
mod digest;
mod freshness;
mod key;
mod keyfile;
mod manifest;
mod name;
mod policy;
pub mod private;
mod proof;
mod refused;
mod release;
mod root;
mod sealed;
pub mod state;
mod time;
mod verify;
mod wasm;
mod world;

pub use announcement::Announcement;
pub use capabilities::{Capabilities, Socket, SocketKind};
pub use digest::Digest;
pub use freshness::Note;
pub use key::{PrivateKey, PublicKey};
pub use keyfile::{KeyError, KeyFile};
pub use manifest::{Manifest, ModuleRole};
pub use name::{Name, NamePattern};
pub use policy::{Approval, Policy, Warning};
pub use proof::{Proof, Verified};
pub use refused::{Floor, Refused};
pub use release::Release;
pub use root::{Delegation, Purpose, Root, RootRecord, SignedRoot};
pub use sealed::{MAX_FILE_BYTES, MAX_SEAL_BYTES, Sealed, add_signature, seal};
pub use state::State;
pub use time::{DAY, Moment};
pub use verify::{check_running, verify, verify_set};
pub use watm_types::{ConnectPattern, Network};
pub use world::World;
