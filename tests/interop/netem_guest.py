"""Runs inside a kernel of its own, as its first process: sends datagrams over lo under settings of tc-netem(8).

Reads the settings from the JSON file that the kernel's parameter `watm_netem` names: a list of objects with
`tc`, the arguments of netem, `count`, `gap` in seconds and `bytes`. Writes the file with the suffix `.out`:
for each, a list of arrivals, as the number of the datagram, the times at which it was sent and at which it arrived in
nanoseconds since 1970, and whether it was changed. Writes to the file with the suffix `.stalls` when the kernel got no
turn: pairs of times.
"""

import ctypes
import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import threading
import time

# finit_module(2) on x86-64.
_FINIT_MODULE = 313
# Options of sockets that Python does not name. Changed datagrams must arrive. The receiver's buffer must hold all
# datagrams while the receiver gets no turn, and SO_RCVBUF is limited by the system. The kernel's
# timestamps of arrival do not depend on when the receiver runs.
_SO_NO_CHECK, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 11, 33, 35
# The time at which the kernel received a datagram, in seconds and nanoseconds since 1970.
_TIMESPEC = struct.Struct("=qq")
_HEAD = struct.Struct("!IQ")
# The time without an arrival after which all have arrived, in seconds.
_QUIET = 1.0
# The time of a command in seconds.
_LIMIT = 20
_SECOND = 1_000_000_000
# A clock ticks this often, and shows by a late tick that the kernel got no turn. Times in nanoseconds.
_TICK, _LATE = 5_000_000, 10_000_000
# The time in nanoseconds after a late tick in which the kernel still does what it missed.
_AFTERWARDS = 20_000_000


def main() -> None:
    for kind, at in (("proc", "/proc"), ("sysfs", "/sys")):
        subprocess.run(["mount", "-t", kind, kind, at], check=False, timeout=_LIMIT)
    words = dict(word.partition("=")[::2] for word in pathlib.Path("/proc/cmdline").read_text().split())
    settings = pathlib.Path(words["watm_netem"])
    _load(words["watm_module"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=_LIMIT)
    with subprocess.Popen([sys.executable, __file__, "clock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as clock:
        results = [_measured(**setting) for setting in json.loads(settings.read_text())]
        stalls, _ = clock.communicate()
    settings.with_suffix(".stalls").write_bytes(stalls)
    settings.with_suffix(".out").write_text(json.dumps(results))


def _clock() -> None:
    """Ticks until the standard input ends. Prints when the kernel got no turn: pairs of times in nanoseconds since 1970."""
    # Other processes of this kernel do not delay it.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    stalls = []
    due = time.time_ns() + _TICK
    while not select.select([sys.stdin], [], [], max(due - time.time_ns(), 0) / _SECOND)[0]:
        now = time.time_ns()
        if now - due > _LATE:
            stalls.append((due - _TICK, now + _AFTERWARDS))
        due = now + _TICK
    print(json.dumps(stalls))


def _load(module: str) -> None:
    file = os.open(module, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).syscall(_FINIT_MODULE, file, b"", 0) != 0:
        raise OSError(ctypes.get_errno(), f"cannot load {module}")


def _measured(tc: str, count: int, gap: float, bytes: int) -> list[tuple[int, int, int, bool]]:
    # Without the distribution of the setting before, which a change would keep.
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=False, timeout=_LIMIT, stderr=subprocess.DEVNULL)
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", *tc.split()], check=True, timeout=_LIMIT)
    with (
        socket.socket(type=socket.SOCK_DGRAM) as receiver,
        socket.socket(type=socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 32 << 20)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.settimeout(_QUIET)
        sender.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        to = receiver.getsockname()
        sent: list[int] = []
        arrivals: list[tuple[int, int, int, bool]] = []
        done = threading.Event()

        def receive() -> None:
            while True:
                try:
                    data, [(_, _, timespec)], *_ = receiver.recvmsg(65536, 64)
                except TimeoutError:
                    if done.is_set():
                        return
                    continue
                seconds, nanoseconds = _TIMESPEC.unpack(timespec)
                at = seconds * _SECOND + nanoseconds
                number, begin = _HEAD.unpack_from(data)
                # A changed head names another number or time: those of its place are in the list. Its delay is unknown.
                changed = any(data[_HEAD.size :]) or number >= len(sent) or sent[number] != begin
                arrivals.append((number, at if changed else begin, at, changed))

        thread = threading.Thread(target=receive)
        thread.start()
        begin = time.monotonic()
        for number in range(count):
            while (wait := begin + number * gap - time.monotonic()) > 0:
                time.sleep(wait)
            now = time.time_ns()
            sent.append(now)
            sender.sendto(_HEAD.pack(number, now) + b"\0" * (bytes - _HEAD.size), to)
        done.set()
        thread.join()
    return arrivals


if sys.argv[1:] == ["clock"]:
    _clock()
else:
    try:
        main()
    finally:
        pathlib.Path("/proc/sysrq-trigger").write_text("o")
        time.sleep(10)
