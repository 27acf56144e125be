"""Work of commands that takes its time, in threads.

mitmproxy calls a command, and shows its user what that raises. It does not wait for coroutines, so a
command that would only start something could not say that it failed. A command therefore waits for its
work, and so do mitmproxy's flows meanwhile: usually some hundredths of a second, and a second at most,
while a module is compiled that was never compiled on this machine.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TypeVar

from mitmproxy import exceptions

from mitmproxy_watm._errors import plain

PATIENCE = 1.0
"""Seconds that a command waits. Whatever fails later is logged."""

INTERVAL = 0.01
"""Seconds between two looks at what has been achieved."""

THREADS = ThreadPoolExecutor(thread_name_prefix="watm command")

Made = TypeVar("Made")


def wait(work: Future[Made], achieved: Callable[[], bool] = lambda: False) -> None:
    """Wait until `work` is done or has `achieved` what matters. Raises what it failed with, as a `CommandError`."""
    end = time.monotonic() + PATIENCE
    while not wait_for([work], INTERVAL).done:
        if achieved() or time.monotonic() > end:
            return
    if error := work.exception():
        if not isinstance(error, (OSError, ValueError)):
            raise error
        raise exceptions.CommandError(plain(error)) from error
