"""The short form of `make bench-proxy`."""

import json
import pathlib
import subprocess
import sys

from watm_test_support import needs


def test_the_bench_measures_tcp_udp_and_a_burst(tmp_path: pathlib.Path) -> None:
    needs.root("network namespaces")
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.proxy.bench", "--rounds", "1", "--seconds", "1", "--programs", "watm"]
    done = subprocess.run([*command, "--output", output], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    taken = json.loads(output.read_text())
    assert taken["environment"]["commit"]
    assert len(taken["results"]) == 3
    assert all(values["watm"][0] > 0 for values in taken["results"].values()), taken
