"""mitmproxy's local mode in front of a tunnel, for programs without proxy settings. It hooks into
the sockets of a control group, so the test has its own control group and network.
"""

import asyncio
import pathlib
import secrets
import subprocess
import sys
import time

from watm_test_support import needs

from .ends import LIMIT

FOLDER = pathlib.Path(__file__).parent
# Enters a control group, which becomes the visible root, and adds a route for intercepted traffic.
ENTER = """
set -e
mount -t cgroup2 none "$1"
mkdir "$1/$2"
echo $$ > "$1/$2/cgroup.procs"
shift 2
exec unshare --cgroup --mount sh -e -c '
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
ip link add near type veth peer name far
ip address add 192.0.2.1/24 dev near
ip link set near up
ip link set far up
ip route add default via 192.0.2.2
exec "$@"' sh "$@"
"""
LEAVE = 'mount -t cgroup2 none "$1" && rmdir "$1/$2"'
# mitmproxy starts its helper with sudo, which may be missing on test machines and which root does
# not need.
SUDO = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""


async def test_what_a_program_connects_to_goes_through_a_tunnel(tmp_path) -> None:
    """Checks that rules for applications let nothing pass, because mitmproxy does not name the program on Linux."""
    needs.root("groups of processes")
    sudo = tmp_path / "sudo"
    sudo.write_text(SUDO)
    sudo.chmod(0o755)
    groups = tmp_path / "groups"
    groups.mkdir()
    group = [str(groups), f"watm{secrets.token_hex(4)}"]
    command = ["unshare", "--mount", "--net", "sh", "-c", ENTER, "sh", *group]
    command += [sys.executable, "-m", "tests.upstream.local", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        async with asyncio.timeout(4 * LIMIT):
            said, _ = await process.communicate()
        assert process.returncode == 0, said.decode(errors="replace")
    finally:
        end = time.monotonic() + LIMIT
        while subprocess.run(["unshare", "--mount", "sh", "-c", LEAVE, "sh", *group], check=False, timeout=60).returncode:
            # The helper ends soon after mitmproxy.
            assert time.monotonic() < end, f"processes are left in {group[1]}"
            await asyncio.sleep(0.1)
