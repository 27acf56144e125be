"""Modules from the starters of `watm new`, built by the commands that the starter's page shows."""

import pathlib
import re
import subprocess

from .repository import ROOT, WATM

# Seconds.
BUILD = 600

LANGUAGES = ("rust", "rust-wit", "c")

# A stand-in for `wasm-tools`, with the same result.
COMPONENTIZE = f"cargo run --locked -q --manifest-path {ROOT}/watm/Cargo.toml -p watm-componentize --"


def build(language: str, folder: pathlib.Path, name: str = "own") -> pathlib.Path:
    """Writes and builds a starter in the folder. Returns the module."""
    command = [WATM, "new", name, "--language", language]
    command += ["--checkout", ROOT] if language == "rust" else []
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=BUILD)
    [shown] = re.findall(r"```sh\n(.*?)```", (folder / name / "README.md").read_text(), re.DOTALL)
    steps = shown.partition("watm check")[0]
    steps = re.sub("wasm-tools component new (.*) -o ", rf"{COMPONENTIZE} \1 ", steps)
    # Rust's linker, so that no other one is needed.
    steps = steps.replace("clang ", f"clang -Wall -Wextra -Werror -fuse-ld={_linker()} ")
    subprocess.run(f"set -e\n{steps}", shell=True, cwd=folder / name, check=True, timeout=BUILD)
    return folder / name / f"{name}.wasm"


def _linker() -> pathlib.Path:
    root = subprocess.run(["rustc", "--print", "sysroot"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=BUILD).stdout.strip()
    [linker] = pathlib.Path(root).glob("lib/rustlib/*/bin/gcc-ld/wasm-ld")
    return linker
