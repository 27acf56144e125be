"""Sources of newer modules for running servers."""

import asyncio
import datetime
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mitmproxy_watm import _native
from mitmproxy_watm._native import Module, UpdateStatus
from mitmproxy_watm._wake import LoopWake
from mitmproxy_watm.modules import AnyModule, read_module, read_name


@dataclass(frozen=True, kw_only=True)
class UpdateSource:
    """A source of newer modules for a server, and the requirements for them.

    A module from there serves if its seal is valid under the root that the user trusts (`watm
    trust`), it is newer than the running one, and it requests no more than the user has approved.
    """

    source: str | os.PathLike[str]
    """A file, a folder, `https://...`, `http://...`, `oci://registry/repository:tag` or
    `oci://registry/repository@sha256:...`."""
    every: float = 3600
    """Seconds between checks, plus or minus a tenth. A source that fails is asked sooner, then less
    and less often."""
    name: str | None = None
    """The required name of the module in its seal; by default that of the module that the server is
    started with. A folder needs one."""
    channel: str | None = None
    """The required channel."""
    note: str | None = None
    """The source of freshness notes."""
    ca: str | os.PathLike[str] | None = None
    """A file with certificates in PEM to trust in addition to the system's."""
    credentials: str | None = None
    """`user:password`, or `Bearer TOKEN`, for a server that asks for credentials. They go to the
    host of the source."""
    credentials_for: Sequence[str] = ()
    """Other hosts that get the password if a registry names them as its token service."""
    plain_http: bool = False
    """Use HTTP without TLS for registries, and follow redirections from HTTPS to HTTP."""
    place: str | os.PathLike[str] | None = None
    """The file in which the newest module is kept; by default one in the user's folder for states."""
    drain: float | None = None
    """Seconds after which the flows of a replaced module are reset; None means never."""
    probation: float = 1.0
    """Seconds that a new module is watched; if it fails, the old one serves again."""
    on_change: Callable[[UpdateStatus], None] | None = None
    """Called in the event loop whenever a check had a result."""


AnyUpdates = UpdateSource | str | os.PathLike[str]
"""A source as functions accept it: with its options, or as `UpdateSource.source`."""


class Updates:
    """A source of newer modules that a running server follows."""

    def __init__(self, native: _native.Updates, wake: LoopWake, source: UpdateSource) -> None:
        """Called by `load_with_updates`."""
        self._native = native
        self._wake = wake
        self._source = source
        wake.callbacks[native.changed_key] = self._changed

    @property
    def status(self) -> UpdateStatus:
        """The last check and its results: the module that serves, one that waits, and errors."""
        return self._native.status()

    def check(self) -> None:
        """Check now. The result is in `status`."""
        self._native.check()

    async def approve(self, release: str) -> None:
        """Approve the capabilities of this release, which waits. It serves soon, as do later
        releases that request no more.

        Raises `ModuleError` if no such release waits, or if it is no longer valid.
        """
        await asyncio.get_running_loop().run_in_executor(None, self.approve_now, release)

    def approve_now(self, release: str) -> None:
        """Does the same as `approve`, blocking. May run in any thread."""
        self._native.approve(release)

    def close(self) -> None:
        """Stop checking; the module in service continues. Repeated calls have no effect."""
        self._wake.callbacks.pop(self._native.changed_key, None)
        self._native.close()

    def follow(self, host: _native.Server | _native.Dialer, module: Module) -> None:
        """Swap newer modules into the server or dialer, on which `module` runs. Can be called once."""
        drain = self._source.drain
        self._native.follow(
            host,
            module,
            drain=None if drain is None else datetime.timedelta(seconds=drain),
            probation=datetime.timedelta(seconds=self._source.probation),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} from {self.status.source}>"

    def _changed(self) -> None:
        if self._source.on_change is not None:
            self._source.on_change(self.status)


async def load_with_updates(
    module: AnyModule, updates: AnyUpdates | None, *, unsealed: bool = False
) -> tuple[Updates | None, Module]:
    """Does the same as `load_module`, and prepares to follow newer modules, if there is a source of
    them.

    The module is the one that an earlier run took from the source and ran well, if there is one:
    older ones are no longer loaded. Raises as `load_module` does, `ValueError` for an invalid
    source, and `ModuleError` if the user trusts no root.
    """
    loop = asyncio.get_running_loop()
    wake = LoopWake.of(loop)
    return await loop.run_in_executor(None, lambda: read_with_updates(module, updates, wake, unsealed=unsealed))


def read_with_updates(
    module: AnyModule, updates: AnyUpdates | None, wake: LoopWake, *, unsealed: bool
) -> tuple[Updates | None, Module]:
    """Does the same as `load_with_updates`, blocking. `wake` belongs to the event loop that learns
    of changes."""
    if updates is None:
        return None, read_module(module, unsealed=unsealed)
    source = updates if isinstance(updates, UpdateSource) else UpdateSource(source=updates)
    native = _native.Updates(
        os.fspath(source.source),
        every=datetime.timedelta(seconds=source.every),
        name=source.name or read_name(module),
        channel=source.channel,
        note=source.note,
        ca=source.ca,
        credentials=source.credentials,
        credentials_for=list(source.credentials_for),
        plain_http=source.plain_http,
        place=source.place,
        wake=wake.native,
    )
    loaded = native.taken_before() or read_module(module, unsealed=unsealed)
    return Updates(native, wake, source), loaded
