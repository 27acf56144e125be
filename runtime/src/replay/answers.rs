//! Encoded answers of a host, as a recording has them. `world` and `signing` make them.

use serde::Serialize;
use watm_component::recording::{Outcome, encode};
use watm_component::wit::types::ErrorCode;

pub(super) fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(value, &mut bytes);
    bytes
}

pub(super) fn done<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Outcome::Done(value), &mut bytes);
    bytes
}

pub(super) fn refused(code: ErrorCode) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Outcome::<()>::Refused(code), &mut bytes);
    bytes
}
