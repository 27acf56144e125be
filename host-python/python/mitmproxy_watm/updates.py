"""Newer modules, from somewhere, while a server runs."""

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
    """Where a server takes newer modules from, and which it wants.

    A module from there serves if its seal is good under the root that the user trusts (`watm
    trust`), it is newer than what runs, and it asks for no more than the user has approved.
    """

    source: str | os.PathLike[str]
    """A file, a folder, `https://...`, `http://...`, `oci://registry/repository:tag` or
    `oci://registry/repository@sha256:...`."""
    every: float = 3600
    """Seconds from one look to the next, give or take a tenth. A source that fails is asked sooner,
    then less and less often."""
    name: str | None = None
    """What the module has to be called by its seal; by default as the one is that the server is
    started with. A folder needs one."""
    channel: str | None = None
    """What it has to be for."""
    note: str | None = None
    """Where freshness notes come from."""
    ca: str | os.PathLike[str] | None = None
    """A file with certificates in PEM to trust beside the system's."""
    credentials: str | None = None
    """`user:password`, or `Bearer TOKEN`, for a server that asks for one. They go to the host of the
    source."""
    credentials_for: Sequence[str] = ()
    """Other hosts that get the password, where a registry names them as its token service."""
    plain_http: bool = False
    """Talk to registries without TLS, and follow redirections from HTTPS to HTTP."""
    place: str | os.PathLike[str] | None = None
    """The file in which the newest module is kept; by default one in the user's folder for states."""
    drain: float | None = None
    """Seconds after which the flows of a module that was replaced are reset; None: never."""
    probation: float = 1.0
    """Seconds that a new module is watched; if it fails, the old one serves again."""
    on_change: Callable[[UpdateStatus], None] | None = None
    """Called in the event loop whenever something came of a look."""


AnyUpdates = UpdateSource | str | os.PathLike[str]
"""A source as functions take it: with its options, or as `UpdateSource.source`."""


class Updates:
    """A source of newer modules that a running server follows."""

    def __init__(self, native: _native.Updates, wake: LoopWake, source: UpdateSource) -> None:
        """For `load_with_updates`."""
        self._native = native
        self._wake = wake
        self._source = source
        wake.callbacks[native.changed_key] = self._changed

    @property
    def status(self) -> UpdateStatus:
        """When it was last looked at and what came of it: what serves, what waits, what is wrong."""
        return self._native.status()

    def check(self) -> None:
        """Look now. What comes of it is in `status`."""
        self._native.check()

    async def approve(self, release: str) -> None:
        """Approve what this release asks for, which waits: it serves soon, and later ones that ask
        for no more do too.

        Raises `ModuleError` if no such release waits, or if it is not good any more.
        """
        await asyncio.get_running_loop().run_in_executor(None, self.approve_now, release)

    def approve_now(self, release: str) -> None:
        """`approve`, blocking. In any thread."""
        self._native.approve(release)

    def close(self) -> None:
        """Look no more; what serves goes on. Again: no effect."""
        self._wake.callbacks.pop(self._native.changed_key, None)
        self._native.close()

    def follow(self, host: _native.Server | _native.Dialer, module: Module) -> None:
        """Swap what is new into the server or dialer, on which `module` runs. Once."""
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
    """`load_module`, and what is needed to follow newer ones, if there is a source of them.

    The module is the one that an earlier run took from the source and did well with, if there is
    one: older ones are not loaded any more. Raises as `load_module` does, `ValueError` for a source
    that is none, and `ModuleError` if the user trusts no root.
    """
    loop = asyncio.get_running_loop()
    wake = LoopWake.of(loop)
    return await loop.run_in_executor(None, lambda: read_with_updates(module, updates, wake, unsealed=unsealed))


def read_with_updates(
    module: AnyModule, updates: AnyUpdates | None, wake: LoopWake, *, unsealed: bool
) -> tuple[Updates | None, Module]:
    """`load_with_updates`, blocking. `wake` is of the event loop that is told of changes."""
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
