"""The short form of `make bench-tls`."""

import json
import pathlib
import subprocess
import sys

import pytest

from watm_test_support import needs

SERVERS = ["watm", "haproxy"]


@pytest.mark.parametrize("ciphers", ["same", "default"])
def test_the_bench_measures_every_server(ciphers: str, tmp_path: pathlib.Path) -> None:
    for program in ("wrk", "haproxy"):
        needs.program(program)
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.tls.bench", "--quick", "--servers", ",".join(SERVERS), "--workers", "1"]
    command += ["--share", "0", "--connections", "20", "--ciphers", ciphers, "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    taken = json.loads(output.read_text())
    assert taken["ciphers"] == ciphers and taken["environment"]["commit"]
    samples = taken["samples"]["1"]
    assert {title.rpartition(", ")[2] for title in samples} == set(SERVERS) and len(samples) == 10
    assert all(rate > 0 for taken in samples.values() for rate, _ in taken), samples
