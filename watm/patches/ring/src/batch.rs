//! Several texts in one call of the host, which costs as much as a call for one.
//!
//! boringtun encrypts and decrypts one datagram at a time. A caller that has many of them decrypts them
//! ahead of boringtun, and encrypts them after it. The results are the same: the cipher depends on
//! nothing but the key, the nonce and the text.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use watm_core::crypto::{AeadKey, Opened, Text};

/// The length of a tag in bytes.
const TAG_LEN: usize = 16;

/// The key and the nonce of a text that [`seal_later`] has left plain.
pub struct Left {
    /// The key.
    pub key: Arc<dyn AeadKey>,
    /// The nonce, which is used up.
    pub nonce: [u8; 12],
}

/// Texts that were decrypted ahead.
pub struct Ahead {
    key: Arc<dyn AeadKey>,
    texts: Vec<Text>,
    opened: Opened,
}

/// The text that [`open`] opens.
struct Opening {
    /// The texts that were decrypted ahead, and the number of this one.
    ahead: Option<(Rc<Ahead>, usize)>,
    /// The key of the host that has opened it.
    key: Option<Arc<dyn AeadKey>>,
}

thread_local! {
    /// Inside [`seal_later`]: the text that is left, if one is.
    static LEFT: RefCell<Option<Option<Left>>> = const { RefCell::new(None) };
    /// Inside [`open`].
    static OPENING: RefCell<Option<Opening>> = const { RefCell::new(None) };
}

/// Runs `work`. The first text that it would have the host encrypt stays plain, with a tag of zeros. Such
/// a text has no associated data. Returns what seals it.
pub fn seal_later<T>(work: impl FnOnce() -> T) -> (T, Option<Left>) {
    LEFT.set(Some(None));
    let result = work();
    (result, LEFT.take().flatten())
}

/// Leaves a text for later, inside [`seal_later`]. Returns false otherwise.
pub(crate) fn leave(key: &Arc<dyn AeadKey>, nonce: [u8; 12]) -> bool {
    LEFT.with_borrow_mut(|left| match left {
        Some(left @ None) => {
            let key = Arc::clone(key);
            *left = Some(Left { key, nonce });
            true
        }
        _ => false,
    })
}

impl Ahead {
    /// Decrypts the texts of a buffer. They follow each other, and have no associated data.
    pub fn open(key: Arc<dyn AeadKey>, texts: Vec<Text>, buffer: &[u8]) -> Rc<Ahead> {
        let opened = key.open_all(&texts, buffer);
        Rc::new(Ahead { key, texts, opened })
    }
}

/// Runs `work`, which decrypts one text at most. `ahead` has it, as the text of this number, if it was
/// decrypted ahead. Returns the key of the host that has opened the text, then or now.
pub fn open<T>(
    ahead: Option<(Rc<Ahead>, usize)>,
    work: impl FnOnce() -> T,
) -> (T, Option<Arc<dyn AeadKey>>) {
    OPENING.set(Some(Opening { ahead, key: None }));
    let result = work();
    (result, OPENING.take().and_then(|opening| opening.key))
}

/// Copies the plaintext of a text that was decrypted ahead to the start of `in_out`, which is its
/// ciphertext and tag. Returns true if it is authentic, and `None` if it was not decrypted ahead.
pub(crate) fn take(key: &Arc<dyn AeadKey>, nonce: &[u8; 12], in_out: &mut [u8]) -> Option<bool> {
    OPENING.with_borrow_mut(|opening| {
        let (ahead, number) = opening.as_mut()?.ahead.take()?;
        let text = ahead.texts.get(number)?;
        // Another session may have the index by now.
        let same = Arc::ptr_eq(key, &ahead.key) && text.nonce == *nonce && text.len == in_out.len();
        if !same {
            return None;
        }
        let authentic = *ahead.opened.authentic.get(number)?;
        if authentic {
            let length = in_out.len().checked_sub(TAG_LEN)?;
            let plain = ahead.opened.buffer.get(text.begin..)?.get(..length)?;
            in_out[..length].copy_from_slice(plain);
        }
        Some(authentic)
    })
}

/// Notes the key that opens a text, inside [`open`].
pub(crate) fn note(key: &Arc<dyn AeadKey>) {
    OPENING.with_borrow_mut(|opening| {
        if let Some(opening) = opening {
            opening.key = Some(Arc::clone(key));
        }
    });
}
