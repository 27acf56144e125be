"""`make bench` itself, in its short form."""

import json
import os
import pathlib
import subprocess
import sys

from watm_test_support import needs

STUDIES = {
    "traffic": {"native", "watm", "watm-own-aead", "plain"},
    "memory": {"native", "watm"},
    "flows": {"native", "watm"},
    "path": {"native", "watm"},
    "jitter": {"native", "watm"},
    "handshakes": {"native", "watm"},
    "mitmdump": {"native", "watm"},
    "sandbox": {"crate", "watm"},
}
DEVICES = {"tun": {"native", "watm"}, "exec": {"native", "watm"}}
# The titles in the report, where they are not the names of the option.
TITLES = {"flows": "idle flows", "path": "long paths", "sandbox": "the price of the sandbox"}


def test_the_bench_measures_every_server(tmp_path: pathlib.Path) -> None:
    samples = measure(tmp_path / "bench.json", STUDIES)
    assert {s["placement"] for s in samples if s["study"] == "traffic"} == {"pinned", "unpinned"}


def test_the_bench_measures_devices_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        needs.root("devices of this machine")
    before = interfaces()
    samples = measure(tmp_path / "bench.json", DEVICES)
    assert {s["placement"] for s in samples} == {"pinned"}
    assert interfaces() == before


def interfaces() -> set[str]:
    """Returns the names of this machine's interfaces."""
    return {file.name for file in pathlib.Path("/sys/class/net").iterdir()}


def measure(output: pathlib.Path, studies: dict[str, set[str]]) -> list[dict]:
    """Runs studies of the bench. Returns the samples, which are of these servers."""
    command = [sys.executable, "-m", "tests.bench", "--quick", "--studies", ",".join(studies), "--output", output]
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
    assert servers == {TITLES.get(name, name): kinds for name, kinds in studies.items()}
    return samples
