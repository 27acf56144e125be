"""Paths in the repository and of its build products."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "target" / os.environ.get("PROFILE", "release")
"""Programs built with the profile of `make`: benchmarks measure those that ship."""
WATM = PROGRAMS / "watm"
SEAL = [PROGRAMS / "watm-seal-packaged", ROOT / "host-python" / "packaging"]
MODULES = ROOT / "watm" / "target" / "modules"
