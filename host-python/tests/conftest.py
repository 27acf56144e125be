"""Every test has a bound in time; what a test needs and does not find is a failure."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/wgclient", "tests/support", "host-python/tests")]

from coroutines import pytest_configure, pytest_pyfunc_call  # noqa: E402, F401
