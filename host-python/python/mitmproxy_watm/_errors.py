"""Error messages for people who read a log or a flow."""

from mitmproxy_watm._native import Module, ModuleError

UNSEALED = ("unsealed=True", "--set watm_unsealed=true")
"""The option for modules without a seal, as programs and as users of mitmproxy write it."""


def plain(error: BaseException) -> str:
    """Returns an error's message without its number, for a log of mitmproxy."""
    if isinstance(error, ModuleError):
        return str(error).replace(*UNSEALED)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error) or type(error).__name__


def swap_failure(error: BaseException, current: Module | None) -> str:
    """Returns the message for a failed swap: the file, the reason with its remedy, and the result."""
    return f"The swap failed: {plain(error)}. {'The old module' if current is None else current.name} stays in service."


def worded(error: OSError | ValueError, text: str | None = None) -> OSError | ValueError:
    """Returns an error of the same kind whose whole message is `text`, by default that of `plain`."""
    text = plain(error) if text is None else text
    if isinstance(error, OSError):
        return worded_os(error, text)
    return ModuleError(text) if isinstance(error, ModuleError) else ValueError(text)


def worded_os(error: OSError, text: str) -> OSError:
    """Does the same as `worded` for errors of the system."""
    if error.errno is None:
        return OSError(text)
    # A number among its arguments would become part of the text.
    made = OSError(error.errno, "").__class__(text)
    made.errno = error.errno
    return made
