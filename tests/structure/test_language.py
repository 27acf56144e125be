"""The language of all pages: plain technical English, as CONTRIBUTING.md describes it."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MOST_WORDS = 40
"""Of a sentence."""

# Each rule: a pattern within a sentence, and what to write. Sentences begin with a capital or a digit.
RULES = {
    r"^(What|Who|Whoever|Whom|Whose|Whether)\b(?!.*\?$)": "put a noun first; a clause is no subject",
    r"^That (a|an|the|it|its|there|they|this|these|nobody|somebody|who|what|is not)\b": "put a noun first; a clause is no subject",
    r"^(Of|As) (what|who|those|one)\b": "begin with the subject",
    r"\b(I(?!/O)|we|We|us|our|Our|ours)\b": "address the reader as 'you', and name the program",
    r"\b(will|shall)\b": "use the present tense",
    r"\b(is|are|was|were) to (be|go|have|say|serve|stay)\b": "write 'must' or 'should', or state the fact",
    r"\b(is|are) (not )?to be had\b": "write 'available'",
    r"\b[Rr]oll-?backs?\b(?<!ollback)(?<!ollbacks)": "write 'rollback'",
    r"\b(gives?|gave|giving) way\b": "write 'makes room' or 'is replaced'",
    r"\b(at hand|nobody else's|of one's own|for ever|beside oneself)\b": "use an everyday term",
    r"\b(simply|obviously|of course|in order to|utili[sz]e|leverage|please|easily)\b": "leave it out",
    r"\bpast (the|all|every|it|them) (upstreams?|tunnels?|module|proxy)\b": "write 'bypasses'",
    r"\b(white|black)list": "write 'allow list' or 'deny list'",
}

_FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """All Markdown in the repository, or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def paragraphs(text: str) -> list[str]:
    """The paragraphs, list items and cells of a page, without code, links and emphasis."""
    text = _FENCED.sub("", text)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "`", text)
    text = text.replace("**", "").replace("*", "")
    text = re.sub(r"^ *(#+|-|\d+\.) ", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\|(.*)\|$", lambda row: "\n" + row[1].replace("|", "\n\n") + "\n", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def sentences(text: str) -> list[str]:
    """The sentences of a page. A semicolon ends one too, as in lists within a cell."""
    return [each for part in paragraphs(text) for each in re.split(r"(?<=[.!?])\)? +(?=[A-Z\d`\"“(])|(?<=;) ", part)]


def faults(text: str) -> list[str]:
    """The sentences that break a rule, with the rule."""
    found = []
    for sentence in sentences(text):
        found += [f"{advice}: {sentence}" for pattern, advice in RULES.items() if re.search(pattern, sentence)]
        if len(sentence.split()) > MOST_WORDS:
            found.append(f"more than {MOST_WORDS} words: {sentence}")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert faults(page.read_text()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "What is refused is counted.",
        "It runs. Who waits is told so.",
        "- Whether it runs is in the log.",
        "| x | Whose key is another's is refused |",
        "We run it.",
        "The file is one of ours.",
        "It will run.",
        "The module is to be swapped.",
        "A roll-back follows.",
        "The old one gives way.",
        "word " * 41 + ".",
    ],
)
def test_a_sentence_that_breaks_a_rule_is_found(wrong: str) -> None:
    assert faults(wrong)


def test_code_and_questions_are_no_faults() -> None:
    assert faults("What runs here?\n\n```console\n$ we will\n```\n\nThe option `what is to be` is off.\n") == []


# Doc comments of Rust and WIT, and docstrings of the Python package.

_DOC = re.compile(r"\s*(///|//!) ?(.*)")
_NO_NOUN = re.compile(r"(Whether|What|Who|Whose|That|Of|As)\b")

LEFT = {
    "examples": 11,
    "runtime": 2,
    "tests": 56,
}
"""How many doc comments in each folder still begin with a clause. These numbers only fall."""


def without_noun(text: str) -> list[str]:
    """The first lines of doc comments that begin with a clause."""
    found, before = [], False
    for line in text.splitlines():
        doc = _DOC.match(line)
        if doc and not before and _NO_NOUN.match(doc[2]):
            found.append(doc[2])
        before = doc is not None
    return found


def counted() -> dict[str, int]:
    """How many doc comments there are to reword, by folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.wit"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    counts: dict[str, int] = {}
    for name in names:
        if (ROOT / name).exists() and (wrong := without_noun((ROOT / name).read_text())):
            folder = name.partition("/")[0]
            counts[folder] = counts.get(folder, 0) + len(wrong)
    return counts


def test_doc_comments_begin_with_a_noun_or_a_verb() -> None:
    more = {folder: count for folder, count in counted().items() if count > LEFT.get(folder, 0)}
    assert not more, f"more than are left to reword: {more}"


def docstrings(text: str) -> list[str]:
    """The docstrings of a file that begin with a clause."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [each for each in found if _NO_NOUN.match(each)]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    files = (ROOT / "host-python" / "python").rglob("*.py")
    assert [f"{file}: {each}" for file in files for each in docstrings(file.read_text())] == []


def test_a_docstring_without_a_noun_is_found() -> None:
    assert docstrings('def a():\n    """Whether it runs."""\n\n\ndef b():\n    """A noun."""\n') == ["Whether it runs."]


def test_a_doc_comment_without_a_noun_is_found() -> None:
    assert without_noun("/// Whether it runs.\n/// What of it.\nfn a() {}\n\n/// A noun.\n/// What follows.\n") == ["Whether it runs."]
