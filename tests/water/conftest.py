"""WATER modules in WATER's own runtime and in ours."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "bench"))
