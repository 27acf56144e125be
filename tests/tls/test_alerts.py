"""Alerts to refused clients, and early data."""

import asyncio
import socket
import ssl

import pytest

from watm_test_support.certificates import Authority, Leaf
from watm_test_support.repository import WATM

from .backends import backend, echo
from .peers import COMPONENT, HOST, LIMIT, WATER, listen, openssl_server, run, written
from .test_listen import VERSIONS, s_client
from .test_revoked import SHAPES, saying


@VERSIONS
async def test_a_client_has_the_certificate_whose_signatures_it_verifies(
    version, authority: Authority, root, tmp_path
) -> None:
    """Checks two certificates for one name, in both orders. A client that accepts both gets the first."""
    leaves = {key: authority.sign("localhost", names=["localhost"], key=key) for key in ("p256", "rsa")}
    option = f"-tls{version.replace('.', '_')}"
    rsa, ecdsa = "RSA-PSS+SHA256:RSA+SHA256", "ECDSA+SHA256"
    for first, second in (("p256", "rsa"), ("rsa", "p256")):
        config = {"certificates": [leaves[first].pair, leaves[second].pair], "no-match": "abort"}
        async with backend(echo) as to, listen(config, to, tmp_path) as port:
            ask = (port, root, option, "-servername", "localhost")
            kinds = {"p256": "Server public key is 256 bit", "rsa": "Server public key is 2048 bit"}
            assert kinds["rsa"] in await s_client(*ask, "-sigalgs", rsa)
            assert kinds["p256"] in await s_client(*ask, "-sigalgs", ecdsa)
            assert kinds[first] in await s_client(*ask, "-sigalgs", f"{rsa}:{ecdsa}")


@SHAPES
@VERSIONS
async def test_a_name_that_nobody_has_is_unrecognized(module, version, localhost: Leaf, root, tmp_path) -> None:
    config = {"certificates": [localhost.pair], "no-match": "abort"}
    option = f"-tls{version.replace('.', '_')}"
    async with backend(echo) as to, saying(config, to, tmp_path, module) as (port, said):
        for asked, why in [
            (("-servername", "other.test"), "no certificate matches the name other.test"),
            (("-noservername",), "the client sent no name"),
        ]:
            answer = await s_client(port, root, option, *asked, status=1)
            assert "SSL alert number 112" in answer
            await said(why)


async def test_the_log_says_in_words_what_is_wrong_with_a_certificate(
    authority: Authority, localhost: Leaf, root, tmp_path
) -> None:
    alice = authority.sign("alice", names=["alice.test"])
    mallory = Authority.pretended(alice).sign("mallory", names=["mallory.test"])
    weak = authority.sign("bob", names=["bob.test"], key="rsa1024")
    rules = {"certificates": "required", "roots": authority.pem}
    config = {"certificates": [localhost.pair], "clients": rules}
    async with backend(echo) as to, saying(config, to, tmp_path) as (port, said):
        for leaf, why in [
            (Leaf(mallory.chain + alice.chain, mallory.key), "it is signed by a certificate that is not a CA"),
            (Leaf(authority.pem, authority.key), "it is a CA certificate"),
            (weak, "an RSA key of 1024 bits, expected 2048 or more"),
        ]:
            shown = written(leaf.pem, tmp_path, "shown.pem")
            chain = ("-cert", shown, "-key", shown, "-cert_chain", shown)
            await s_client(port, root, *chain, "-cipher", "DEFAULT@SECLEVEL=0", status=None)
            await said(f"the certificate: {why}")


async def test_early_data_is_skipped(localhost: Leaf, root, tmp_path) -> None:
    """Checks early data of a client with a session of another server of the same name."""
    session, data = tmp_path / "session", tmp_path / "early"
    option = ("-tls1_3", "-servername", "localhost")
    async with openssl_server(tmp_path, localhost.chain, localhost.key, "-early_data", answers=False) as port:
        command = ("openssl", "s_client", "-connect", f"{HOST}:{port}", *option, "-sess_out", session)
        quiet = asyncio.subprocess.DEVNULL
        client = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=quiet, stderr=quiet)
        async with asyncio.timeout(LIMIT):
            # The file is written when a ticket arrives.
            while not session.exists() or "END SSL SESSION" not in session.read_text():
                await asyncio.sleep(0.05)
        client.kill()
        await client.wait()
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path) as port:
        for size, record in [(100, 16384), (16384, 16384), (16000, 1000)]:
            data.write_bytes(b"e" * size)
            early = ("-early_data", data, "-max_send_frag", str(record))
            said = await s_client(port, root, *option, "-sess_in", session, *early)
            assert "Early data was rejected" in said
            assert "hello\n" in said


@SHAPES
async def test_an_alert_is_read_by_a_client_that_still_sends(
    module, authority: Authority, localhost: Leaf, tmp_path
) -> None:
    """Checks a client without the required certificate. With TLS 1.3 it sends data before it gets the alert."""
    rules = {"certificates": "required", "roots": authority.pem}
    context = ssl.create_default_context(cadata=authority.pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    config = {"certificates": [localhost.pair], "clients": rules}

    def ask(port: int) -> None:
        with socket.create_connection((HOST, int(port)), LIMIT) as tcp:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    tcp.sendall(outgoing.read())
                    incoming.write(tcp.recv(65536))
            tcp.sendall(outgoing.read())
            for _ in range(64):
                tls.write(b"x" * 16384)
                tcp.sendall(outgoing.read())
            while True:
                try:
                    tls.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(tcp.recv(65536))

    async with backend(echo) as to, listen(config, to, tmp_path, module=module) as port:
        for _ in range(5):
            with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
                await asyncio.to_thread(ask, port)


async def test_a_water_module_does_not_forget_who_a_client_is(localhost: Leaf, tmp_path) -> None:
    """Checks that a WATER module refuses `proxy-in`: its host does not learn the client's address,
    and sends no header to the application.
    """
    file = written({"certificates": [localhost.pair], "proxy-in": {"from": "any"}}, tmp_path, "tls.json")
    command = (WATM, "serve", "--unsealed", "--check", "--listen", f"{HOST}:0", "--upstream", f"{HOST}:1")
    said = await run(*command, "--config", file, WATER, status=1)
    assert "proxy-in: a WATER host does not learn the client's address" in said
    assert "good" in await run(*command, "--config", file, COMPONENT)
