"""Private keys that stay in the host."""

import asyncio
import base64
import json
import os
import pathlib
import re
import signal

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import mitmproxy_watm
from watm_test_support.certificates import Authority, Leaf
from watm_test_support.mitmproxy_programs import start
from watm_test_support.repository import WATM

from .backends import backend, echo, reverse
from .memory import of_modules
from .peers import COMPONENT, HOST, LIMIT, WATER, dial, listen, openssl_server, run, serve, written
from .test_listen import s_client

VERSIONS = pytest.mark.parametrize("version", ["1.2", "1.3"])
KEYS = pytest.mark.parametrize("kind", ["p256", "p384", "ed25519", "rsa"])


def kept(leaf: Leaf, folder: pathlib.Path, name: str = "web") -> tuple[dict, tuple[str, str]]:
    """Makes a certificate whose key is in the host. Returns it with the option for the key."""
    key = written(leaf.key, folder, f"{name}.key")
    return {"chain": leaf.chain, "host-key": name}, ("--key", f"{name}={key}")


@KEYS
@VERSIONS
async def test_the_host_signs_for_a_server(kind, version, authority: Authority, root, tmp_path) -> None:
    leaf = authority.sign("localhost", names=["localhost"], key=kind)
    certificate, option = kept(leaf, tmp_path)
    async with backend(echo) as to, listen({"certificates": [certificate]}, to, tmp_path, *option) as port:
        said = await s_client(port, root, f"-tls{version.replace('.', '_')}")
        assert "hello\n" in said
        assert "Verify return code: 0 (ok)" in said


@pytest.mark.parametrize("kind", ["p256", "rsa"])
@VERSIONS
async def test_the_host_signs_for_a_client(kind, version, authority: Authority, localhost, root, tmp_path) -> None:
    mine = authority.sign("a client", names=["client.test"], key=kind)
    certificate, option = kept(mine, tmp_path)
    config = {"server": {"roots": authority.pem, **certificate}}
    wanted = ("-CAfile", str(root), "-Verify", "1", "-verify_return_error", f"-tls{version.replace('.', '_')}")
    async with openssl_server(tmp_path, localhost.chain, localhost.key, *wanted) as to:
        async with dial(config, f"localhost:{to}", tmp_path, *option) as port:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"hello\n")
            async with asyncio.timeout(LIMIT):
                assert await reader.readline() == b"olleh\n"
            writer.close()


async def test_keys_are_chosen_by_name(authority: Authority, root, tmp_path) -> None:
    names = ["one.test", "two.test"]
    pairs = [kept(authority.sign(name, names=[name]), tmp_path, name) for name in names]
    options = [word for _, option in pairs for word in option]
    config = {"certificates": [certificate for certificate, _ in pairs]}
    async with backend(echo) as to, listen(config, to, tmp_path, *options) as port:
        for name in names:
            said = await s_client(port, root, "-servername", name, "-verify_hostname", name)
            assert f"subject=CN = {name}" in said


async def fails(*arguments: str | pathlib.Path) -> str:
    return await run(WATM, "listen", "--unsealed", *arguments, status=None)


async def test_what_is_not_there_is_named(authority: Authority, localhost: Leaf, tmp_path) -> None:
    certificate, option = kept(localhost, tmp_path)
    other = authority.sign("localhost", names=["localhost"])
    (tmp_path / "other").mkdir()
    _, wrong = kept(other, tmp_path / "other")
    config = written({"certificates": [certificate]}, tmp_path, "tls.json")
    place = (f"{HOST}:0", "--config", config)
    said = await fails(COMPONENT, *place)
    assert 'certificates[0].host-key: the host has no key "web" for this module' in said
    said = await fails(COMPONENT, *place, "--key", option[1].replace("web=", "other=", 1))
    assert 'certificates[0].host-key: the host has no key "web" for this module' in said
    said = await fails(COMPONENT, *place, *wrong)
    assert "certificates[0].host-key: does not match the first certificate in chain" in said
    # WATER modules cannot use keys of the host.
    said = await fails(WATER, *place)
    assert "certificates[0].host-key: the host does not support keys" in said
    said = await fails(WATER, *place, *option)
    assert 'a WATER module does not use keys of the host; remove "web"' in said
    said = await fails(COMPONENT.with_name("plain.wasm"), f"{HOST}:0", *option)
    assert 'this component does not use keys of the host; remove "web"' in said
    said = await fails(COMPONENT, *place, "--key", f"web={tmp_path / 'none'}")
    assert "none: No such file" in said
    said = await fails(COMPONENT, *place, "--key", f"web={config}")
    assert "tls.json: no PEM private key found" in said
    twice = written({"certificates": [certificate | {"key": localhost.key}]}, tmp_path, "twice.json")
    said = await fails(COMPONENT, f"{HOST}:0", "--config", twice, *option)
    assert "certificates[0].host-key: expected one of key and host-key" in said


def secrets(leaf: Leaf) -> list[bytes]:
    """Returns all forms in which a key may be in memory."""
    number = load_pem_private_key(leaf.key.encode(), None).private_numbers().private_value
    text = leaf.key.splitlines()[1:-1]
    der = base64.b64decode("".join(text))
    scalar = number.to_bytes(32, "big")
    return [scalar, scalar[::-1], der, *(line.encode() for line in text)]


