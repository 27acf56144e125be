"""The fleet of `examples/fleet`, with fewer hosts than its README has."""

import re
import subprocess

from authority import ROOT

FLEET = ROOT / "target" / "release" / "examples" / "fleet"
README = ROOT / "examples" / "fleet" / "README.md"
HOSTS = 100
# Seconds.
LIMIT = 120


def rounds(text: str) -> list[tuple[str, dict[str, int], dict[str, int]]]:
    """Of each line of a round: what it is, what the updates said, and what runs after it."""
    found = []
    for line in text.splitlines():
        row = re.fullmatch(r"(.+?) {2,}(.+?) {2,}run (.+?) {2,}\d+\.\d s", line)
        if row:
            what, outcomes, running = row.groups()
            found.append((what, counts(outcomes), counts(running)))
    return found


def counts(text: str) -> dict[str, int]:
    return {what: int(count) for count, what in (item.split(" ", 1) for item in text.split(", "))}


def test_the_simulation_is_what_its_readme_shows(plain_registry: str) -> None:
    command = [FLEET, plain_registry, str(HOSTS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    shown = re.search(r"```text\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    expected = rounds(shown)
    assert len(expected) == shown.count(" s\n")
    scale = 1000 // HOSTS
    scaled = [
        (what, *({key: count // scale for key, count in column.items()} for column in columns))
        for what, *columns in expected
    ]
    assert rounds(run.stdout) == scaled
