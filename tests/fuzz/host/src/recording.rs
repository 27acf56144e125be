//! A file that is said to be a recording.

use std::sync::LazyLock;

use watm_runtime::{Mode, Module, Recording};

use crate::{check_line, load, with_file};

/// Before everything else: the format, and its version.
const HEAD: &[u8] = b"watm-rec\x02\0";

/// The smallest module that is a component.
static MODULE: LazyLock<Module> =
    LazyLock::new(|| load("watm/target/modules/plain.wasm", "modules"));

/// The first byte says whether the others are the file, or bodies of frames with their length in two
/// bytes before them.
pub fn run(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else {
        return;
    };
    let content = match mode % 2 {
        0 => rest.to_vec(),
        _ => framed(rest),
    };
    with_file(&content, |path| {
        let name = path.display().to_string();
        for mode in [Mode::Exact, Mode::Fitting] {
            let recording = match Recording::open(path) {
                Ok(recording) => recording,
                Err(error) => return check_line(&error, &name),
            };
            let _ = (recording.began(), recording.module(), recording.host());
            assert!(content.starts_with(HEAD));
            if let Err(error) = recording.replay(&MODULE, mode) {
                check_line(&error, &name);
            }
        }
    });
}

fn framed(mut bodies: &[u8]) -> Vec<u8> {
    let mut file = HEAD.to_vec();
    while let Some((length, rest)) = bodies.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (body, rest) = rest.split_at(length.min(rest.len()));
        let mut head = [0; 12];
        head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        let sum = crc32fast::hash(&head[..8]);
        head[8..].copy_from_slice(&sum.to_le_bytes());
        file.extend(head);
        file.extend(body);
        bodies = rest;
    }
    file
}
