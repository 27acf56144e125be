"""`make bench` itself, in its short form."""

import json
import subprocess
import sys

from conftest import ROOT


def test_the_bench_measures_every_server(tmp_path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, ROOT / "tests" / "bench", "--quick", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    samples = json.loads(output.read_text())["samples"]
    servers = {"native", "watm", "watm-own-aead", "plain"}
    assert {sample["server"] for sample in samples} == servers
    workloads = {sample["workload"] for sample in samples}
    assert len(workloads) == 10
    assert len(samples) == len(servers) * len(workloads) * 2  # pinned and unpinned
    for sample in samples:
        answer = sample["answer"]
        assert answer.get("mb_per_second", answer.get("per_second")) > 0
        assert sample["server_cpu_seconds"] >= 0 and sample["server_rss_mb"] > 10
