"""The bad network of a configuration, for the command and the card of the page that change it."""

import json
import re
from typing import Any

from mitmproxy_watm.about import TUNNEL, About

_SECTION = re.compile(r"^\s*\[([^\]\n]*)\]", re.MULTILINE)
_FIELD = re.compile(r"^\s*network\s*=([^#\n]*).*\n?", re.MULTILINE | re.IGNORECASE)

FIELD = "network"
"""The name of the field in JSON."""

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


def network_of(config: bytes, about: About | None) -> str | None:
    """Returns the words of the network in the configuration of a module, or None if the module has none."""
    try:
        text = config.decode()
        fields = _json_fields(text, about)
    except ValueError:
        return None
    if fields is not None:
        return str(fields.get(FIELD, "off"))
    sections = _sections(text)
    if not _is_tunnel(about) or "interface" not in sections:
        return None
    own = sections.get("watm")
    found = [] if own is None else [field[1].strip() for field in _FIELD.finditer(text, own.end(), _end(text, own))]
    return ", ".join(found) or "off"


def with_network(config: bytes, about: About | None, words: str) -> bytes:
    """Returns the configuration of a module with this network in place of its own.

    Knows JSON and the format of wg(8). The module checks the words. Raises ValueError for words in more than one
    line, and for a module or a configuration without networks.
    """
    if "\n" in words or "\r" in words:
        raise ValueError("network: expected one line, such as: delay=100ms loss=1%")
    text = config.decode()
    if (fields := _json_fields(text, about)) is not None:
        return json.dumps(fields | {FIELD: words}).encode()
    sections = _sections(text)
    if not _is_tunnel(about) or "interface" not in sections:
        raise ValueError("network: this module has no bad networks; wireguard and tun have them")
    if (own := sections.get("watm")) is None:
        return f"{text.rstrip()}\n\n[Watm]\nNetwork = {words}\n".encode()
    end = _end(text, own)
    others = _FIELD.sub("", text[own.end() : end]).lstrip()
    return f"{text[: own.end()]}\nNetwork = {words}\n{others}{text[end:]}".encode()


def _json_fields(text: str, about: About | None) -> dict[str, Any] | None:
    """Returns the fields of a configuration in JSON whose format has networks. An empty one has no fields."""
    if about is None or not about.has_json_field(FIELD):
        return None
    text = text.removeprefix("\ufeff").strip()
    if not text:
        return {}
    return dict(json.loads(text)) if text.startswith("{") else None


def _is_tunnel(about: About | None) -> bool:
    return about is not None and TUNNEL in about.formats


def _sections(text: str) -> dict[str, re.Match[str]]:
    """Returns the headings of the sections by their names in lower case."""
    return {section[1].strip().lower(): section for section in _SECTION.finditer(text)}


def _end(text: str, section: re.Match[str]) -> int:
    """Returns the place behind the last line of a section."""
    later = _SECTION.search(text, section.end())
    return len(text) if later is None else later.start()
