"""A certificate authority that lives as long as the demo."""

import datetime
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make(folder: pathlib.Path, host: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes an authority's certificate, and `host`'s with its key, and returns both paths."""
    authority_key, host_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("WATM demo authority")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    authority = (
        _certificate(authority_name, authority_name, authority_key)
        .add_extension(constraints, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        _certificate(_name(host), authority_name, host_key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    authority_file, host_file = folder / "authority.pem", folder / "host.pem"
    authority_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    host_file.touch(mode=0o600)
    host_file.write_bytes(
        host_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + leaf.public_bytes(serialization.Encoding.PEM)
    )
    return authority_file, host_file


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
