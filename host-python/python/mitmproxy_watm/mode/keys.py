"""mitmproxy's `wireguard.conf`: the keys of one server and one client, as JSON."""

import json
import logging
import os
import tempfile
from pathlib import Path

from mitmproxy_watm._native import genkey, is_open_to_others, pubkey

logger = logging.getLogger(__name__)


def read_keys(path: Path) -> dict[str, str]:
    """Reads the keys in a file. A missing file is made, readable by its owner alone.

    Raises ValueError if the file is invalid.
    """
    if not path.exists():
        _create(path)
    try:
        content = json.loads(path.read_text())
        keys = {name: content[name] for name in ("server_key", "client_key")}
        for key in keys.values():
            pubkey(key)
        if is_open_to_others(path):
            logger.warning("%s contains private keys and is accessible to other users: run chmod 600 %s", path, path)
    except Exception as e:
        why = e.strerror if isinstance(e, OSError) else e
        raise ValueError(f"Invalid configuration file ({path}): {why}") from e
    return keys


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Complete before it gets its name, so that nobody reads half of it; mkstemp sets mode 0600.
    descriptor, draft = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with open(descriptor, "w") as file:
            json.dump({"server_key": genkey(), "client_key": genkey()}, file, indent=4)
        os.link(draft, path)
    except FileExistsError:
        pass  # somebody else was faster
    finally:
        os.unlink(draft)
