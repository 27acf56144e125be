"""The short form of `make bench-shadowsocks`."""

import json
import pathlib
import subprocess
import sys

from watm_test_support.repository import ROOT

METHOD = "chacha20-ietf-poly1305"
SERVERS = ["rust", "component"]


def test_the_bench_measures_every_server(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.shadowsocks.bench", "--rounds", "2", "--megabytes", "4", "--messages", "20"]
    command += ["--method", METHOD, *(part for name in SERVERS for part in ("--server", name))]
    command += ["--tools", ROOT / "build/peers/bin", "--output", output]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    taken = json.loads(output.read_text())
    assert taken["environment"]["commit"]
    assert list(taken["samples"][METHOD]) == SERVERS
    for samples in taken["samples"][METHOD].values():
        assert len(samples) == 2 and all(sample["upload MB/s"] > 0 for sample in samples), samples
    # The minimum and maximum of both rounds.
    assert ".." in done.stdout
