"""The short form of `make bench-workers`."""

import json
import pathlib
import subprocess
import sys


def test_the_bench_measures_every_load_with_one_worker_and_with_two(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.serve.bench", "--quick", "--share", "0", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    taken = json.loads(output.read_text())
    assert taken["environment"]["commit"] and taken["peers"] == 4
    assert len(taken["samples"]) == 4
    for load, by in taken["samples"].items():
        assert [len(by[workers]) for workers in ("1", "2")] == [1, 1], load
        assert all(sample["rate"] > 0 for samples in by.values() for sample in samples), taken
