"""`make bench` itself, in its short form."""

import json
import subprocess
import sys

STUDIES = {
    "traffic": {"native", "watm", "watm-own-aead", "plain"},
    "memory": {"native", "watm"},
    "idle flows": {"native", "watm"},
    "long paths": {"native", "watm"},
    "jitter": {"native", "watm"},
    "handshakes": {"native", "watm"},
    "mitmdump": {"native", "watm"},
    "the price of the sandbox": {"crate", "watm"},
}


def test_the_bench_measures_every_server(tmp_path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.bench", "--quick", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    samples = json.loads(output.read_text())["samples"]
    servers: dict[str, set[str]] = {}
    for sample in samples:
        servers.setdefault(sample["study"], set()).add(sample["server"])
        assert sample["measures"], sample
        assert all(measure["value"] >= 0 for measure in sample["measures"]), sample
        rates = [m["value"] for m in sample["measures"] if m["title"].endswith("/s")]
        assert all(rate > 0 for rate in rates), sample
        assert f"{sample['measures'][0]['title']}" in done.stdout
    assert servers == STUDIES
    assert {s["placement"] for s in samples if s["study"] == "traffic"} == {"pinned", "unpinned"}
