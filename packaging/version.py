"""The version and its notes: version.py bump VERSION|check|notes

`bump` writes VERSION into every file that has one, and makes the changelog's *Unreleased* the section of VERSION.
`check` compares all of them. `notes` writes the changelog's section of the version to dist/RELEASE-NOTES.md.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import project

CHANGELOG = project.ROOT / "CHANGELOG.md"
EXAMPLES = sorted((project.ROOT / "examples" / "container").glob("*.yaml"))
"""Files with the name of the image, which has the version in it."""

# Each workspace has its version in [workspace.package], and other crates of the project name it in
# dependencies.
_VERSION = re.compile(r'^(version = )"(\d[^"]*)"$', re.MULTILINE)
_OF_OURS = re.compile(r'^(watm[a-z-]* = \{ (?:path = "[^"]*", )?version = "=?)([^"]*)(")', re.MULTILINE)
_NAME = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")


def manifests() -> list[Path]:
    """The manifests that contain the version."""
    command = ["git", "ls-files", "*Cargo.toml"]
    names = subprocess.run(command, cwd=project.ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    files = [project.ROOT / name for name in names.splitlines() if not name.startswith(("examples/", "tests/", "watm/patches/"))]
    return [file for file in files if versions(file.read_text())]


def versions(text: str) -> set[str]:
    """The places of the version in a manifest."""
    return {found[1] for found in _VERSION.findall(text)} | {found[1] for found in _OF_OURS.findall(text)}


def with_version(text: str, version: str) -> str:
    """The manifest with another version."""
    text = _VERSION.sub(rf'\g<1>"{version}"', text)
    return _OF_OURS.sub(rf"\g<1>{version}\g<3>", text)


def with_section(changelog: str, version: str, day: str) -> str:
    """The changelog with its unreleased changes under a version."""
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        sys.exit(f"CHANGELOG.md has a section {version} already")
    return changelog.replace("## Unreleased\n", f"## Unreleased\n\n## {version} - {day}\n", 1)


def section(changelog: str, name: str) -> str | None:
    """The text of a section, by the beginning of its heading."""
    found = re.search(rf"^## {re.escape(name)}(?: - \S+)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else None


def bump(version: str) -> None:
    if not _NAME.fullmatch(version):
        sys.exit(f"{version} is no version: MAJOR.MINOR.PATCH, and for a preview -NAME")
    changelog = with_section(CHANGELOG.read_text(), version, datetime.now(UTC).strftime("%Y-%m-%d"))
    for file in EXAMPLES:
        file.write_text(re.sub(rf"\b(watm[:-]){re.escape(project.version())}\b", rf"\g<1>{version}", file.read_text()))
    for file in manifests():
        file.write_text(with_version(file.read_text(), version))
    CHANGELOG.write_text(changelog)


def check() -> None:
    expected = {project.version()}
    wrong = [str(file.relative_to(project.ROOT)) for file in manifests() if versions(file.read_text()) != expected]
    if wrong:
        sys.exit(f"not {expected.pop()}: {', '.join(wrong)}")


def notes() -> None:
    changelog = CHANGELOG.read_text()
    text = section(changelog, project.version()) or section(changelog, "Unreleased")
    if not text:
        sys.exit(f"CHANGELOG.md has no section {project.version()}")
    project.DIST.mkdir(exist_ok=True)
    (project.DIST / "RELEASE-NOTES.md").write_text(f"# WATM {project.version()}\n\n{text}\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["bump", version]:
            bump(version)
        case ["check"]:
            check()
        case ["notes"]:
            notes()
        case _:
            sys.exit(__doc__)
