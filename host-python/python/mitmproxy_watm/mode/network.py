"""The bad network of a WireGuard configuration, for the command and the card of the page that change it."""

import json
import re

_SECTION = re.compile(r"^\s*\[([^\]\n]*)\]", re.MULTILINE)
_FIELD = re.compile(r"^\s*network\s*=([^#\n]*).*\n?", re.MULTILINE | re.IGNORECASE)

NAMES = {
    "off": "Perfect",
    "edge": "EDGE",
    "3g": "3G",
    "4g": "4G",
    "dsl": "DSL",
    "wifi": "Weak Wi-Fi",
    "train": "Train",
    "satellite": "Satellite",
    "offline": "Offline",
}
"""The networks that have a name in the module, and their titles for people."""


def network_of(config: bytes) -> str | None:
    """Returns the words of the configuration's network, or None if it has no place for one."""
    try:
        text = config.decode()
        if text.lstrip().startswith("{"):
            fields = json.loads(text)
            return fields.get("network", "off") if "server_key" in fields else None
    except ValueError:
        return None
    sections = _sections(text)
    if "interface" not in sections:
        return None
    own = sections.get("watm")
    found = [] if own is None else [field[1].strip() for field in _FIELD.finditer(text, own.end(), _end(text, own))]
    return ", ".join(found) or "off"


def with_network(config: bytes, words: str) -> bytes:
    """Returns the configuration with this network in place of its own.

    Knows mitmproxy's JSON and the format of wg(8). The module checks the words. Raises ValueError for
    words in more than one line, and for a configuration of another kind.
    """
    if "\n" in words or "\r" in words:
        raise ValueError("network: expected one line, such as: delay=100ms loss=1%")
    text = config.decode()
    if text.lstrip().startswith("{") and "server_key" in (fields := json.loads(text)):
        return json.dumps(fields | {"network": words}).encode()
    sections = _sections(text)
    if "interface" not in sections:
        raise ValueError("network: only WireGuard servers have bad networks, and this module has another configuration")
    if (own := sections.get("watm")) is None:
        return f"{text.rstrip()}\n\n[Watm]\nNetwork = {words}\n".encode()
    end = _end(text, own)
    others = _FIELD.sub("", text[own.end() : end]).lstrip()
    return f"{text[: own.end()]}\nNetwork = {words}\n{others}{text[end:]}".encode()


def _sections(text: str) -> dict[str, re.Match[str]]:
    """Returns the headings of the sections by their names in lower case."""
    return {section[1].strip().lower(): section for section in _SECTION.finditer(text)}


def _end(text: str, section: re.Match[str]) -> int:
    """Returns the place behind the last line of a section."""
    later = _SECTION.search(text, section.end())
    return len(text) if later is None else later.start()
