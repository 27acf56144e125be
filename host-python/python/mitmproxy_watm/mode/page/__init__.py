"""The page at /watm in mitmweb: each server's clients, peers, traffic, permissions and modules.

`install` adds it to a running mitmweb. Requests arrive in `handlers`, which answer with the HTML of
`sections`; `graph` draws, and `assets` has the style and the script.
"""

import asyncio
import contextlib
import logging
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakSet

from mitmproxy import ctx

from mitmproxy_watm.mode.status import instances
from mitmproxy_watm.upstream.status import upstreams

logger = logging.getLogger(__name__)

PATH = "/watm"

INTERVAL = 1.0
"""The seconds between samples of the traffic."""

_NUMERIC_HOST = r"^(localhost|[0-9.]+|\[[0-9a-fA-F:]+\])$"
"""Hosts that are accepted without a login: a page with keys must not be reachable by DNS rebinding."""


def install() -> None:
    """Add the page to mitmweb, if that is running, and log its address."""
    application = _application()
    if application is None:
        return
    if application not in _installed:
        from mitmproxy_watm.mode.page.handlers import handlers

        _installed.add(application)
        application.add_handlers(r".*" if _has_login(application) else _NUMERIC_HOST, handlers)
        # In front of mitmweb's own rules, of which one is replaced.
        rules = application.default_router.rules
        rules.insert(0, rules.pop(-2))
        _tasks.add(sampling := asyncio.ensure_future(_sample()))
        sampling.add_done_callback(_tasks.discard)
    logger.info("Servers, client configurations and QR codes: %s", address())


def address() -> str | None:
    """Returns the address of the page, with the token for login if there is one. None without mitmweb."""
    if _application() is None:
        return None
    options = ctx.options
    host = f"[{options.web_host}]" if ":" in options.web_host else options.web_host
    url = urlsplit(getattr(ctx.master, "web_url", f"http://{host}:{options.web_port}/"))
    return urlunsplit(url._replace(path=PATH))


_installed: WeakSet[Any] = WeakSet()
_tasks: set[asyncio.Future[None]] = set()


def _application() -> Any:
    """Returns mitmweb's application for tornado, if mitmweb is running."""
    application = getattr(ctx.master, "app", None)
    try:
        from mitmproxy.tools.web.app import Application
    except ImportError:
        return None
    return application if isinstance(application, Application) else None


def _has_login(application: Any) -> bool:
    return "is_valid_password" in application.settings


async def _sample() -> None:
    """Note the traffic of all modules for the graphs, for as long as mitmweb runs."""
    while True:
        for observe in [*(each.observe for each in instances()), *(each.observe for each in upstreams())]:
            # A module that stops meanwhile has no status.
            with contextlib.suppress(OSError):
                observe(sample=True)
        await asyncio.sleep(INTERVAL)
