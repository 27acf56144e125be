"""Clients with a session that the server's rules no longer allow, and with another certificate."""

import asyncio
import contextlib
import datetime
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from watm_test_support.certificates import Authority, Leaf
from watm_test_support.repository import ROOT

from .backends import backend, echo, web
from .peers import LIMIT, listen, written
from .test_listen import SECRET, VERSIONS, s_client

GO_CLIENT = ROOT / "build" / "goclient"

Ask = Callable[[int, pathlib.Path], Awaitable[str]]


@contextlib.asynccontextmanager
async def go_client(version: str, root: pathlib.Path) -> AsyncIterator[Ask]:
    """Runs the HTTPS client in Go. Yields a function that requests a page at a port, with a
    certificate from then on.
    """
    process = await asyncio.create_subprocess_exec(GO_CLIENT, version, root, stdin=-1, stdout=-1)

    async def ask(port: int, shown: pathlib.Path) -> str:
        process.stdin.write(f"https://localhost:{port}/page {shown}\n".encode())
        async with asyncio.timeout(LIMIT):
            return (await process.stdout.readline()).decode().strip()

    try:
        yield ask
    finally:
        process.stdin.close()
        await process.wait()


def config(leaf: Leaf, clients: dict | None) -> dict:
    """Returns the configuration of servers that read each other's tickets."""
    rules = {"clients": clients} if clients else {}
    return {"certificates": [leaf.pair], "tickets": {"secret": SECRET}, **rules}


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    return [tmp_path / "before", tmp_path / "after"]


@VERSIONS
async def test_a_client_whose_certificate_is_revoked_comes_with_its_next_one(
    version, authority: Authority, localhost: Leaf, root, folders
) -> None:
    leaves = [authority.sign("alice", names=["alice.test"]) for _ in range(2)]
    old, new = [written(leaf.pem, folders[0], f"{n}.pem") for n, leaf in enumerate(leaves)]
    rules = {"certificates": "required", "roots": authority.pem}
    revoked = {**rules, "crls": authority.revoke(leaves[0])}
    async with backend(web) as to, go_client(version, root) as ask:
        async with (
            listen(config(localhost, rules), to, folders[0]) as before,
            listen(config(localhost, revoked), to, folders[1]) as after,
        ):
            assert await ask(before, old) == "full page /page"
            assert await ask(before, old) == "resumed page /page"
            assert (await ask(after, old)).startswith("failed ")
            assert (await ask(before, old)).endswith(" page /page")
            assert await ask(after, new) == "full page /page"
            assert await ask(after, new) == "resumed page /page"


@VERSIONS
async def test_a_client_whose_certificate_has_expired_comes_with_its_next_one(
    version, authority: Authority, localhost: Leaf, root, folders
) -> None:
    seconds = 4
    expires = asyncio.get_running_loop().time() + seconds
    leaves = [authority.sign("alice", names=[], until=datetime.timedelta(seconds=n)) for n in (seconds, 3600)]
    old, new = [written(leaf.pem, folders[0], f"{n}.pem") for n, leaf in enumerate(leaves)]
    rules = {"certificates": "required", "roots": authority.pem}
    async with backend(web) as to, go_client(version, root) as ask:
        async with listen(config(localhost, rules), to, folders[0]) as port:
            assert await ask(port, old) == "full page /page"
            # Times in certificates have a resolution of one second.
            await asyncio.sleep(expires + 1.5 - asyncio.get_running_loop().time())
            assert await ask(port, new) == "full page /page"
            assert await ask(port, new) == "resumed page /page"


@VERSIONS
async def test_clients_show_a_certificate_once_one_is_required(
    version, authority: Authority, localhost: Leaf, root, folders
) -> None:
    alice = written(authority.sign("alice", names=["alice.test"]).pem, folders[0], "alice.pem")
    required = {"certificates": "required", "roots": authority.pem}
    session, option = folders[0] / "session", f"-tls{version.replace('.', '_')}"
    async with backend(web) as to, backend(echo) as lines, go_client(version, root) as ask:
        async with (
            listen(config(localhost, None), to, folders[0]) as before,
            listen(config(localhost, required), to, folders[1]) as after,
        ):
            assert await ask(before, alice) == "full page /page"
            assert await ask(before, alice) == "resumed page /page"
            assert await ask(after, alice) == "full page /page"
            assert await ask(after, alice) == "resumed page /page"
            # The facts of an earlier certificate do not apply to a server that requests none.
            assert await ask(before, alice) == "full page /page"
        async with (
            listen(config(localhost, None), lines, folders[0]) as before,
            listen(config(localhost, required), lines, folders[1]) as after,
        ):
            assert "\nNew, " in await s_client(before, root, option, "-sess_out", session)
            shown = (option, "-cert", alice)
            said = await s_client(after, root, *shown, "-sess_in", session, "-sess_out", session)
            assert "\nNew, " in said and "hello\n" in said
            assert "\nReused, " in await s_client(after, root, *shown, "-sess_in", session)
