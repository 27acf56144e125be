"""Captures that Wireshark opens without settings: TLS secrets, rotated files, begun and ended while mitmproxy runs."""

import asyncio
import contextlib
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from watm_test_support import needs
from watm_test_support.mitmproxy_programs import Program, start
from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT
from watm_test_support.sniffer import pages
from watm_test_support.wireguard_server import Keys

from .ends import LIMIT, curl, written

WATM = ROOT / "target" / "release" / "watm"
WIREGUARD = ROOT / "watm" / "target" / "modules" / "wireguard.wasm"
INTERCEPTED = "10.9.8.7"
CONVERSATION = [["GET", ""], ["", "200"]]


@contextlib.asynccontextmanager
async def mitmdump(folder: Path, mode: str) -> AsyncIterator[tuple[Program, str]]:
    """Runs mitmdump, which answers for every host. Yields it with the address of a SOCKS5 proxy into its tunnel."""
    keys, port, proxy = Keys.new(), free_port(), free_port()
    written(folder, "server.conf", keys.config)
    options = ["--mode", f"watm:wireguard?config={folder}/server.conf{mode}@127.0.0.1:{port}"]
    options += ["--set", "upstream_cert=false", "--set", "connection_strategy=lazy"]
    async with start("mitmdump-watm", folder, *options) as program:
        await program.port()
        given = keys.client_options(port)
        conf = written(
            folder,
            "client.conf",
            f"[Interface]\nPrivateKey = {given['private_key']}\nAddress = 10.0.0.1/32\n"
            f"[Peer]\nPublicKey = {given['peer_public_key']}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:{port}\n",
        )
        conf.chmod(0o600)
        command = [WATM, "tunnel", conf, "--unsealed", "--state", folder / "state.json", "--module", WIREGUARD]
        command += ["--socks5", f"127.0.0.1:{proxy}"]
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL)
        try:
            async with asyncio.timeout(LIMIT):
                await answering(proxy)
            yield program, f"127.0.0.1:{proxy}"
        finally:
            process.terminate()
            await process.wait()


async def answering(port: int) -> None:
    """Waits until something listens on this port."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            return writer.close()


async def fetch(proxy: str, *options: str) -> None:
    """Fetches a page through TLS that mitmproxy intercepts."""
    code, page = await curl("-k", "--socks5", proxy, f"https://{INTERCEPTED}/seen", *options)
    assert code == 0 and "/seen" in page, (code, page)


async def comments(path: Path) -> str:
    """Returns what tshark's companion says about the interfaces of a file."""
    process = await asyncio.create_subprocess_exec("capinfos", path, stdout=PIPE, stderr=DEVNULL)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


@pytest.mark.parametrize("version", ["--tlsv1.3", "--tls-max=1.2"])
async def test_wireshark_shows_intercepted_http_in_the_clear_without_settings(tmp_path, version) -> None:
    packets = tmp_path / "inner.pcapng"
    async with mitmdump(tmp_path, f"&pcap={packets}") as (_, proxy):
        await fetch(proxy, "--http1.1", *version.split("="))
    assert await pages(packets) == CONVERSATION
    assert "peer " in await comments(packets)


async def test_each_file_of_a_rotation_opens_and_the_oldest_are_removed(tmp_path) -> None:
    async with mitmdump(tmp_path, f"&pcap={tmp_path}/inner.pcapng&pcap_size=256KiB&pcap_files=2") as (_, proxy):
        sent = tmp_path / "sent"
        sent.write_bytes(bytes(300_000))
        for _ in range(3):
            await fetch(proxy, "--http1.1", "--data-binary", f"@{sent}")
        await fetch(proxy, "--http1.1")
    files = sorted(tmp_path.glob("inner-*.pcapng"))
    assert len(files) == 2 and not (tmp_path / "inner-0001.pcapng").exists()
    assert all(file.stat().st_size <= 256 << 10 for file in files)
    for file in files:
        assert "peer " in await comments(file)
    assert (await pages(files[-1]))[-2:] == CONVERSATION


async def test_a_capture_begins_and_ends_by_command(tmp_path) -> None:
    packets = tmp_path / "later.pcapng"
    async with mitmdump(tmp_path, "") as (program, proxy):
        await fetch(proxy, "--http1.1")
        assert "No such file" in await program.ask(command=f"watm.capture.start wireguard {tmp_path}/none/a.pcapng")
        await program.ask(command=f"watm.capture.start wireguard {packets}")
        again = await program.ask(command=f"watm.capture.start wireguard {tmp_path}/b.pcapng")
        assert "stop it first" in again
        await fetch(proxy, "--http1.1")
        await program.ask(command="watm.capture.stop wireguard")
        assert json.loads(await program.ask(command="watm.status.json"))[0]["captures"] == []
        size = packets.stat().st_size
        await fetch(proxy, "--http1.1")
        assert packets.stat().st_size == size
    assert await pages(packets) == CONVERSATION


async def test_a_full_disk_ends_the_capture_and_nothing_else(tmp_path) -> None:
    needs.root("small file systems")
    full = tmp_path / "full"
    full.mkdir()
    mounted = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", "size=64k", "none", full)
    assert await mounted.wait() == 0
    try:
        async with mitmdump(tmp_path, f"&pcap={full}/inner.pcapng") as (program, proxy):
            sent = tmp_path / "sent"
            sent.write_bytes(bytes(300_000))
            await fetch(proxy, "--http1.1", "--data-binary", f"@{sent}")
            await program.wait_for("stopped writing .*inner.pcapng: No space left on device")
            await fetch(proxy, "--http1.1")
        # It ends after a whole packet.
        assert "peer " in await comments(full / "inner.pcapng")
    finally:
        await (await asyncio.create_subprocess_exec("umount", full)).wait()
