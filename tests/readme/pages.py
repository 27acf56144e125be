"""The pages for readers, and the blocks of code on them.

The language of a block states its kind. `console` has shell commands after `$ `, or mitmproxy
commands after `: `. A configuration names its format and its parser, such as `toml,serve`. `text`
is a form or an output, and is not run.
"""

import re
from dataclasses import dataclass

from watm_test_support.repository import ROOT

FILES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs" / "src").glob("*.md")])
"""The pages: the README and the documents beside it, and the book."""

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.language}: {self.text.partition(chr(10))[0]}"


def text() -> str:
    """Returns all pages."""
    return "\n".join(file.read_text() for file in FILES)


def blocks_of(page: str, content: str) -> list[Block]:
    """Returns the blocks of a page."""
    return [Block(page, found[2], found[3]) for found in _FENCE.finditer(content)]


def all_blocks() -> list[Block]:
    """Returns the blocks of all pages."""
    return [block for file in FILES for block in blocks_of(str(file.relative_to(ROOT)), file.read_text())]


def blocks(language: str) -> list[str]:
    """Returns the distinct texts of blocks of this language."""
    return list(dict.fromkeys(block.text for block in all_blocks() if block.language == language))


def prose(content: str) -> str:
    """Returns a page without its blocks."""
    return _FENCE.sub("", content)


def lines_of(block: str) -> list[str]:
    """Returns the commands of a block with their prompt. A backslash at the end of a line continues it."""
    return re.sub(r"\\\n\s*", "", block).splitlines()


def commands() -> list[str]:
    """Returns the distinct commands of all pages without their prompt. Those of mitmproxy keep the colon."""
    lines = [line for block in blocks("console") for line in lines_of(block)]
    return list(dict.fromkeys(line.removeprefix("$ ") for line in lines))


def with_values(text: str, values: dict[str, str]) -> str:
    """Returns a text in which each of these words is replaced once. A value is not looked at again."""
    words = "|".join(re.escape(word) for word in sorted(values, key=len, reverse=True))
    return re.sub(words, lambda found: values[found[0]], text)
