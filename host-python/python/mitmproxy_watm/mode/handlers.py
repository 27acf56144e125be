"""Handlers of the page in mitmweb, and a guard that keeps its Capture tab from stopping `watm:` modes."""

import json
import logging
from typing import Any

from mitmproxy import ctx
from mitmproxy.tools.web import app

from mitmproxy_watm.mode import page
from mitmproxy_watm.mode.spec import PREFIX
from mitmproxy_watm.mode.status import instances
from mitmproxy_watm.upstream.status import upstreams

logger = logging.getLogger(__name__)

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class _Handler(app.RequestHandler):
    """A handler behind mitmweb's login, if there is one."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    def auth_fail(self, invalid_password: bool) -> None:
        """Show how to log in."""
        self.render("login.html", invalid_password=invalid_password)


class Page(_Handler):
    """The page, which its login form posts to as well."""

    def get(self) -> None:
        self.write(page.render(self.xsrf_token.decode()))

    post = get


class Servers(_Handler):
    """The part of the page that it fetches to refresh itself."""

    def get(self) -> None:
        self.write(page.render_servers())


class Swap(_Handler):
    """The form of the page: `{"spec": ..., "module": ...}`. Answers after the swap."""

    async def post(self) -> None:
        wanted = self.json
        if not isinstance(wanted, dict) or not all(isinstance(wanted.get(name), str) for name in ("spec", "module")):
            raise app.APIError(400, 'a JSON object with the texts "spec" and "module" is expected')
        for instance in instances():
            if instance.mode.full_spec == wanted["spec"] and instance.is_running:
                self.write({"swapped": await instance.swap(wanted["module"]), "error": instance.swap_error})
                return
        for upstream in upstreams():
            if upstream.spec.name == wanted["spec"] and upstream.dialer is not None:
                self.write({"swapped": await upstream.swap(wanted["module"]), "error": upstream.swap_error})
                return
        raise app.APIError(404, f"{wanted['spec']} does not run")


class Asset(_Handler):
    """The page's style, script and icon."""

    def get(self, name: str) -> None:
        self.set_header("Content-Type", _TYPES[name.rpartition(".")[2]])
        self.write(page.asset(name))


class Options(app.Options):
    """mitmweb's own handler, except that a toggle in the Capture tab leaves `watm:` modes alone.

    The tab sends a list of the modes that it knows. `watm:` modes are not among them, so each
    toggle would stop them. See `keep_modes`.
    """

    def put(self) -> None:
        update = self.json
        if isinstance(update, dict) and isinstance(update.get("mode"), list):
            kept = keep_modes(list(ctx.options.mode), update["mode"])
            if kept != update["mode"]:
                update["mode"] = kept
                self.request.body = json.dumps(update).encode()
        super().put()


def keep_modes(current: list[str], update: list[Any]) -> list[Any]:
    """Returns the modes to set when mitmweb requests `update`.

    A toggle in the Capture tab names no `watm:` mode and changes another one; then `watm:` modes
    are kept. An edit in the options editor names the `watm:` modes that shall stay, or removes
    nothing else; then it is applied unchanged.
    """
    ours = [mode for mode in current if mode.startswith(PREFIX)]
    others = [mode for mode in current if mode not in ours]
    names_ours = any(str(mode).startswith(PREFIX) for mode in update)
    if not ours or names_ours or update == others:
        return update
    logger.info("Capture tab: %s left running; stop it with watm.unload", ", ".join(ours))
    return [*update, *ours]


handlers: list[Any] = [
    (r"/watm/?", Page),
    (r"/watm/servers", Servers),
    (r"/watm/swap", Swap),
    (r"/watm/(page\.css|page\.js|icon\.svg)", Asset),
    (r"/options(?:\.json)?", Options),
]