async def test_no_byte_of_a_key_is_in_the_modules_memory(authority: Authority, tmp_path) -> None:
    leaf = authority.sign("localhost", names=["localhost"])
    certificate, option = kept(leaf, tmp_path)
    for shown, options, is_there in ((certificate, option, False), (leaf.pair, (), True)):
        config = written({"certificates": [shown]}, tmp_path, "tls.json")
        arguments = ("listen", "--unsealed", COMPONENT, f"{HOST}:0", "--config", config, *options)
        async with backend(reverse) as to:
            command = (WATM, *arguments, "--forward", f"{HOST}:{to}")
            process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            try:
                async with asyncio.timeout(LIMIT):
                    line = await process.stderr.readuntil(b"listening on")
                    line += await process.stderr.readline()
                port = int(re.search(rb":(\d+)", line)[1])
                await run("openssl", "s_client", "-connect", f"{HOST}:{port}", status=None)
                memories = of_modules(process.pid)
            finally:
                process.terminate()
                await process.wait()
        # The chain is in it, so it is the right memory.
        begin = leaf.chain.splitlines()[3].encode()
        assert any(begin in memory for memory in memories), [len(memory) for memory in memories]
        found = [secret for secret in secrets(leaf) if any(secret in memory for memory in memories)]
        assert bool(found) == is_there


async def test_watm_serve_takes_another_key_with_its_certificate(authority: Authority, root, tmp_path) -> None:
    leaves = {name: authority.sign(name, names=["localhost"]) for name in ("first", "second")}
    certificate, _ = kept(leaves["first"], tmp_path)
    async with backend(echo) as to:
        async with serve({"certificates": [certificate]}, to, tmp_path, 'keys = { web = "web.key" }') as port:
            assert "subject=CN = first\n" in await s_client(port, root)
            # The key does not match the certificate, so the reload changes nothing.
            kept(leaves["second"], tmp_path)
            os.kill(port.process, signal.SIGHUP)
            await asyncio.sleep(0.5)
            assert "subject=CN = first\n" in await s_client(port, root)
            certificate, _ = kept(leaves["second"], tmp_path)
            written({"certificates": [certificate]}, tmp_path, "module.conf")
            os.kill(port.process, signal.SIGHUP)
            async with asyncio.timeout(LIMIT):
                while "subject=CN = second\n" not in await s_client(port, root):
                    await asyncio.sleep(0.1)


async def test_python(authority: Authority, localhost: Leaf, tmp_path) -> None:
    certificate, _ = kept(localhost, tmp_path)
    mine = authority.sign("a client", names=["client.test"])
    shown, _ = kept(mine, tmp_path, "mine")

    async def handle(stream) -> None:
        stream.write((await stream.read(65536)) + stream.get_extra_info("attributes")["tls.client-cn"].encode())
        await stream.drain()
        stream.close()

    clients = {"certificates": "required", "roots": authority.pem}
    async with await mitmproxy_watm.start_server(
        str(COMPONENT),
        HOST,
        0,
        config=json.dumps({"certificates": [certificate], "clients": clients}),
        keys={"web": tmp_path / "web.key"},
        handle_tcp_stream=handle,
        unsealed=True,
    ) as server:
        port = server.getsockname()[1]

        async def said() -> bytes:
            stream = await mitmproxy_watm.open_connection(
                str(COMPONENT),
                "localhost",
                port,
                config=json.dumps({"server": {"roots": authority.pem, **shown}}),
                keys={"mine": tmp_path / "mine.key"},
                unsealed=True,
            )
            stream.write(b"from ")
            async with asyncio.timeout(LIMIT):
                answer = await stream.read(65536)
            stream.close()
            return answer

        assert await said() == b"from a client"
        config = json.dumps({"server": {"roots": authority.pem, **shown}})
        pairs = {"mine": tmp_path / "mine.key"}
        async with await mitmproxy_watm.start_dialer(str(COMPONENT), config=config, keys=pairs, unsealed=True) as dialer:
            stream = await dialer.open_connection("localhost", port)
            stream.write(b"dialled by ")
            async with asyncio.timeout(LIMIT):
                assert await stream.read(65536) == b"dialled by a client"
            stream.close()
            assert dialer.status().used.host_keys
        status = server.status()
        assert status.used.host_keys
        # The certificate and its key change at once.
        leaf = authority.sign("localhost", names=["localhost"], key="ed25519")
        certificate, _ = kept(leaf, tmp_path, "new")
        config = json.dumps({"certificates": [certificate], "clients": clients})
        with pytest.raises(ValueError, match='host-key: the host has no key "new"'):
            await server.swap(str(COMPONENT), config=config, unsealed=True)
        keys = {"new": tmp_path / "new.key"}
        await server.swap(str(COMPONENT), config=config, keys=keys, probation=0, unsealed=True)
        assert await said() == b"from a client"


async def test_mitmproxy(localhost: Leaf, root, tmp_path) -> None:
    certificate, _ = kept(localhost, tmp_path)
    config = written({"certificates": [certificate]}, tmp_path, "tls.json")
    async with backend(echo) as to:
        options = f"config={config}&host_keys=web={tmp_path / 'web.key'}&to={HOST}:{to}"
        mode = f"watm:{COMPONENT}?{options}@{HOST}:0"
        async with start("mitmdump-watm", tmp_path, "--set", "watm_unsealed=true", "--mode", mode) as program:
            port = int((await program.wait_for(r"server listening at .*:(\d+)")).group(1))
            assert "hello\n" in await s_client(port, root)
