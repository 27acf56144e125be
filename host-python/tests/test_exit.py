"""The interpreter's exit at any moment, with open servers and connections."""

import subprocess
import sys

import pytest

from watm_test_support.wgclient import BINARY
from watm_test_support.wireguard_server import Keys

PROGRAM = """
import asyncio, sys
import mitmproxy_watm

async def echo(stream):
    print("connected", flush=True)
    while data := await stream.read(65535):
        stream.write(data)
        await stream.drain()

async def main():
    global server  # outlives the loop
    server = await mitmproxy_watm.start_server("wireguard", "127.0.0.1", 0, config=sys.argv[1],
        handle_tcp_stream=echo, handle_udp_stream=echo)
    print(server.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
{ending}
"""

ENDINGS = ["", "sys.exit(0)", "import threading; threading.Thread(target=sys.exit).start()", "del server"]


@pytest.mark.parametrize("round", range(5))
@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_with_a_server_and_a_busy_connection(ending, round):
    keys = Keys.new()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(ending=ending), keys.config],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        port = int(program.stdout.readline())
        options = keys.client_options(port)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        client = subprocess.Popen(
            [str(BINARY), "echo", "--messages=1000000", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert program.stdout.readline() == "connected\n"
            _, errors = program.communicate("\n", timeout=20)
        finally:
            client.kill()
            client.wait()
    assert (program.returncode, errors) == (0, "")
