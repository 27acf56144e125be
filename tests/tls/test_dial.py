"""The module as a client of other servers."""

import asyncio

import pytest

from watm_test_support.certificates import Authority, Leaf

from .peers import COMPONENT, HOST, LIMIT, WATER, dial, openssl_server, run, written


async def ask(port: int) -> bytes:
    """Returns the answer to a line; empty if there is none."""
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"hello\n")
        try:
            return await reader.readline()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize("module", [COMPONENT, WATER], ids=["component", "water"])
@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_openssl(module, version, authority: Authority, localhost: Leaf, tmp_path) -> None:
    config = {"server": {"roots": authority.pem, "name": "localhost"}}
    option = f"-tls{version.replace('.', '_')}"
    async with openssl_server(tmp_path, localhost.chain, localhost.key, option) as to:
        async with dial(config, f"{HOST}:{to}", tmp_path, module=module) as port:
            assert await ask(port) == b"olleh\n"
            assert await ask(port) == b"olleh\n"


async def test_a_bundle_of_roots_is_a_configuration(authority: Authority, localhost: Leaf, tmp_path) -> None:
    async with openssl_server(tmp_path, localhost.chain, localhost.key) as to:
        async with dial(authority.pem, f"localhost:{to}", tmp_path) as port:
            assert await ask(port) == b"olleh\n"


async def test_a_certificate_is_shown(authority: Authority, localhost: Leaf, tmp_path) -> None:
    alice = authority.sign("alice", names=["alice.test"])
    root = written(authority.pem, tmp_path, "root.pem")
    wanted = ("-Verify", "1", "-CAfile", str(root), "-verify_return_error")
    server = {"roots": authority.pem, "name": "localhost"}
    async with openssl_server(tmp_path, localhost.chain, localhost.key, *wanted) as to:
        async with dial({"server": server | alice.pair}, f"{HOST}:{to}", tmp_path) as port:
            assert await ask(port) == b"olleh\n"
        async with dial({"server": server}, f"{HOST}:{to}", tmp_path) as port:
            assert await ask(port) == b""


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"name": "other.test"}, "it is not for other.test, but for"),
        ({"pins": ["sha256:" + "A" * 43 + "="]}, "is not pinned"),
        ({"roots": None}, "it is not signed by a trusted root (unknown issuer)"),
    ],
)
async def test_the_check_that_failed_is_named(server, reason, authority: Authority, localhost: Leaf, tmp_path) -> None:
    server = {"name": "localhost", "roots": authority.pem} | server
    server["roots"] = server["roots"] or Authority("another").pem
    file = written({"server": server}, tmp_path, "dial.conf")
    async with openssl_server(tmp_path, localhost.chain, localhost.key) as to:
        watm = (COMPONENT.parents[3] / "target" / "release" / "watm", "dial", "--unsealed", COMPONENT)
        said = await run(*watm, f"{HOST}:{to}", "--config", file, say=b"hello\n", until=b"watm: ", status=1)
        assert reason in said
