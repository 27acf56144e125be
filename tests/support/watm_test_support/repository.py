"""Paths in the repository and of its build products."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
WATM = ROOT / "target" / "release" / "watm"
SEAL = [ROOT / "target" / "release" / "watm-seal-packaged", ROOT / "host-python" / "packaging"]
MODULES = ROOT / "watm" / "target" / "modules"
