"""The short form of `make bench-tunnel`."""

import itertools
import json
import pathlib
import select
import socket
import subprocess
import sys
import time

import pytest

from watm_test_support import needs
from watm_test_support.paths import path

CLIENTS = ["watm", "watm, BBR", "wireguard-go", "kernel"]


def test_the_bench_measures_every_client_over_bursty_loss(tmp_path: pathlib.Path) -> None:
    needs.root("network namespaces")
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.tunnel.bench", "--quick", "--clients", ";".join(CLIENTS)]
    command += ["--ways", "20 ms, 200 Mbit/s, 1 % lost, bursts", "--congestion", "reno", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr + done.stdout
    taken = json.loads(output.read_text())
    assert taken["environment"]["congestion_control"] == "reno" and taken["environment"]["commit"]
    assert len(taken["bulk"]) == 4
    for title, row in taken["bulk"].items():
        # The kernel's TCP may wait for a repetition until the time is over. It sends all that comes down.
        ended = [kind for kind in CLIENTS if f"{title}, {kind}: did not end" not in done.stderr]
        assert [sample["mbits"] > 0 for kind in ended for sample in row[kind]] == [True] * len(ended), taken
        assert "watm" in ended or "down" in title, done.stderr
    assert [len(taken["round_trip_us"][kind]) for kind in CLIENTS] == [1] * len(CLIENTS)
    assert "Mbit/s that arrive: median [least..most]" in done.stdout


@pytest.mark.parametrize(("options", "longest"), [([], 2.0), (["--burst", "8"], 16.0)])
def test_losses_come_one_by_one_or_in_bursts_of_the_same_share(options: list[str], longest: float) -> None:
    count = 20_000
    with socket.socket(type=socket.SOCK_DGRAM) as sink, socket.socket(type=socket.SOCK_DGRAM) as source:
        sink.bind(("127.0.0.1", 0))
        sink.setblocking(False)
        with path(sink.getsockname()[1], "--lost", "0.1", *options) as between:
            arrived = set()
            for number in range(count):
                source.sendto(number.to_bytes(4, "big"), ("127.0.0.1", between.port))
                if number % 20 == 19:
                    # The pause keeps the kernel's queues short, so that it loses nothing itself.
                    time.sleep(0.001)
                    arrived |= received(sink, wait=False)
            arrived |= received(sink, wait=True)
    runs = [len(list(run)) for lost, run in itertools.groupby(range(count), lambda n: n not in arrived) if lost]
    assert 0.06 < sum(runs) / count < 0.14
    assert longest / 4 < sum(runs) / len(runs) < longest


def received(sink: socket.socket, wait: bool) -> set[int]:
    """Returns the numbers of waiting datagrams, or of all that arrive within a second of each other."""
    numbers = set()
    while select.select([sink], [], [], 1 if wait else 0)[0]:
        numbers.add(int.from_bytes(sink.recv(4), "big"))
    return numbers
