"""The pages for readers, and the blocks of code on them.

A block's language says what it is: `console` has commands of a shell, each behind `$ `, or of mitmproxy, each behind
`: `. A configuration names its format and its parser, such as `toml,serve`. `text` is a form or an output, and nothing
to run.
"""

import re
from dataclasses import dataclass

from watm_test_support.repository import ROOT

FILES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs" / "src").glob("*.md")])
"""README and its neighbours, and the book."""

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
    """All pages."""
    return "\n".join(file.read_text() for file in FILES)


def blocks_of(page: str, content: str) -> list[Block]:
    """The blocks of a page."""
    return [Block(page, found[2], found[3]) for found in _FENCE.finditer(content)]


def all_blocks() -> list[Block]:
    """The blocks of all pages."""
    return [block for file in FILES for block in blocks_of(str(file.relative_to(ROOT)), file.read_text())]


def blocks(language: str) -> list[str]:
    """The texts of this language, each once."""
    return list(dict.fromkeys(block.text for block in all_blocks() if block.language == language))


def prose(content: str) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", content)


def lines_of(block: str) -> list[str]:
    """The commands of a block with their prompt. A line that ends with a backslash goes on in the next."""
    return re.sub(r"\\\n\s*", "", block).splitlines()


def commands() -> list[str]:
    """The commands of all pages without their prompt, each once; those of mitmproxy keep their colon."""
    lines = [line for block in blocks("console") for line in lines_of(block)]
    return list(dict.fromkeys(line.removeprefix("$ ") for line in lines))
