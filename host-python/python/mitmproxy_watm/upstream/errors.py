"""Errors of upstreams, in words for people who look at a flow."""

import errno

from mitmproxy_watm._errors import worded_os

_BRIEF = {
    errno.EACCES: "not allowed",
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.ECONNABORTED: "connection aborted",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EOPNOTSUPP: "not supported",
    errno.ETIMEDOUT: "timed out",
}


def through(name: str, error: Exception) -> OSError:
    """Returns the same error with a text that names it and its upstream."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and isinstance(error, TimeoutError):
        number = errno.ETIMEDOUT
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    detail = said.removeprefix(f"{name}: ")
    brief = _BRIEF.get(number or 0, "failed")
    text = f"{brief} through {name}" if detail in ("", brief) else f"{brief} through {name}: {detail}"
    if number is None:
        return OSError(text)
    return worded_os(OSError(number, ""), text)
