"""What `watm serve` writes down of TLS."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from backends import backend, echo
from certificates import Authority, Leaf
from peers import COMPONENT, HOST, LIMIT, WATM, written
from test_listen import s_client


@contextlib.asynccontextmanager
async def served(folder, to: int) -> AsyncIterator[tuple[int, Callable[[str], Awaitable[dict]]]]:
    """Serve tls.json of `folder` before a port: our port, and what waits for the next record of a target."""
    text = (
        f'[logs]\nformat = "json"\n[[listener]]\nmodule = "{COMPONENT}"\n'
        f'config-file = "tls.json"\naddresses = ["{HOST}:0"]\nupstream = "{HOST}:{to}"\nworkers = 1\n'
    )
    command = (WATM, "serve", "--unsealed", written(text, folder, "watm.toml"))
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=asyncio.subprocess.STDOUT)

    async def record(target: str) -> dict:
        while True:
            line = await process.stdout.readline()
            assert line
            with contextlib.suppress(ValueError):
                known = json.loads(line)
                if known["target"] == target:
                    return known

    try:
        async with asyncio.timeout(LIMIT):
            while not (port := re.fullmatch(rb"listening on .*:(\d+)\n", await process.stdout.readline())):
                pass
            yield int(port[1]), record
    finally:
        process.kill()
        await process.wait()


async def test_a_line_for_each_connection_has_what_is_known_of_tls(
    authority: Authority, localhost: Leaf, root, tmp_path
) -> None:
    written({"certificates": [localhost.pair], "alpn": ["h2"]}, tmp_path, "tls.json")
    session = tmp_path / "session"
    async with backend(echo) as to:
        async with served(tmp_path, to) as (port, record):
            said = await s_client(port, root, "-alpn", "h2", "-servername", "localhost", "-sess_out", session)
            # No data before the handshake is over.
            assert "Max Early Data: 0" in said
            await s_client(port, root, "-tls1_3", "-servername", "localhost", "-sess_in", session)
            await s_client(port, root, "-tls1_2", "-noservername")
            lines = [await record("watm::connection") for _ in range(3)]
    whole, resumed, old = lines
    assert whole["sni"] == "localhost" and whole["alpn"] == "h2"
    assert "sni" not in old and "alpn" not in old
    assert [line["tls_version"] for line in lines] == ["TLSv1.3", "TLSv1.3", "TLSv1.2"]
    assert [line["tls_resumed"] for line in lines] == ["no", "yes", "no"]
    assert whole["tls_cipher"] == "TLS_CHACHA20_POLY1305_SHA256"
    assert old["tls_cipher"] == "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    for line in lines:
        assert line["client"].startswith(f"{HOST}:")
        assert (line["bytes_in"], line["bytes_out"], line["reason"]) == (6, 6, "done")
        assert line["duration_ms"] >= 0


async def test_a_line_for_each_that_was_refused_has_the_reason(localhost: Leaf, tmp_path) -> None:
    written({"certificates": [localhost.pair]}, tmp_path, "tls.json")
    async with backend(echo) as to, served(tmp_path, to) as (port, record):
        reader, writer = await asyncio.open_connection(HOST, port)
        ours = writer.get_extra_info("sockname")[1]
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        line = await record("watm::module")
        assert line["level"] == "INFO"
        assert line["message"].startswith(f"{HOST}:{ours}: not TLS")
        writer.close()
