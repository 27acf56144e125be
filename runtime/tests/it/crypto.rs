//! The host's ciphers, as a module calls them.

use watm_test_support::{Client, builder, serve, small_limits};

#[test]
fn every_cipher_works_and_refuses_what_is_wrong() {
    let answer = Client::new(&serve("ciphers")).ask("!crypto");
    let one = "20 true None Some(ErrorCode::InvalidArgument) Some(ErrorCode::InvalidArgument) \
               Some(ErrorCode::InvalidArgument) Some(ErrorCode::InvalidArgument)";
    assert_eq!(answer, [one, one, one].join(" "));
}

#[test]
fn ciphers_can_be_refused() {
    let server = builder("no ciphers")
        .host_crypto(false)
        .start()
        .expect("starts");
    assert_eq!(
        Client::new(&server).ask("!crypto"),
        "ErrorCode::AccessDenied"
    );
}

#[test]
fn keys_are_limited() {
    let server = builder("keys")
        .limits(small_limits())
        .start()
        .expect("starts");
    assert_eq!(
        Client::new(&server).ask("!keys"),
        "30 ErrorCode::LimitReached"
    );
}
