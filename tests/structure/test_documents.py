"""Checks of the documents: valid links, a complete book, and pictures and tables that match their sources."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from watm_test_support.repository import ROOT

BOOK = ROOT / "docs" / "src"
FIGURES = ROOT / "docs" / "figures"
README_LINES = 150

_FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Returns all Markdown files in the repository, tracked or not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and mdBook make them."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def broken(page: Path, text: str) -> list[str]:
    """Returns the links of a text without an existing file or heading."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", text)):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or anchor and anchor not in anchors(target):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


@pytest.mark.parametrize("link", ["[x](no-such-page.md)", "[x](start.md#no-such-heading)", "![x](images/none.svg)"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert broken(BOOK / "start.md", link)


def missing(text: str) -> list[str]:
    """Returns the paths in a text's code spans that do not exist. Build products are exempt."""
    paths = re.findall(r"`((?:wit|runtime|host-python|watm|tests|docs|examples)/[\w./-]*)`", _FENCED.sub("", text))
    return [path for path in paths if not path.startswith(("watm/target", "watm/trust")) and not (ROOT / path).exists()]


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *BOOK.glob("*.md")], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_a_file_that_is_not_there_is_found() -> None:
    assert missing("See `runtime/no/such/file.rs`.")


def test_the_book_has_every_page_once() -> None:
    listed = re.findall(r"\]\((.*?)\)", (BOOK / "SUMMARY.md").read_text())
    assert sorted(listed) == sorted(page.name for page in BOOK.glob("*.md") if page.name != "SUMMARY.md")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def figures(expression: str) -> Any:
    """Returns the value of an expression with the modules of docs/figures."""
    command = [sys.executable, "-c", f"import json, data_path, plots; print(json.dumps({expression}))"]
    done = subprocess.run(command, cwd=FIGURES, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def test_pictures_are_those_of_their_sources() -> None:
    drawn = figures("data_path.draw() | plots.draw(json.loads(plots.RESULTS.read_text()))")
    assert {file.name for file in (BOOK / "images").glob("*.svg")} == drawn.keys()
    for name, content in drawn.items():
        assert (BOOK / "images" / name).read_text() == content, f"{name} is out of date; run `make plots`"


def test_the_page_has_the_published_figures() -> None:
    page = figures("plots.with_tables(plots.PAGE.read_text(), json.loads(plots.RESULTS.read_text()))")
    assert (BOOK / "benchmarks.md").read_text() == page, "docs/src/benchmarks.md is out of date; run `make plots`"


# Error messages, which readers search for.


def messages() -> list[str]:
    """Returns the messages in the tables of the page for troubleshooting."""
    page = (BOOK / "troubleshooting.md").read_text()
    tables = re.findall(r"^\| (?:message|symptom) .*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()]
    found = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    return [message for message in found if " " in message.strip()]


def sources() -> str:
    """Returns all code of the product, with each string on one line."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "runtime", "host-python/python", "watm"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    code = [ROOT / name for name in names if name.endswith((".rs", ".py")) and "/tests/" not in name]
    text = "\n".join(file.read_text() for file in code if file.exists())
    return re.sub(r'\\\n\s*|"\n\s*f?"', "", text).replace('\\"', '"')


def test_messages_are_those_of_the_code() -> None:
    code = sources()
    assert len(messages()) > 20
    for message in messages():
        # An ellipsis or a number stands for a name or an address.
        parts = [part.strip(" :.'\"()") for part in message.split("…")]
        missing_parts = [part for part in parts if len(part) > 5 and part not in code]
        assert not missing_parts, f"no code says {missing_parts}, which docs/src/troubleshooting.md has"


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    rows = re.findall(r"^\| (.*?) \| .* \| .*\|$", (BOOK / "glossary.md").read_text(), re.MULTILINE)[1:]
    terms = [row.lower() for row in rows]
    assert len(terms) > 50 and terms == sorted(set(terms))
