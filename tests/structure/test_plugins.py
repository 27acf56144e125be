"""Tests of the pytest plugins: limits of time, skips for missing requirements, and the output of programs."""

import os
import subprocess
import sys
from pathlib import Path

from watm_test_support import needs

TESTS = """
import asyncio
import subprocess
import sys
import time

import pytest

from watm_test_support import needs

@pytest.mark.limit(1)
def test_that_sleeps():
    time.sleep(60)

@pytest.mark.limit(1)
async def test_that_waits():
    await asyncio.sleep(60)

def test_that_needs_root():
    needs.root("namespaces")

def test_that_starts_a_program():
    subprocess.run(["haproxy", "-v"], timeout=10, check=True)

async def test_that_starts_one_in_a_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.create_subprocess_exec("tor", "--version"))

def test_that_starts_something_unknown():
    subprocess.run(["no-such-program"], timeout=10, check=True)

def test_that_runs_a_program_that_fails():
    subprocess.run([sys.executable, "-c", "import sys; sys.exit('I have ' + 'failed')"], capture_output=True, check=True)
"""
SKIPPED = {
    "test_that_needs_root": "namespaces need root",
    "test_that_starts_a_program": "haproxy is not installed (Debian's package haproxy)",
    "test_that_starts_one_in_a_group": "tor is not installed (Debian's package tor)",
}

def outcomes(folder: Path, **process: object) -> dict[str, str]:
    """Returns pytest's result of each test, on a machine without programs. Options are those of a process."""
    (folder / "conftest.py").write_text('pytest_plugins = ("watm_test_support.coroutines", "watm_test_support.limits", "watm_test_support.needs", "watm_test_support.printed")\n')
    (folder / "test_all.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(folder)]
    environment = {"PATH": str(folder), "WATM_SKIPPED": str(folder / "skipped")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, **process)
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if "test_all.py::" in line]
    found = {rest.split("::")[1].split(" ")[0]: outcome for outcome, rest in lines if outcome in ("PASSED", "FAILED")}
    assert "test_that_sleeps takes longer than 1 s" in done.stdout
    assert "\nI have failed\n" in done.stdout
    return found


def test_as_root_nothing_is_skipped(tmp_path: Path) -> None:
    needs.root("processes of root")
    found = outcomes(tmp_path)
    assert found.pop("test_that_needs_root") == "PASSED"
    assert set(found.values()) == {"FAILED"} and len(found) == 6
    assert not (tmp_path / "skipped").exists()


def test_without_root_what_is_not_there_is_skipped_and_noted(tmp_path: Path) -> None:
    # A user namespace without a mapping has no root.
    leave = (lambda: os.unshare(os.CLONE_NEWUSER)) if os.geteuid() == 0 else None
    found = outcomes(tmp_path, preexec_fn=leave)
    assert set(found) == {
        "test_that_sleeps",
        "test_that_waits",
        "test_that_starts_something_unknown",
        "test_that_runs_a_program_that_fails",
    }
    assert set(found.values()) == {"FAILED"}
    lines = (line.split("\t") for line in (tmp_path / "skipped").read_text().splitlines())
    assert {test.rpartition("::")[2]: reason for test, reason in lines} == SKIPPED
