"""`watm tunnel --exec`: programs whose only network is a tunnel to wireguard-go."""

import asyncio
import os
import signal
import sys

import pytest

from watm_test_support import needs

from .programs import INSIDE, LIMIT, peer, tunnel

DNS = f"DNS = {INSIDE}, test\n"


@pytest.fixture(autouse=True)
def _devices() -> None:
    """Skips without root where devices are for root alone."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        needs.root("devices of this machine")


async def run(folder, config: str, *words: str) -> tuple[int | None, str, str]:
    """Runs a program in the tunnel. Returns the exit status and both outputs."""
    process = await tunnel(folder, config, "--exec", "--", *words)
    async with asyncio.timeout(LIMIT):
        output, said = await process.communicate()
    return process.returncode, output.decode(), said.decode()


async def test_a_program_uses_the_tunnel_by_names_and_addresses(tmp_path) -> None:
    async with peer(DNS) as other:
        for host in (INSIDE, "inside.test"):
            status, output, said = await run(tmp_path, other.config, "curl", "-4sS", "--max-time", "20", f"http://{host}/")
            assert (status, output) == (0, "inside"), said


async def test_datagrams_go_through_the_tunnel(tmp_path) -> None:
    script = (
        "import socket\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
        "    s.settimeout(20)\n"
        f"    s.sendto(b'hello', ('{INSIDE}', 7))\n"
        "    print(s.recv(100).decode())\n"
    )
    async with peer() as other:
        status, output, said = await run(tmp_path, other.config, "python3", "-c", script)
        assert (status, output) == (0, "hello\n"), said


async def test_the_exit_status_is_the_programs(tmp_path) -> None:
    async with peer() as other:
        assert (await run(tmp_path, other.config, "sh", "-c", "exit 7"))[0] == 7
        assert (await run(tmp_path, other.config, "/nowhere/at/all"))[0] == 127
        process = await tunnel(
            tmp_path, other.config, "--exec", "--", "sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done"
        )
        async with asyncio.timeout(LIMIT):
            assert await process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 3


async def test_a_file_without_an_address_is_refused(tmp_path) -> None:
    async with peer() as other:
        config = "\n".join(line for line in other.config.splitlines() if not line.startswith("Address"))
        status, _, said = await run(tmp_path, config, "true")
        assert status == 2
        assert "[Interface] has no Address; --exec and --netns need one for the device" in said


async def test_the_programs_of_a_namespace_use_the_tunnel(tmp_path) -> None:
    needs.root("network namespaces")
    holder = await asyncio.create_subprocess_exec(
        *("unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep 600"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await holder.stdout.readline() == b"ready\n"
        async with peer(DNS) as other:
            process = await tunnel(tmp_path, other.config, "--netns", str(holder.pid))
            inside = ("nsenter", "--target", str(holder.pid), "--net")
            try:
                command = ["curl", "-4sS", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", f"http://{INSIDE}/"]
                fetching = await asyncio.create_subprocess_exec(*inside, *command, stdout=asyncio.subprocess.PIPE)
                async with asyncio.timeout(LIMIT):
                    assert (await fetching.communicate())[0] == b"inside"
            finally:
                process.terminate()
                _, said = await process.communicate()
            assert process.returncode == 0, said.decode()
    finally:
        holder.kill()
        await holder.wait()


async def test_a_namespace_that_does_not_exist_is_named(tmp_path) -> None:
    async with peer() as other:
        process = await tunnel(tmp_path, other.config, "--netns", "nowhere")
        _, said = await process.communicate()
        assert process.returncode == 1
        assert "--netns: cannot enter the network namespace /run/netns/nowhere: No such file" in said.decode()


async def test_a_file_names_the_programs_that_may_use_the_tunnel(tmp_path) -> None:
    # Python runs curl, so that both are in the same network.
    script = (
        "import subprocess, urllib.request\n"
        f"url = 'http://{INSIDE}/'\n"
        "print(subprocess.run(['curl', '-4sS', '--max-time', '20', url], capture_output=True, text=True).stdout)\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        print(urllib.request.urlopen(url, timeout=20).read().decode())\n"
        "    except OSError:\n"
        "        print('refused')\n"
    )
    for line, lines in (
        ("AllowedApps = curl", ["inside", "refused", "refused"]),
        ("#@ws:DisallowedApps = Curl.exe", ["", "inside", "inside"]),
        (f"AllowedApps = {os.path.dirname(os.path.realpath(sys.executable))}", ["", "inside", "inside"]),
    ):
        async with peer() as other:
            config = other.config.replace("[Peer]\n", f"[Peer]\n{line}\n")
            status, output, said = await run(tmp_path, config, sys.executable, "-c", script)
            assert status == 0, said
            assert output.splitlines() == lines, (line, output, said)
            complaint = "may not use the tunnel, and its connection to"
            assert said.count(complaint) == 1, said
            assert "name it in AllowedApps of" in said


async def test_a_file_that_names_programs_wrongly_is_refused(tmp_path) -> None:
    async with peer() as other:
        config = other.config.replace("[Peer]\n", "[Peer]\nAllowedApps =\n")
        status, _, said = await run(tmp_path, config, "true")
        assert status == 2
        assert "AllowedApps: missing application name" in said
