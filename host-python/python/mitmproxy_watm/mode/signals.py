"""The end of mitmproxy's programs, however many flows modules open. `cli.py` adds both addons, and the script
`addon/watm.py` the first.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from mitmproxy import ctx

from mitmproxy_watm.mode.program import Program

END_TIMEOUT = 5
"""The time in seconds that flows have to end in, after all addons have."""


class Signals:
    """Takes SIGINT and SIGTERM over from asyncio.

    asyncio learns of a signal by a byte in its wake-up socket, where each log record of mitmproxy puts a byte too. The
    socket has room for some hundred, and loses the signal that comes after them.
    """

    def running(self) -> None:
        """Replace mitmproxy's handlers with handlers that the interpreter calls itself."""
        take_over()


def take_over() -> None:
    """Take signals over from asyncio, and pass them on to the program of `exec`. Further calls have no effect."""
    loop = asyncio.get_running_loop()
    shutdown = ctx.master.shutdown
    ends = {signal.SIGINT: getattr(ctx.master, "prompt_for_exit", shutdown), signal.SIGTERM: shutdown}
    for number, end in ends.items():
        _take_over(loop, number, end)
    if Program.only is not None:
        _pass_on(loop, shutdown)


class Ending:
    """Ends the process if its flows take too long to end. The last addon, so that others end first."""

    def done(self) -> None:
        """Begin to wait."""
        if ctx.master.should_exit.is_set():
            threading.Thread(target=_end_late, daemon=True).start()


def _take_over(loop: asyncio.AbstractEventLoop, number: signal.Signals, end: Callable[[], None]) -> None:
    try:
        if not loop.remove_signal_handler(number):
            return
    except NotImplementedError:
        return  # Windows, where mitmproxy does the same itself

    def called(*_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(end)

    signal.signal(number, called)


def _pass_on(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Pass signals on to the program of `exec` while it runs."""

    def called(number: int, _: object) -> None:
        program = Program.running()
        if program is None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)
        elif number not in (signal.SIGINT, signal.SIGQUIT) or not _has_terminal():
            program.signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, called)


def _has_terminal() -> bool:
    """Returns True if this process is in the foreground of a terminal, which sends its signals to the program too."""
    try:
        with open(os.ctermid()) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _end_late() -> None:
    time.sleep(END_TIMEOUT)
    print(f"flows had not ended after {END_TIMEOUT} s, and are cut off", file=sys.stderr, flush=True)
    os._exit(0)
