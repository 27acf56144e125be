"""Failures of `make demo`. `make test-demo` tests its success."""

import pathlib
import subprocess
import sys


def test_a_missing_client_is_named_in_one_line(tmp_path: pathlib.Path) -> None:
    absent = tmp_path / "onetun"
    command = [sys.executable, "-m", "tests.demo", "--onetun", absent]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert str(absent) in line


def test_a_client_that_ends_is_named_with_its_last_words(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "onetun"
    broken.write_text("#!/bin/sh\necho no tunnel today\nexit 3\n")
    broken.chmod(0o755)
    command = [sys.executable, "-m", "tests.demo", "--onetun", broken]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "onetun ended with 3: no tunnel today" in line
