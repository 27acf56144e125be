"""The methods, and the implementations that support them."""

import base64

# shadowsocks-libev of Debian.
LIBEV = [
    "aes-128-gcm",
    "aes-192-gcm",
    "aes-256-gcm",
    "chacha20-ietf-poly1305",
    "xchacha20-ietf-poly1305",
]
# shadowsocks-rust, as the Makefile builds it.
RUST_2017 = ["aes-128-gcm", "aes-256-gcm", "chacha20-ietf-poly1305"]
RUST_2022 = [
    "2022-blake3-aes-128-gcm",
    "2022-blake3-aes-256-gcm",
    "2022-blake3-chacha20-poly1305",
]
RUST = RUST_2017 + RUST_2022
# Methods with users.
EIH = RUST_2022[:2]
# Methods that only the module supports.
OTHERS = ["2022-blake3-chacha12-poly1305", "2022-blake3-chacha8-poly1305"]
ALL = LIBEV + RUST_2022 + OTHERS


def key_length(method: str) -> int:
    """Returns the length of a key and of a salt, in bytes."""
    if "128" in method:
        return 16
    return 24 if "192" in method else 32


def password(method: str, seed: int = 1) -> str:
    """Returns a password, or a key, for this method."""
    if method.startswith("2022-"):
        return base64.b64encode(bytes([seed]) * key_length(method)).decode()
    return f"password {seed}"
