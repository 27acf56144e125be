"""Passes records of native threads on to Python's `logging`."""

import logging

from mitmproxy_watm import _native

logger = logging.getLogger("mitmproxy_watm")


def write_logs() -> None:
    """Write the waiting records, each to the logger `mitmproxy_watm.<its origin>`."""
    records, dropped = _native.take_logs()
    for level, target, message in records:
        logger.getChild(target).log(level, "%s", message)
    if dropped:
        logger.warning("%d log records were dropped", dropped)
    set_log_level()


def set_log_level() -> None:
    """Make native threads build only the records that a Python handler may want."""
    _native.set_log_level(min(logger.getEffectiveLevel(), logging.CRITICAL))
