"""Shadowsocks against other people's programs."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The runtimes of WATER.
sys.path += [str(ROOT / "tests" / folder) for folder in ("water", "bench")]
