"""Uploads over paths whose round trip varies. Time limits are many times the usual durations."""

import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from watm_test_support.paths import Path, path
from watm_test_support.spaces import Space, spaces, wireguard_go

from .services import counting, receiving, running, sending
from .test_chains import configs
from .test_paths import ENDS, FETCH, PORTS, tunnel
from .test_paths import PUT as UPLOAD

INSIDE = ENDS[0]
# The ports of the services, inside the tunnel and on this side.
COUNTED, SENT, WEB, BULK = 7000, 7001, 80, 5201
UP, DOWN, HTTP, IPERF = 7010, 7011, 7012, 7013
# Extra delays of each datagram in each direction. Their order is kept.
ALTERNATING, RANDOM = "1ms,8ms", "2ms-20ms"
SIZE = 20_000_000
# Sends bursts of one to five small messages, and then a megabyte, twice. Prints the byte counts of
# the other end and of this one.
PAUSING = """
import random, socket, sys, time
chance = random.Random(1)
sent = 0
def send(size):
    global sent
    stream.sendall(bytes(size))
    sent += size
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as stream:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(2):
        for _ in range(50):
            for _ in range(chance.randint(1, 5)):
                send(chance.randint(20, 400))
            time.sleep(chance.uniform(0.01, 0.06))
        send(1_000_000)
    stream.shutdown(socket.SHUT_WR)
    print(int(stream.recv(100)), sent)
"""
# The time limit in seconds of transfers that take a few.
LIMIT = 40


@pytest.fixture(scope="module")
def jittering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Space, Path]]:
    """Yields a namespace with port forwards of `watm tunnel` to services inside, and the path to them."""
    folder = tmp_path_factory.mktemp("jitter")
    with spaces(2) as (near, far), contextlib.ExitStack() as stack:
        between = stack.enter_context(path(PORTS[0], inside=near.command))
        server, client = configs(INSIDE, "127.0.0.1", PORTS[0], "")
        (folder / "wg0.conf").write_text(client.replace(f":{PORTS[0]}", f":{between.port}"))
        stack.enter_context(wireguard_go(near, far, server, [f"{INSIDE}/24"]))
        stack.enter_context(counting(far, INSIDE, COUNTED))
        stack.enter_context(sending(far, INSIDE, SENT))
        stack.enter_context(receiving(far, INSIDE, WEB))
        stack.enter_context(running(far, "iperf3", "-s", "-J", "-p", BULK, listens=BULK))
        pairs = ((UP, COUNTED), (DOWN, SENT), (HTTP, WEB), (IPERF, BULK))
        forwards = [text for here, there in pairs for text in ("--forward", f"tcp:127.0.0.1:{here}={INSIDE}:{there}")]
        stack.enter_context(tunnel(near, folder, folder / "wg0.conf", *forwards))
        yield near, between


@pytest.mark.parametrize("jitter", [ALTERNATING, RANDOM])
def test_curl_uploads(jittering, tmp_path: pathlib.Path, jitter: str) -> None:
    near, between = jittering
    between.change("--jitter", jitter)
    (tmp_path / "body").write_bytes(bytes(SIZE))
    url = f"http://127.0.0.1:{HTTP}/"
    assert near.run("curl", "-sS", "--max-time", str(LIMIT), "-T", tmp_path / "body", url) == str(SIZE)


@pytest.mark.parametrize("jitter", [ALTERNATING, RANDOM])
def test_iperf3_uploads(jittering, jitter: str) -> None:
    near, between = jittering
    between.change("--jitter", jitter)
    options = ("-t", "4", "-P", "2", "-J", "--get-server-output")
    done = near.run("timeout", str(LIMIT), "iperf3", "-c", "127.0.0.1", "-p", str(IPERF), *options)
    seconds = json.loads(done)["server_output_json"]["intervals"]
    assert all(second["sum"]["bytes"] > 0 for second in seconds), seconds


@pytest.mark.parametrize("jitter", [ALTERNATING, RANDOM])
def test_uploads_with_pauses_go_on(jittering, jitter: str) -> None:
    near, between = jittering
    between.change("--jitter", jitter)
    command = near.command("timeout", LIMIT, sys.executable, "-c", PAUSING, UP)
    uploads = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(10)]
    counts = [upload.communicate()[0].split() for upload in uploads]
    assert all(count and count[0] == count[1] for count in counts), counts


@pytest.mark.parametrize("jitter", [ALTERNATING, RANDOM])
def test_uploads_and_downloads_go_on_at_once(jittering, jitter: str) -> None:
    near, between = jittering
    between.change("--jitter", jitter)
    size = SIZE // 4
    transfers = [
        subprocess.Popen(
            near.command("timeout", LIMIT, sys.executable, "-c", program, port, size), stdout=subprocess.PIPE, text=True
        )
        for program, port in ((UPLOAD, UP), (FETCH, DOWN)) * 2
    ]
    counts = [transfer.communicate()[0].split()[:1] for transfer in transfers]
    assert counts == [[str(size)]] * len(transfers)
