"""Facts about the machine and the build for benchmarks, and the order and spread of measurements."""

import os
import pathlib
import platform
import statistics
import subprocess
from collections.abc import Iterator, Sequence

from watm_test_support.repository import ROOT

_CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


def described() -> dict:
    """Returns the facts that accompany the figures of every benchmark."""
    return {
        "commit": _commit(),
        "cpu": _model(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "congestion_control": _CONGESTION.read_text().strip(),
        "load_before": os.getloadavg()[0],
    }


def turns(kinds: Sequence[str], number: int) -> Iterator[str]:
    """Yields the order of each round. It varies, so that warm caches or a cool CPU favour no kind."""
    first = number % max(1, len(kinds))
    yield from (*kinds[first:], *kinds[:first])


def spread(values: Sequence[float], digits: int) -> str:
    """Formats the median, the least and the most of several values."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def _commit() -> str:
    """Returns the short commit, with a `+` if files have changed since."""
    command = ["git", "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=+"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    return done.stdout.strip() or "unknown"


def _model() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
