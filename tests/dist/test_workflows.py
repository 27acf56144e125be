"""Checks of the workflows: valid, with the least privilege, and with steps that are targets of make."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = Path(sys.executable).parent / "actionlint"
ZIZMOR = Path(sys.executable).parent / "zizmor"
LIMIT = 60

BAD = """\
name: bad
on: pull_request_target
jobs:
  one:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.event.pull_request.title }}
        shel: bash
"""


def judged(*command: object) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)


def test_there_are_workflows():
    assert {file.name for file in FILES} == {"nightly.yml", "release.yml", "tests.yml"}


def test_actionlint_finds_nothing():
    found = judged(ACTIONLINT, "-no-color", *FILES)
    assert found.returncode == 0, found.stdout


def test_zizmor_finds_nothing():
    found = judged(ZIZMOR, "--offline", "--no-progress", *FILES)
    assert found.returncode == 0, found.stdout


def test_both_find_what_is_wrong(tmp_path: Path):
    file = tmp_path / "bad.yml"
    file.write_text(BAD)
    assert 'unexpected key "shel"' in judged(ACTIONLINT, "-no-color", file).stdout
    said = judged(ZIZMOR, "--offline", "--no-progress", file).stdout
    assert "unpinned-uses" in said and "template-injection" in said


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_and_permissions_given_one_by_one(file: Path):
    text = file.read_text()
    uses = re.findall(r"uses: (\S+)", text)
    assert uses and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in uses)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"] and job["timeout-minutes"], name


def targets() -> set[str]:
    made = (ROOT / "Makefile").read_text() + (ROOT / "packaging" / "dist.mk").read_text()
    return set(re.findall(r"^([a-z][\w-]*)(?: [\w-]+)*:", made, re.MULTILINE))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_step_is_a_target_of_make(file: Path):
    jobs = yaml.safe_load(file.read_text())["jobs"].values()
    commands = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    named = set(re.findall(r"\bmake ([a-z][\w-]*)", commands))
    listed = {each.split()[0] for job in jobs for each in job.get("strategy", {}).get("matrix", {}).get("target", [])}
    assert named and named | listed <= targets(), (named | listed) - targets()
