"""Revoked certificates, and OCSP stapling."""

import asyncio
import base64
import contextlib
import datetime
import pathlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from watm_test_support.certificates import DAY, Authority, Leaf
from watm_test_support.repository import WATM

from .backends import backend, echo, web
from .peers import COMPONENT, HOST, LIMIT, WATER, listen, run, written
from .test_listen import s_client

VERSIONS = pytest.mark.parametrize("version", ["1.2", "1.3"])
SHAPES = pytest.mark.parametrize("module", [COMPONENT, WATER], ids=["component", "water"])


@contextlib.asynccontextmanager
async def saying(
    config: dict, to: int, folder: pathlib.Path, module: pathlib.Path = COMPONENT
) -> AsyncIterator[tuple[int, Callable[[str], Awaitable[re.Match]]]]:
    """Runs `watm listen` in front of a port. Yields the port that it listens on, and a function
    that waits for its output.
    """
    file = written(config, folder, "tls.json")
    # The output of a WATER module has this level.
    options = ("--config", file, "--log", "debug")
    command = (WATM, "listen", "--unsealed", module, f"{HOST}:0", "--forward", f"{HOST}:{to}", *options)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    told = ""

    async def said(pattern: str) -> re.Match:
        nonlocal told
        async with asyncio.timeout(LIMIT):
            while not (found := re.search(pattern, told)):
                line = await process.stderr.readline()
                assert line, told
                told += line.decode()
        return found

    try:
        yield int((await said(r"listening on .*:(\d+)\n"))[1]), lambda text: said(re.escape(text))
    finally:
        process.kill()
        await process.wait()


def stapled(leaf: Leaf, response: bytes) -> dict:
    return {"certificates": [leaf.pair | {"ocsp": base64.b64encode(response).decode()}]}


@SHAPES
@VERSIONS
async def test_a_response_of_ocsp_is_stapled(module, version, authority: Authority, localhost, root, tmp_path) -> None:
    config = stapled(localhost, authority.vouch(localhost))
    option = f"-tls{version.replace('.', '_')}"
    async with backend(echo) as to, listen(config, to, tmp_path, module=module) as port:
        said = await s_client(port, root, option, "-status")
        assert "OCSP Response Status: successful" in said
        assert "Cert Status: good" in said
        # A client that does not request a status gets none.
        assert "OCSP Response Status" not in await s_client(port, root, option)


async def test_what_openssl_says_of_a_certificate_is_stapled(authority: Authority, localhost, root, tmp_path) -> None:
    """Checks OCSP requests that identify certificates by SHA-1, the default."""
    key, file = written(authority.key, tmp_path, "root.key"), written(localhost.chain, tmp_path, "leaf.pem")
    number = (await run("openssl", "x509", "-in", file, "-noout", "-serial")).strip().partition("=")[2]
    end = (datetime.datetime.now(datetime.UTC) + DAY).strftime("%y%m%d%H%M%SZ")
    index = written(f"V\t{end}\t\t{number}\tunknown\t/CN=localhost\n", tmp_path, "index.txt")
    response = tmp_path / "response.der"
    asked = ("-issuer", root, "-cert", file, "-noverify", "-respout", response)
    answers = ("-index", index, "-rsigner", root, "-rkey", key, "-CA", root, "-ndays", "1")
    await run("openssl", "ocsp", *asked, *answers)
    chain = Leaf(localhost.chain + authority.pem, localhost.key)
    async with backend(echo) as to, listen(stapled(chain, response.read_bytes()), to, tmp_path) as port:
        assert "Cert Status: good" in await s_client(port, root, "-status")


@SHAPES
@pytest.mark.parametrize(("since", "until", "why"), [(2, -1, "is out of date"), (-1, 2, "is not valid yet")])
async def test_a_response_that_is_not_valid_now_is_kept_back(
    module, since, until, why, authority: Authority, localhost, root, tmp_path
) -> None:
    response = authority.vouch(localhost, since=since * DAY, until=until * DAY)
    async with backend(echo) as to, saying(stapled(localhost, response), to, tmp_path, module) as (port, said):
        assert "OCSP response: no response sent" in await s_client(port, root, "-status")
        await said(f"certificates[0].ocsp: the OCSP response {why}")


async def test_a_response_is_kept_back_once_it_is_too_old(authority: Authority, localhost, root, tmp_path) -> None:
    seconds = 8
    response = authority.vouch(localhost, until=datetime.timedelta(seconds=seconds))
    began = asyncio.get_running_loop().time()
    async with backend(echo) as to, saying(stapled(localhost, response), to, tmp_path) as (port, said):
        async with asyncio.timeout(LIMIT):
            while "no response sent" not in (answer := await s_client(port, root, "-status")):
                assert "Cert Status: good" in answer
        assert asyncio.get_running_loop().time() - began > seconds - 1
        await said("certificates[0].ocsp: the OCSP response is now out of date")


async def test_a_response_that_is_none_for_the_certificate_is_refused(
    authority: Authority, localhost: Leaf, tmp_path
) -> None:
    namesake = Authority("a root")
    whole = Leaf(localhost.chain + authority.pem, localhost.key)
    other = authority.sign("localhost", names=["localhost"])
    for leaf, response, why in [
        (localhost, authority.vouch(other), "does not belong to the first certificate"),
        # Both have the same names and different keys, which the issuer in the chain reveals.
        (whole, namesake.vouch(localhost), "does not belong to the first certificate"),
        (localhost, authority.vouch(localhost, revoked=True), "says that the certificate is revoked"),
        (localhost, authority.vouch(localhost, until=None), "has no end of validity"),
        (localhost, authority.vouch(localhost)[:-1], "expected a successful OCSP response"),
        (localhost, b"hello", "expected a successful OCSP response"),
    ]:
        file = written(stapled(leaf, response), tmp_path, "tls.json")
        command = (WATM, "serve", "--unsealed", COMPONENT, "--listen", f"{HOST}:0", "--upstream", f"{HOST}:1")
        said = await run(*command, "--config", file, "--check", status=None)
        assert f"certificates[0].ocsp: {why}" in said


@VERSIONS
async def test_revoked_clients_are_refused(version, authority: Authority, localhost: Leaf, root, tmp_path) -> None:
    alice, bob = (authority.sign(name, names=[f"{name}.test"]) for name in ("alice", "bob"))
    shown = {name: written(leaf.pem, tmp_path, f"{name}.pem") for name, leaf in (("alice", alice), ("bob", bob))}

    async def page(port: int, name: str) -> str:
        curl = ("curl", "-sS", "--cacert", root, f"--tlsv{version}", "--tls-max", version, "--cert", shown[name])
        return await run(*curl, f"https://localhost:{port}/in", status=None)

    stale = authority.revoke(bob, until=-datetime.timedelta(hours=1))
    elsewhere = Authority("another").revoke()
    for crls, more, alices in [
        (authority.revoke(bob), {}, True),
        # No list mentions her certificate.
        (elsewhere, {}, False),
        (stale, {}, False),
        (stale, {"stale-crls": "accept"}, True),
    ]:
        clients = {"certificates": "required", "roots": authority.pem, "crls": crls, **more}
        config = {"certificates": [localhost.pair], "clients": clients}
        async with backend(web) as to, listen(config, to, tmp_path) as port:
            assert ("page /in" == await page(port, "alice")) == alices
            assert "page" not in await page(port, "bob")
