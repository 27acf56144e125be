"""The shortest run of `make soak`, and its check for growth."""

import dataclasses
import re
import subprocess
import sys

import pytest

from tests.soak.verdict import GROWTH_MB, Sample, complaints
from watm_test_support.repository import ROOT


def test_a_short_soak_runs_every_kind_of_client_and_keeps_descriptors_and_threads() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(" actions " in line for line in lines) == 12
    assert "netstack.udp_dropped" in done.stdout and "wireguard.dropped.invalid_mac" in done.stdout
    assert int(re.findall(r"(\d+) restarts", done.stdout)[-1]) > 0
    assert "flat: RSS not judged in so short a run, descriptors and threads equal" in lines
    [clients] = [line for line in lines if line.startswith("clients:")]
    for one in "bulk-up bulk-down echo connect udp-echo ping rebind careless strangers guest".split():
        assert f" {one} " in clients


FLAT = [
    Sample(
        seconds=minute * 60.0,
        rss_mb=60 + minute % 3,
        descriptors=18,
        threads=5,
        flows=100 + minute,
        tasks=100,
        restarts=minute,
        generation=0,
        drops={},
        done=1000 * minute,
        errors=0,
    )
    for minute in range(9)
]


def test_what_goes_up_and_down_is_flat() -> None:
    assert complaints(FLAT) == []


@pytest.mark.parametrize(
    ("field", "last", "complaint"),
    [
        ("rss_mb", 62 + GROWTH_MB, "RSS grew"),
        ("descriptors", 19, "number of descriptors"),
        ("threads", 6, "number of threads"),
        ("generation", 1, "restarted 1 times"),
    ],
)
def test_what_grows_is_not_flat(field: str, last: int, complaint: str) -> None:
    samples = [*FLAT[:6], *(dataclasses.replace(sample, **{field: last}) for sample in FLAT[6:])]
    [found] = complaints(samples)
    assert complaint in found


def test_a_short_run_tells_nothing_about_memory() -> None:
    short = [dataclasses.replace(sample, seconds=sample.seconds / 60) for sample in FLAT]
    grown = [*short[:6], *(dataclasses.replace(sample, rss_mb=100) for sample in short[6:])]
    assert complaints(grown) == []


def test_a_run_that_is_too_short_to_tell_is_not_flat() -> None:
    assert complaints(FLAT[:2])
