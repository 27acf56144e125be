"""Make vectors.json: requests by the specifications, made with Python's cryptography.

    pip install cryptography blake3
    python watm/shadowsocks/tests/vectors.py > watm/shadowsocks/tests/vectors.json
"""

import base64
import hashlib
import json
import struct

import blake3
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NOW = 1_790_000_000
PAYLOAD = b"GET / HTTP/1.0\r\n\r\n"
NAME = b"\x03\x0bexample.com\x01\xbb"
IPV6 = b"\x04" + bytes.fromhex("20010db8000000000000000000000001") + struct.pack(">H", 53)


def evp(password: str, length: int) -> bytes:
    key = part = b""
    while len(key) < length:
        part = hashlib.md5(part + password.encode()).digest()
        key += part
    return key[:length]


def hkdf(key: bytes, salt: bytes) -> bytes:
    return HKDF(hashes.SHA1(), len(key), salt, b"ss-subkey").derive(key)


def derive(context: str, key: bytes, salt: bytes) -> bytes:
    return blake3.blake3(key + salt, derive_key_context=f"shadowsocks 2022 {context} subkey").digest(len(key))


def ecb(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def xored(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """The key of XChaCha20 (draft-irtf-cfrg-xchacha, section 2.2), from ChaCha20's block."""
    block = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(64))
    words, constants = struct.unpack("<16I", block), struct.unpack("<4I", b"expand 32-byte k")
    start = constants + struct.unpack("<8I", key) + struct.unpack("<4I", nonce)
    mixed = [(word - first) % 2**32 for word, first in zip(words, start, strict=True)]
    return struct.pack("<8I", *mixed[:4], *mixed[12:])


class XChaCha20Poly1305:
    def __init__(self, key: bytes) -> None:
        self.key = key

    def encrypt(self, nonce: bytes, data: bytes, associated: None) -> bytes:
        inner = ChaCha20Poly1305(hchacha20(self.key, nonce[:16]))
        return inner.encrypt(bytes(4) + nonce[16:], data, associated)


def aead(method: str, key: bytes):
    if "gcm" in method:
        return AESGCM(key)
    return (XChaCha20Poly1305 if method.startswith("x") else ChaCha20Poly1305)(key)


class Sealer:
    def __init__(self, method: str, key: bytes) -> None:
        self.aead = aead(method, key)
        self.length = 24 if method.startswith("x") else 12
        self.count = 0

    def __call__(self, text: bytes) -> bytes:
        nonce = self.count.to_bytes(self.length, "little")
        self.count += 1
        return self.aead.encrypt(nonce, text, None)

    def chunk(self, text: bytes) -> bytes:
        return self(struct.pack(">H", len(text))) + self(text)


def length(method: str) -> int:
    return 16 if "128" in method else 24 if "192" in method else 32


def request_2017(method: str) -> dict:
    key = evp("correct horse", length(method))
    salt = bytes(range(length(method)))
    seal = Sealer(method, hkdf(key, salt))
    stream = salt + seal.chunk(NAME) + seal.chunk(PAYLOAD)
    nonce = bytes(seal.length)
    datagram = salt + aead(method, hkdf(key, salt)).encrypt(nonce, IPV6 + PAYLOAD, None)
    return {"method": method, "password": "correct horse", "stream": stream.hex(), "datagram": datagram.hex()}


def request_2022(method: str, users: bool = False) -> dict:
    size = length(method)
    key, own = bytes(range(100, 100 + size)), bytes(range(200, 200 + size))
    salt = bytes(range(size))
    session = own if users else key
    seal = Sealer(method[len("2022-blake3-") :], derive("session", session, salt))
    name = blake3.blake3(own).digest(16)
    stream = salt + (ecb(derive("identity", key, salt), name) if users else b"")
    variable = NAME + struct.pack(">H", 0) + PAYLOAD[:4]
    stream += seal(b"\0" + struct.pack(">QH", NOW, len(variable))) + seal(variable) + seal.chunk(PAYLOAD[4:])
    header = struct.pack(">QQ", 0x0123456789ABCDEF, 7)
    body = b"\0" + struct.pack(">QH", NOW, 3) + b"pad" + IPV6 + PAYLOAD
    if "gcm" in method:
        datagram = ecb(key, header) + (ecb(key, xored(name, header)) if users else b"")
        subkey = derive("session", session, header[:8])
        datagram += AESGCM(subkey).encrypt(header[4:], body, None)
    else:
        nonce = bytes(range(24))
        datagram = nonce + XChaCha20Poly1305(key).encrypt(nonce, header + body, None)
    entry = {"method": method, "password": base64.b64encode(key).decode(), "stream": stream.hex(), "datagram": datagram.hex()}
    if users:
        entry["users"] = [{"name": "alice", "password": base64.b64encode(own).decode()}]
    return entry


def main() -> None:
    old = ["aes-128-gcm", "aes-192-gcm", "aes-256-gcm", "chacha20-ietf-poly1305", "xchacha20-ietf-poly1305"]
    new = [f"2022-blake3-{name}" for name in ("aes-128-gcm", "aes-256-gcm", "chacha20-poly1305")]
    vectors = [request_2017(method) for method in old] + [request_2022(method) for method in new]
    vectors += [request_2022(method, users=True) for method in new[:2]]
    print(json.dumps(vectors, indent=1))


main()
