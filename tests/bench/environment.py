"""The machine and the tools that the figures depend on."""

import importlib.metadata
import os
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "build" / "wgclient"


class Missing(Exception):
    """Something that the bench needs is not there."""


def check(packages: set[str]) -> None:
    """Raises `Missing` with what is missing and how to get it."""
    if not CLIENT.exists():
        raise Missing(f"{CLIENT} is missing: go -C tests/wgclient build -o ../../build/wgclient .")
    for package in sorted(packages):
        if _version(package) is None:
            raise Missing(f"the Python package {package} is not installed")
    if len(cpus()) < 2:
        raise Missing("the server and the client need a CPU each, and there is one")


def cpus() -> list[int]:
    """The CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def describe() -> dict:
    """What has to stand beside the figures."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cpus": len(cpus()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "mitmproxy_rs": _version("mitmproxy_rs"),
        "mitmproxy_watm": _version("mitmproxy_watm"),
        "load_before": os.getloadavg()[0],
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
