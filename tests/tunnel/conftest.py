"""Programs that know proxies, through a tunnel to wireguard-go. What a test needs and does not find is a failure."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "wgclient")]
sys.path.append(str(ROOT / "tests" / "tls"))  # certificates

import coroutines  # noqa: E402
from coroutines import pytest_pyfunc_call  # noqa: E402, F401


def pytest_configure(config) -> None:
    """`-m "not boringtun"` is for where boringtun-cli was not built, which takes minutes."""
    coroutines.pytest_configure(config)
    config.addinivalue_line("markers", "boringtun: needs boringtun-cli, in build/tools")
