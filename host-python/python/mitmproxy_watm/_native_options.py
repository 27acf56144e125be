"""The form in which the native half takes options. It knows no other type of this package but limits."""

import os
from typing import TypedDict

from mitmproxy_watm.limits import Limits

AnyPath = str | os.PathLike[str]


class DialOptions(TypedDict):
    """The options of a module that dials, as the native half takes them."""

    config: bytes | None
    allow: list[str]
    keys: list[tuple[str, AnyPath]]
    limits: Limits
    name: str
    udp: str | None
    dns: list[str] | None
    pcap: AnyPath | None
    pcap_size: int | None
    pcap_files: int | None
    key_log: AnyPath | None
