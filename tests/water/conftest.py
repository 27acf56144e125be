"""WATER modules in WATER's own runtime and in ours. What a test needs and does not find is a failure."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("water", "bench", "support")]

from coroutines import pytest_configure, pytest_pyfunc_call  # noqa: E402, F401
