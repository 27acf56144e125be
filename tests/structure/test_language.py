"""The language of pages, comments and texts: plain technical English, as CONTRIBUTING.md describes it."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest
from proselint.checks import __register__ as CHECKS
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from watm_test_support.repository import ROOT

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


def sources(*patterns: str) -> list[str]:
    """The files of these names in the repository, or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    return [name for name in names if (ROOT / name).exists()]


def pages() -> list[Path]:
    """All Markdown in the repository, or about to be."""
    return [ROOT / name for name in sources("*.md")]


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


# Proselint knows what writers of English regard as faults: clichés, doubled words, misspelt phrases. Its
# rules of typography are for print: code has straight quotes.

CheckRegistry().register_many(CHECKS)
_PROSELINT = {**DEFAULT, "checks": {**DEFAULT["checks"], "typography": False}}


def complaints(text: str) -> list[str]:
    """The complaints of proselint about a page, with their paragraphs."""
    return [
        f"{each.check_result.message}: {part}"
        for part in paragraphs(text)
        for each in LintFile("page", part).lint(_PROSELINT)
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_proselint_finds_nothing_in_a_page(page: Path) -> None:
    assert complaints(page.read_text()) == []


def test_proselint_finds_faults() -> None:
    assert len(complaints("It runs. We could of gone.\n\nThe the file.\n")) == 2


# Doc comments of Rust and WIT, and docstrings of Python.

_DOC = re.compile(r"\s*(///|//!) ?(.*)")
_NO_NOUN = re.compile(r"(Whether|What|Who|Whose|That|Of|As)\b")


def without_noun(text: str) -> list[str]:
    """The first lines of doc comments that begin with a clause."""
    found, before = [], False
    for line in text.splitlines():
        doc = _DOC.match(line)
        if doc and not before and _NO_NOUN.match(doc[2]):
            found.append(doc[2])
        before = doc is not None
    return found


def docstrings(text: str) -> list[str]:
    """The docstrings of a file that begin with a clause."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [each for each in found if _NO_NOUN.match(each)]


def clauses(name: str, text: str) -> list[str]:
    """The doc comments or docstrings of a file that begin with a clause."""
    return docstrings(text) if name.endswith(".py") else without_noun(text)


def test_doc_comments_begin_with_a_noun_or_a_verb() -> None:
    names = sources("*.rs", "*.wit", "*.py")
    assert names
    assert [f"{name}: {each}" for name in names for each in clauses(name, (ROOT / name).read_text())] == []


HEADS = {
    ".rs": r"//! \S",
    ".go": r"(//go:build .*\n\n)?// \S",
    ".js": r"// \S",
    ".css": r"/\* \S",
    ".py": r"(#!.*\n)?r?\"\"\"\S",
    ".pyi": r"\"\"\"\S",
    ".sh": r"#!.*\n# \S",
}
"""The beginning of a file with its purpose, by the ending of its name."""


def without_head(names: list[str]) -> list[str]:
    """Returns the files of these that do not open with their purpose. Empty files need none."""
    texts = {name: (ROOT / name).read_text() for name in names}
    return [name for name, text in texts.items() if text and not re.match(HEADS[Path(name).suffix], text)]


def test_source_files_open_with_their_purpose() -> None:
    names = sources(*(f"*{ending}" for ending in HEADS))
    assert names
    assert without_head(names) == []


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("a.rs", "use std::fs;\n\n//! Too late.\n", "//! Its purpose.\n"),
        ("a.go", "package main\n", "// Its purpose.\n\npackage main\n"),
        ("a.py", "import ast\n", '"""Its purpose."""\n'),
        ("a.sh", "#!/bin/sh\nset -eu\n", "#!/bin/sh\n# Its purpose.\n"),
    ],
)
def test_a_file_without_its_purpose_is_found(name: str, wrong: str, right: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(wrong)
    assert without_head([str(path)]) == [str(path)]
    path.write_text(right)
    assert without_head([str(path)]) == []


def test_a_docstring_without_a_noun_is_found() -> None:
    assert docstrings('def a():\n    """Whether it runs."""\n\n\ndef b():\n    """A noun."""\n') == ["Whether it runs."]


def test_a_doc_comment_without_a_noun_is_found() -> None:
    assert without_noun("/// Whether it runs.\n/// What of it.\nfn a() {}\n\n/// A noun.\n/// What follows.\n") == ["Whether it runs."]


# Strings of the programs: errors, log lines, help.

ARCHAIC = {
    r"\b(has|have|had) not (a|an|the|been)\b": "write 'does not have'",
    r"(?<!there )\b(is|are|was) (none|no (?!(more|longer|such|server|address|route)\b)[a-z]+)\b": "write 'is not a ...'",
    r"\bwhich (is|are) none\b": "write 'which is not a ...'",
    r"\bthere (is|are|was) (no such|twice|none)\b": "write 'unknown', 'duplicate' or 'missing'",
    r"\bis there twice\b": "write 'duplicate'",
    r"\b(is|are) (written|followed) no more\b": "write 'stopped writing'",
    r"\b(serves?|does) again\b": "write 'rolled back to'",
    r"\b(taken?|takes) back\b": "write 'rolled back'",
    r"\b(takes?|in) the place of\b": "write 'replaces'",
    r"\bgo(es)? on( as before)?\b(?! (the|a|an|port)\b)": "write 'keeps running'",
    r"\b[Nn]obody\b": "name the party",
    r"(?<!anyone )\b(who|whoever) (has|sees|may|can|connected|reaches|wants)\b": "write 'anyone' or name the party",
    r"\bwhat (came|is|was|cannot|they|it)\b": "put a noun first",
    r"\b(has|have) to (be|name|sign|come)\b": "write 'must'",
    r"\b(is|are) to (be|go|serve|have|say|stay)\b": "write 'must'",
    r"\b(be|is|are) left out\b|\bleave (this|it|one) out\b": "write 'remove'",
    r"\ball the same\b|\bat hand\b|\bgives? up\b": "use an everyday term",
    r"\b(is|are) looked up (here|again)\b": "write 'resolve'",
    r"\b(is|are) not given to\b": "write 'does not provide'",
}
"""Patterns that texts for users must not have, and what to write instead."""

_TOKEN = re.compile(
    r"//[^\n]*"
    r"|b?r(?P<hashes>#*)\".*?\"(?P=hashes)"
    r"|(?P<string>b?\"(?:\\.|[^\"\\])*\")"
    r"|'(?:\\[^']*|[^'\\])'",
    re.DOTALL,
)


def strings(text: str) -> list[str]:
    """The string literals of a Rust file in front of its tests, each in one line."""
    found = _TOKEN.finditer(text.partition("#[cfg(test)]\nmod ")[0])
    return [re.sub(r"\\\n\s*", "", each["string"]) for each in found if each["string"]]


def texts(text: str) -> list[str]:
    """The strings of a Python file that are no docstrings."""
    tree = ast.parse(text)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return [node.value for node in nodes if isinstance(node.value, str)]


def archaic(found: list[str]) -> list[str]:
    """The strings of several words with a pattern that they must not have, each with what to write."""
    found = [each for each in found if " " in each]
    return [f"{advice}: {each}" for each in found for pattern, advice in ARCHAIC.items() if re.search(pattern, each)]


def spoken() -> list[Path]:
    """The files with the strings that users see."""
    own = re.compile(r"(?!.*(^|/)(tests|test-support|examples)/)(runtime|watm|host-python)/")
    return [ROOT / name for name in sources("*.rs", "*.py") if own.match(name)]


def test_strings_are_in_plain_english() -> None:
    found = {}
    for file in spoken():
        text = file.read_text()
        if wrong := archaic(strings(text) if file.suffix == ".rs" else texts(text)):
            found[str(file.relative_to(ROOT))] = wrong
    assert found == {}


def test_an_archaic_string_is_found() -> None:
    rust = '/// It has not a role.\n#[error("{0}: has not \\\n    the role")]\nx("good");\n#[cfg(test)]\nmod tests { x("nobody"); }'
    assert archaic(strings(rust)) == ["write 'does not have': \"{0}: has not the role\""]
    assert archaic(texts('"""Nobody."""\nx = f"{y} serves again"\n')) == ["write 'rolled back to':  serves again"]


# Comments of all kinds, and docstrings. The doc comments of clap's types are the program's `--help`.

COMMENTS = {
    r"^(What|Who|Whoever|Whom|Whose|Whether|Whatever)\b(?!.*\?$)": "put a noun first; a clause is no subject",
    r"\b(We|we|our|Our|ours)\b": "name the project, the program or the module",
    r"\b(is|are|was|were) to (be|go|have|say|serve|stay|do|happen)\b": "write 'must', or state the fact",
    r"\b(reads?|writes?|dials?|serves?|wants?) no more\b(?! than)": "write 'has stopped reading'",
    r"\b(at hand|for want of|of late|as (it|they) likes?|been seen to|to be had|gives? way)\b": "use an everyday term",
    r"\b(other people|somebody else|nobody else|anybody else)'s\b": "name the party",
    r"\b(deaf|heeds?|uproot)\b": "use the term of the field",
}
"""Patterns that sentences of comments must not have, and what to write instead."""

_GENERATED = re.compile(r"\.lock$|/go\.(mod|sum)$|/corpus/|\.min\.")


def hashed(text: str) -> list[str]:
    """Returns the comments of a file whose comments begin with `#`, each paragraph as one text."""
    lines = [re.match(r"\s*# ?(?!!)(.*)", line) for line in text.splitlines()]
    return "\n".join(line[1] if line else "" for line in lines).split("\n\n")


def slashed(text: str) -> list[str]:
    """Returns the comments of a file whose comments begin with `//`, each paragraph as one text."""
    lines = [re.match(r"\s*//[/!]? ?(.*)", line) for line in text.splitlines()]
    return "\n".join(line[1] if line else "" for line in lines).split("\n\n")


def of_python(text: str) -> list[str]:
    """Returns the comments and docstrings of a Python file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    tree = ast.parse(text)
    documented = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    literals = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    documented += [node.value for node in literals if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    trailing = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT and token.line.lstrip()[0] != "#"]
    return documented + trailing + hashed(text)


def comments(name: str, text: str) -> list[str]:
    """Returns the comments of a file by its name."""
    if name.endswith((".py", ".pyi")):
        return of_python(text)
    return (slashed if name.endswith((".rs", ".go", ".wit", ".js")) else hashed)(text)


def dialect(name: str, text: str) -> list[str]:
    """Returns the sentences in the comments of a file that have a pattern of `COMMENTS`, with the advice."""
    found = []
    for comment in comments(name, text):
        for sentence in sentences(comment):
            found += [f"{advice}: {sentence}" for pattern, advice in COMMENTS.items() if re.search(pattern, sentence)]
    return found


def test_comments_are_in_plain_english() -> None:
    kinds = ("rs", "go", "wit", "js", "py", "pyi", "sh", "toml", "mk", "yml", "yaml", "txt")
    names = [name for name in sources(*(f"*.{kind}" for kind in kinds), "*Makefile") if not _GENERATED.search(name)]
    assert len(names) > 1000
    found = {name: wrong for name in names if (wrong := dialect(name, (ROOT / name).read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", "/// Sends it. What is\n/// refused is counted.\nfn a() {}\n"),
        ("a.rs", "fn a() {\n    // Who waits for room is woken.\n    b();\n}\n"),
        ("a.wit", "    /// The other end reads no more.\n"),
        ("a.py", '"""A server of ours."""\n'),
        ("a.py", "A = 1  # what is at hand\n"),
        ("a.py", "# Other people's\n# and somebody else's programs.\n"),
        ("a.sh", "#!/bin/sh\n# The file that is to be built.\n"),
        ("a.go", "package main\n\n// our server\n"),
    ],
)
def test_a_comment_in_dialect_is_found(name: str, text: str) -> None:
    assert dialect(name, text)


def test_code_in_comments_is_no_fault() -> None:
    assert dialect("a.rs", "/// Returns what `we` read: no more than `us` bytes.\nlet ours = 1;\n") == []
