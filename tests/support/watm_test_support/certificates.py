"""Certificates for tests."""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509 import ocsp
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Leaf:
    """A certificate and its key, in PEM."""

    chain: str
    key: str

    @property
    def pair(self) -> dict[str, str]:
        """The certificate as an entry of the configuration."""
        return {"chain": self.chain, "key": self.key}

    @property
    def pem(self) -> str:
        return self.chain + self.key


class Authority:
    """Makes a root."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
            + ("encipher_only", "decipher_only"),
            False,
        )
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.key = _pem(self._key)

    @classmethod
    def pretended(cls, leaf: Leaf) -> "Authority":
        """Makes an issuer whose certificate is not an authority's."""
        authority = cls.__new__(cls)
        authority._key = serialization.load_pem_private_key(leaf.key.encode(), None)
        authority._certificate = x509.load_pem_x509_certificate(leaf.chain.encode())
        authority._name = authority._certificate.subject
        return authority

    def sign(
        self,
        name: str,
        *,
        names: list[str],
        addresses: list[str] | None = None,
        key: str = "p256",
        until: datetime.timedelta = DAY,
    ) -> Leaf:
        """Makes a certificate for these DNS names and addresses, with this common name and lifetime."""
        private = {
            "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
            "ed25519": ed25519.Ed25519PrivateKey.generate,
            "rsa": lambda: rsa.generate_private_key(65537, 2048),
            "rsa1024": lambda: rsa.generate_private_key(65537, 1024),
        }[key]()
        subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        subjects += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses or []]
        builder = _builder(_name(name), self._name, private.public_key(), until)
        builder = builder.add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Leaf(
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            _pem(private),
        )

    def revoke(self, *leaves: Leaf, until: datetime.timedelta = DAY) -> str:
        """Makes a revocation list of these, in PEM, with this lifetime."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - 2 * DAY).next_update(now + until)
        builder = builder.add_extension(x509.CRLNumber(1), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        for leaf in leaves:
            number = x509.load_pem_x509_certificate(leaf.chain.encode()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now - DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def vouch(
        self,
        leaf: Leaf,
        *,
        since: datetime.timedelta = DAY,
        until: datetime.timedelta | None = DAY,
        revoked: bool = False,
    ) -> bytes:
        """Makes an OCSP response, in DER, for a good or revoked certificate."""
        now = datetime.datetime.now(datetime.UTC)
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=x509.load_pem_x509_certificate(leaf.chain.encode()),
            issuer=self._certificate,
            algorithm=hashes.SHA256(),
            cert_status=ocsp.OCSPCertStatus.REVOKED if revoked else ocsp.OCSPCertStatus.GOOD,
            this_update=now - since,
            next_update=None if until is None else now + until,
            revocation_time=now - DAY if revoked else None,
            revocation_reason=None,
        )
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, self._certificate)
        response = builder.sign(self._key, hashes.SHA256())
        return response.public_bytes(serialization.Encoding.DER)


def _pem(key) -> str:
    kind = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*kind).decode()


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key, until: datetime.timedelta = DAY
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - DAY).not_valid_after(now + until)
