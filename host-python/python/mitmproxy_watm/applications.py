"""Rules that decide which applications may use a module."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Self

_FIELD = re.compile(
    r"\s*(?:#@ws:\s*)?(?P<field>allowedapps|disallowedapps)\s*=(?P<value>.*)", re.IGNORECASE | re.DOTALL
)
"""A line of WireSock, also in the form hidden from other programs."""

_PEER = re.compile(r"\s*\[\s*peer\s*\]", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Applications:
    """Rules for applications: names such as `firefox` or `Firefox.exe`, paths of programs, or
    folders.

    Ignores case and `.exe`. A disallowed application stays so even if it is allowed too.
    """

    allowed: tuple[str, ...] = ()
    """The only allowed applications; empty means all."""
    disallowed: tuple[str, ...] = ()
    """Applications that are refused."""

    @classmethod
    def of_wireguard(cls, config: str) -> tuple[str, Self | None]:
        """Splits a WireGuard configuration into the rest and the rules of its lines `AllowedApps`
        and `DisallowedApps`; None without such lines.

        Modules do not learn about applications, so the dialing side enforces the rules. Raises
        `ValueError` if several peers have different ones, since the module chooses between peers.
        """
        lines = config.splitlines()
        rules: list[dict[str, tuple[str, ...]]] = [{}]
        for number, line in enumerate(lines):
            if _PEER.match(line):
                rules.append({})
            elif found := _FIELD.fullmatch(line):
                field = found["field"].lower()
                # The text here is for people, except for the mark that hides it.
                names = tuple(filter(None, (name.strip() for name in found["value"].split(","))))
                if not names:
                    raise ValueError(f"line {number + 1}: {found['field']}: missing application name")
                rules[-1][field] = rules[-1].get(field, ()) + names
                lines[number] = ""
        said = [of_peer for of_peer in rules if of_peer]
        if not said:
            return config, None
        if any(of_peer != said[0] for of_peer in said) or rules[0] == {} and len(said) < len(rules) - 1:
            raise ValueError(
                "AllowedApps, DisallowedApps: must be the same for all peers, since the address selects the peer; "
                "make a configuration for each peer"
            )
        return "\n".join(lines) + "\n", cls(
            allowed=said[0].get("allowedapps", ()), disallowed=said[0].get("disallowedapps", ())
        )

    def admits(self, application: str) -> bool:
        """Returns True if the application may use it, given its name or, better, the path of its
        program."""
        if any(names(rule, application) for rule in self.disallowed):
            return False
        return not self.allowed or any(names(rule, application) for rule in self.allowed)


def names(rule: str, application: str) -> bool:
    """Returns True if a rule matches this application."""
    rule, application = _normal(rule), _normal(application)
    if "/" not in rule:
        return _bare(application.rpartition("/")[2]) == _bare(rule)
    folder = rule.rstrip("/") + "/"
    return _bare(application) == _bare(rule) or application.startswith(folder)


def _normal(path: str) -> str:
    """Returns a path in a comparable form, whichever system's separators it has."""
    pure = PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
    return pure.as_posix().lower()


def _bare(name: str) -> str:
    return name.removesuffix(".exe")
