"""The bad network of a WireGuard configuration, for the command that changes it."""

import json
import re

_SECTION = re.compile(r"^\s*\[([^\]\n]*)\]", re.MULTILINE)
_FIELD = re.compile(r"^\s*network\s*=.*\n?", re.MULTILINE | re.IGNORECASE)


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
    sections = {section[1].strip().lower(): section for section in _SECTION.finditer(text)}
    if "interface" not in sections:
        raise ValueError("network: only WireGuard servers have bad networks, and this module has another configuration")
    if (own := sections.get("watm")) is None:
        return f"{text.rstrip()}\n\n[Watm]\nNetwork = {words}\n".encode()
    head, rest = text[: own.end()], text[own.end() :]
    later = _SECTION.search(rest)
    end = len(rest) if later is None else later.start()
    return f"{head}\nNetwork = {words}\n{_FIELD.sub('', rest[:end]).lstrip()}{rest[end:]}".encode()
