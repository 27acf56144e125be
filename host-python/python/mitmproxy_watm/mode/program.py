"""Devices in networks of their own, for the mode `watm:tun`: that of the program that `mitmdump-watm exec` runs, and
those in namespaces that exist already."""

import asyncio
import ipaddress
import logging
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from mitmproxy import ctx

from mitmproxy_watm import _native
from mitmproxy_watm.mode.waiting import THREADS

logger = logging.getLogger(__name__)

ADDRESSES = [ipaddress.ip_address("198.18.0.2"), ipaddress.ip_address("fd77:6174:6d00::2")]
"""The addresses of the program: of the networks for benchmarks (RFC 2544), and local ones (RFC 4193)."""

RESOLVER = ipaddress.ip_address("10.0.0.53")
"""The address of mitmproxy's resolver, as in its WireGuard mode."""

MTU = 1500
"""The MTU of the device, in bytes."""

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep the authorities that programs trust."""

TRUSTED = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables by which programs with authorities of their own find others."""

HELPER = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = ExtensionFileLoader("_native", sys.argv[1])
native = module_from_spec(spec_from_loader("_native", loader))
loader.exec_module(native)
sys.exit(native.help_launch(int(sys.argv[2])))
"""
"""A process with one thread. It imports nothing else, so it starts within some hundredths of a second."""


class Program:
    """A program, and its exit status once it has ended."""

    only: ClassVar["Program | None"] = None
    """The program of this process."""

    def __init__(self, words: list[str], *, ends_host: bool) -> None:
        """Create a program that was not launched. `ends_host`: its end ends mitmproxy."""
        self.words = words
        self.status: int | None = None
        self._ends_host = ends_host
        self._launched: _native.Launched | None = None
        self._running = False
        Program.only = self

    @classmethod
    def to_run(cls) -> "Program | None":
        """Returns the program of this process if it was not launched."""
        return cls.only if cls.only is not None and cls.only._launched is None else None

    @classmethod
    def running(cls) -> "Program | None":
        """Returns the program of this process while it runs."""
        return cls.only if cls.only is not None and cls.only._running else None

    async def launch(self, confdir: Path, fields: dict[str, Any]) -> _native.Launched:
        """Make the device of the program. Raises OSError, which says what the system does not permit."""
        files, environment = _trust(confdir / "mitmproxy-ca-cert.pem")
        self._launched = _native.launch(
            _helper(),
            self.words,
            environment=environment + [(name, "") for name in os.environ if name.lower().endswith("_proxy")],
            addresses=ADDRESSES,
            mtu=_mtu(fields),
            resolvers=[RESOLVER],
            files=files,
            namespace=None,
        )
        return self._launched

    def begin(self) -> None:
        """Let the program start, and follow it."""
        from mitmproxy_watm.mode import signals

        assert self._launched is not None  # the caller has launched it
        self._running = True
        signals.take_over()
        self._launched.begin()
        following = asyncio.wrap_future(THREADS.submit(self._launched.wait))
        following.add_done_callback(self._ended)

    def signal(self, number: int) -> None:
        """Send a signal to the program."""
        if self._launched is not None:
            self._launched.signal(number)

    def kill(self) -> None:
        """Kill the program and its children, if they run."""
        if self._launched is not None and self._running:
            self._launched.kill()

    def _ended(self, following: asyncio.Future[int]) -> None:
        self._running = False
        if following.cancelled():
            return
        self.status = following.result() if following.exception() is None else 1
        logger.log(logging.DEBUG if self._ends_host else logging.INFO, "%s ended with status %s", self.words[0], self.status)
        if self._ends_host:
            ctx.master.shutdown()


def enter(namespace: str, fields: dict[str, Any]) -> _native.Launched:
    """Make a device in a network namespace that exists already: a name, the number of a process, or a path. Raises
    OSError, which says what the system does not permit."""
    return _native.launch(
        _helper(), [], environment=[], addresses=ADDRESSES, mtu=_mtu(fields), resolvers=[], files=[], namespace=namespace
    )


def _helper() -> list[str]:
    return [sys.executable, "-I", "-S", "-c", HELPER, str(_native.__file__)]


def _mtu(fields: dict[str, Any]) -> int:
    mtu = fields.get("mtu", MTU)
    if not isinstance(mtu, int) or not 1280 <= mtu <= 65535:
        raise ValueError(f"option mtu: {mtu!r}; must be 1280-65535")
    return mtu


def split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits the arguments of mitmproxy from the program after `exec`; None without one."""
    for place, word in enumerate(arguments):
        if word == "exec" and (place == 0 or arguments[place + 1 : place + 2] == ["--"]):
            program = arguments[place + 1 :]
            return arguments[:place], program[1:] if program[:1] == ["--"] else program
    return arguments, None


def _trust(authority: Path) -> tuple[list[tuple[str, bytes]], list[tuple[str, str]]]:
    """Returns files and variables by which the program trusts mitmproxy's authority beside those of the system."""
    own = authority.read_bytes()
    known = [path for path in BUNDLES if os.path.isfile(path)]
    files = [(path, Path(path).read_bytes() + b"\n" + own) for path in known]
    trusted = known[0] if known else str(authority)
    return files, [(name, trusted) for name in TRUSTED]
