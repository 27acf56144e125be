"""haproxy's configurations."""

import pathlib


def configured(folder: pathlib.Path, sections: str, mode: str = "tcp") -> pathlib.Path:
    """A file with these frontends and backends."""
    path = folder / "haproxy.cfg"
    # It prepares itself for as many connections as it may have, which takes seconds for all there can be.
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
