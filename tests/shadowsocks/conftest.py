"""Shadowsocks against other people's programs. What a test needs and does not find is a failure."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("shadowsocks", "support")]
# mitmproxy's programs as processes, and the runtimes of WATER.
sys.path += [str(ROOT / folder) for folder in ("host-python/tests", "tests/water", "tests/bench")]

import coroutines  # noqa: E402
from coroutines import pytest_pyfunc_call  # noqa: E402, F401


def pytest_configure(config) -> None:
    """`-m "not rust"` is for where shadowsocks-rust was not built, which takes minutes."""
    coroutines.pytest_configure(config)
    config.addinivalue_line("markers", "rust: needs shadowsocks-rust, in build/tools")
