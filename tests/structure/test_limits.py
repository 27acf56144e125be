"""Checks that no test waits without a time limit for another program."""

import ast
import subprocess

import pytest

from watm_test_support.repository import ROOT

# The functions of `subprocess` that wait for the program's end.
WAITING = {"run", "call", "check_call", "check_output"}


def sources() -> list[str]:
    """Returns every Python file in the repository, tracked or not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    return [name for name in names if (ROOT / name).exists()]


def unlimited(text: str) -> list[int]:
    """Returns lines that use a function of `WAITING` without a `timeout`."""
    tree = ast.parse(text)
    limited = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        # `**options` may contain it.
        if any(keyword.arg in ("timeout", None) for keyword in call.keywords):
            limited.update(map(id, [call.func, *call.args]))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "subprocess"
        and node.attr in WAITING
        and id(node) not in limited
    ]


@pytest.mark.parametrize("name", sources())
def test_a_program_that_is_waited_for_has_a_time_limit(name: str) -> None:
    lines = unlimited((ROOT / name).read_text())
    assert not lines, f"{name}: no `timeout` in lines {lines}"


@pytest.mark.parametrize("call", ["subprocess.run(['true'])", "stack.callback(subprocess.run, ['true'], check=False)"])
def test_a_call_without_a_limit_is_found(call: str) -> None:
    assert unlimited(call) == [1]
    assert unlimited(f"{call[:-1]}, timeout=60)") == []
