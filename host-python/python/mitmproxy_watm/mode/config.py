"""The configuration that a module is started with."""

import json
from pathlib import Path
from typing import Any

from mitmproxy_watm.mode.keys import read_keys
from mitmproxy_watm.mode.spec import Data


def build_config(data: Data, confdir: Path) -> bytes:
    """Builds a configuration in the module's own format.

    A WireGuard server without one gets the keys of mitmproxy's own WireGuard mode, so that its
    clients keep working. Options of the specification are added to JSON; a file in another format
    must contain them itself. Raises ValueError and OSError.
    """
    content: dict[str, Any]
    if data.config is not None:
        text = data.config.read_bytes()
        if not data.fields:
            return text
        try:
            content = dict(json.loads(text))
        except ValueError:
            names = ", ".join(data.fields)
            raise ValueError(f"{names}: {data.config} is not a JSON object; set it in that file instead") from None
    elif data.keys is not None or data.takes_keys:
        content = dict(read_keys(data.keys or confdir / "wireguard.conf"))
    else:
        content = {}
    content.update(data.fields)
    return json.dumps(content).encode() if content else b""
