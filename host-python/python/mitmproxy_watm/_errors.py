"""Errors in words, for people who read a log or a flow."""

from mitmproxy_watm._native import ModuleError

UNSEALED = ("unsealed=True", "--set watm_unsealed=true")
"""How a program runs a module without a seal, and how a user of mitmproxy does."""


def plain(error: BaseException) -> str:
    """What an error says, without its number, for a log of mitmproxy's."""
    if isinstance(error, ModuleError):
        return str(error).replace(*UNSEALED)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error) or type(error).__name__


def worded(error: OSError | ValueError, text: str | None = None) -> OSError | ValueError:
    """An error of the same kind that says `text`, by default what `plain` says, and nothing else."""
    text = plain(error) if text is None else text
    if isinstance(error, OSError):
        return worded_os(error, text)
    return ModuleError(text) if isinstance(error, ModuleError) else ValueError(text)


def worded_os(error: OSError, text: str) -> OSError:
    """`worded`, of the system's errors."""
    if error.errno is None:
        return OSError(text)
    # With a number among its arguments it would be part of the text.
    made = OSError(error.errno, "").__class__(text)
    made.errno = error.errno
    return made
