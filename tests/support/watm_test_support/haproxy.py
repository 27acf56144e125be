"""Configurations of haproxy."""

import pathlib


def configured(folder: pathlib.Path, sections: str, mode: str = "tcp") -> pathlib.Path:
    """Writes a file with these frontends and backends."""
    path = folder / "haproxy.cfg"
    # haproxy allocates room for its most connections at start, which takes seconds for its default.
    path.write_text(
        f"""
global
    maxconn 500
defaults
    mode {mode}
    timeout connect 5s
    timeout client 30s
    timeout server 30s
{sections}
"""
    )
    return path
