"""Places in the repository, and what its build makes."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
WATM = ROOT / "target" / "release" / "watm"
MODULES = ROOT / "watm" / "target" / "modules"
