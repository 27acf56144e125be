//! Recorded signatures, for a module that asks for them in another order. `world` uses it.

use std::collections::BTreeMap;

use super::world::{done, encoded, read, refused, split};
use watm_component::recording::{Digest, Function, Outcome};
use watm_component::wit::types::ErrorCode;

/// The keys of one instance, in the recording and in this run.
#[derive(Default)]
pub(super) struct Signing {
    keys: BTreeMap<String, Key>,
    /// The names of keys by their handles in the recording; `handles`: in this run.
    recorded: BTreeMap<u32, String>,
    handles: BTreeMap<u32, String>,
    /// The number of handles given in this run.
    given: u32,
}

/// The host's answers about a key, and its signatures.
#[derive(Default)]
struct Key {
    public_key: Vec<u8>,
    schemes: Vec<u16>,
    /// The signatures by the scheme and the message.
    signatures: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Signing {
    /// Learns an import of the recording: its arguments and its outcome.
    pub(super) fn learn(&mut self, function: Function, rest: &[u8]) -> Option<()> {
        if function == Function::PrivateKeyOpen {
            let ((name,), outcome) = split::<(String,), u32>(rest)?;
            if let Outcome::Done(handle) = outcome {
                self.keys.entry(name.clone()).or_default();
                self.recorded.insert(handle, name);
            }
            return Some(());
        }
        match function {
            Function::PrivateKeyPublicKey => {
                let ((handle,), outcome) = split::<(u32,), Vec<u8>>(rest)?;
                if let Outcome::Done(public_key) = outcome {
                    self.recorded(handle)?.public_key = public_key;
                }
            }
            Function::PrivateKeySchemes => {
                let ((handle,), outcome) = split::<(u32,), Vec<u16>>(rest)?;
                if let Outcome::Done(schemes) = outcome {
                    self.recorded(handle)?.schemes = schemes;
                }
            }
            Function::PrivateKeySign => {
                let ((handle, scheme, message), outcome) =
                    split::<(u32, u16, Digest), Vec<u8>>(rest)?;
                if let Outcome::Done(signature) = outcome {
                    let key = encoded(&(scheme, message));
                    self.recorded(handle)?.signatures.insert(key, signature);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn recorded(&mut self, handle: u32) -> Option<&mut Key> {
        self.keys.get_mut(self.recorded.get(&handle)?)
    }

    /// Returns the host's answer in this run: the recorded one, and an error if there is none.
    pub(super) fn answer(&mut self, function: Function, arguments: &[u8]) -> Option<Vec<u8>> {
        if function == Function::PrivateKeyOpen {
            let (name,) = read::<(String,)>(arguments)?;
            if !self.keys.contains_key(&name) {
                return Some(refused(ErrorCode::AccessDenied));
            }
            self.given += 1;
            self.handles.insert(self.given, name);
            return Some(done(&self.given));
        }
        if function == Function::PrivateKeySign {
            let (handle, scheme, message) = read::<(u32, u16, Digest)>(arguments)?;
            let key = self.keys.get(self.handles.get(&handle)?)?;
            return Some(match key.signatures.get(&encoded(&(scheme, message))) {
                Some(signature) => done(signature),
                None => refused(ErrorCode::Other(Some(
                    "the recording does not contain such a signature".to_owned(),
                ))),
            });
        }
        let (handle,) = read::<(u32,)>(arguments)?;
        if function == Function::PrivateKeyDrop {
            self.handles.remove(&handle);
            return Some(done(&()));
        }
        let key = self.keys.get(self.handles.get(&handle)?)?;
        match function {
            Function::PrivateKeyPublicKey => Some(done(&key.public_key)),
            Function::PrivateKeySchemes => Some(done(&key.schemes)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<A: serde::Serialize, T: serde::Serialize>(arguments: A, answer: T) -> Vec<u8> {
        [encoded(&arguments), done(&answer)].concat()
    }

    #[test]
    fn what_was_signed_then_is_signed_again_and_nothing_else() {
        let (message, other) = (Digest::of(b"message"), Digest::of(b"other"));
        let mut signing = Signing::default();
        for (function, rest) in [
            (Function::PrivateKeyOpen, said(("web",), 7u32)),
            (Function::PrivateKeyPublicKey, said((7u32,), vec![1u8, 2])),
            (Function::PrivateKeySchemes, said((7u32,), vec![0x0403u16])),
            (
                Function::PrivateKeySign,
                said((7u32, 0x0403u16, message), vec![3u8, 4]),
            ),
        ] {
            assert_eq!(signing.learn(function, &rest), Some(()));
        }
        let mut answer = |function, arguments: Vec<u8>| signing.answer(function, &arguments);
        let denied = refused(ErrorCode::AccessDenied);
        assert_eq!(
            answer(Function::PrivateKeyOpen, encoded(&("other",))),
            Some(denied)
        );
        assert_eq!(
            answer(Function::PrivateKeyOpen, encoded(&("web",))),
            Some(done(&1u32))
        );
        assert_eq!(
            answer(Function::PrivateKeyPublicKey, encoded(&(1u32,))),
            Some(done(&vec![1u8, 2]))
        );
        assert_eq!(
            answer(Function::PrivateKeySchemes, encoded(&(1u32,))),
            Some(done(&vec![0x0403u16]))
        );
        let sign = Function::PrivateKeySign;
        assert_eq!(
            answer(sign, encoded(&(1u32, 0x0403u16, message))),
            Some(done(&vec![3u8, 4]))
        );
        let none = answer(sign, encoded(&(1u32, 0x0403u16, other))).expect("an answer");
        assert!(read::<Outcome<Vec<u8>>>(&none).is_some_and(|o| matches!(o, Outcome::Refused(_))));
        assert_eq!(answer(sign, encoded(&(7u32, 0x0403u16, message))), None);
        let drop = Function::PrivateKeyDrop;
        assert_eq!(answer(drop, encoded(&(1u32,))), Some(done(&())));
        assert_eq!(
            answer(Function::PrivateKeyPublicKey, encoded(&(1u32,))),
            None
        );
    }
}
