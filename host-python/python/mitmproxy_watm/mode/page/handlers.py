"""Handlers of the page in mitmweb, and a guard that keeps its Capture tab from stopping `watm:` modes."""

import asyncio
import json
import logging
import re
from typing import Any, cast

import tornado.web
from mitmproxy import ctx
from mitmproxy.tools.web import app
from tornado.http1connection import HTTP1Connection

from mitmproxy_watm._errors import plain
from mitmproxy_watm._native import ClientConfig
from mitmproxy_watm.mode.instance import WatmInstance
from mitmproxy_watm.mode.page import sections
from mitmproxy_watm.mode.spec import PREFIX
from mitmproxy_watm.mode.status import instances
from mitmproxy_watm.mode.waiting import THREADS
from mitmproxy_watm.modules import LARGEST, AnyModule, NamedBytes
from mitmproxy_watm.upstream.status import upstreams
from mitmproxy_watm.upstream.upstream import Upstream
from mitmproxy_watm.words import size

logger = logging.getLogger(__name__)

CHUNK = 1 << 18
"""The bytes of a download that are read at once."""

_LINK = '<link rel="stylesheet" href="/watm/link.css"><a class="watm-link" href="/watm">Transport modules</a>'

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class _Handler(app.RequestHandler):
    """A handler behind mitmweb's login, if there is one."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    def auth_fail(self, invalid_password: bool) -> None:
        """Show how to log in."""
        self.render("login.html", invalid_password=invalid_password)

    def _argument(self, name: str) -> str:
        """An argument of the query, empty if it is missing. Older releases of tornado type it as optional."""
        return self.get_query_argument(name, "") or ""


class Page(_Handler):
    """The page, which its login form posts to as well."""

    def get(self) -> None:
        self.write(sections.render(self.xsrf_token.decode()))

    post = get


class Servers(_Handler):
    """The part of the page that it fetches to refresh itself."""

    def get(self) -> None:
        self.write(sections.render_servers())


class Client(_Handler):
    """A client configuration as a file."""

    def get(self) -> None:
        config = _config(self._argument("spec"), self._argument("index"))
        # A module wrote both.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", config.name)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.write(config.content)


class Swap(_Handler):
    """The swap by name: `{"spec": ..., "module": ...}`. Answers after the swap."""

    async def post(self) -> None:
        spec, module = _texts(self.json, "spec", "module")
        self.write(await _swap(_running(spec), module))


class Rollback(_Handler):
    """The way back to the previous module: `{"spec": ...}`. Answers after the swap."""

    async def post(self) -> None:
        (spec,) = _texts(self.json, "spec")
        running = _running(spec)
        running.observe()
        if running.history.previous is None:
            raise app.APIError(409, f"{spec} has no previous module; swap another in first")
        self.write(await _swap(running, running.history.previous))


class Capture(_Handler):
    """The capture of a server: a file, begun and ended with `{"spec": ..., "action": "start"}` or `"stop"`."""

    async def get(self) -> None:
        instance = _server(self._argument("spec"))
        file = instance.page_capture.file
        if file is None:
            raise app.APIError(404, f"{instance.mode.full_spec} has no capture; start one")
        self.set_header("Content-Type", "application/x-pcapng")
        self.set_header("Content-Disposition", 'attachment; filename="capture.pcapng"')
        with file.open("rb") as content:
            while part := content.read(CHUNK):
                self.write(part)
                await self.flush()

    async def post(self) -> None:
        spec, action = _texts(self.json, "spec", "action")
        instance = _server(spec)
        if action not in ("start", "stop"):
            raise app.APIError(400, f'the action {action!r} is neither "start" nor "stop"')
        capture, server = instance.page_capture, instance.server
        assert server is not None  # it runs
        change = capture.start if action == "start" else capture.stop
        try:
            await asyncio.get_running_loop().run_in_executor(THREADS, change, server)
        except (OSError, ValueError) as e:
            raise app.APIError(409, plain(e)) from e
        self.write({"capturing": capture.writing})


class Network(_Handler):
    """The bad network of a server: `{"spec": ..., "words": ...}`."""

    async def post(self) -> None:
        spec, words = _texts(self.json, "spec", "words")
        instance = _server(spec)
        try:
            await asyncio.wrap_future(instance.change_network(words.strip() or "off"))
        except (OSError, ValueError) as e:
            raise app.APIError(409, plain(e)) from e
        self.write({"network": instance.network})


@tornado.web.stream_request_body
class Upload(_Handler):
    """The swap by file: the content as the body, `spec` and `name` in the query. Answers after the swap.

    mitmweb accepts bodies of gigabytes, and reads one before it asks who sent it. A body for this
    handler is refused at its header unless the sender is logged in and it is small enough.
    """

    _content: bytearray

    def prepare(self) -> None:
        super().prepare()
        self._content = bytearray()
        if not self._is_welcome():
            raise tornado.web.HTTPError(403)
        length = self.request.headers.get("Content-Length")
        if length is None:
            # In chunks, which tornado counts.
            cast(HTTP1Connection, self.request.connection).set_max_body_size(LARGEST)
        elif int(length) > LARGEST:
            raise app.APIError(413, f"The file has more than {size(LARGEST)}, the limit for modules; choose a .wasm file.")

    def data_received(self, chunk: bytes) -> None:
        self._content += chunk

    async def post(self) -> None:
        spec, name = self._argument("spec"), self._argument("name")
        # A name for people, and none for a path.
        name = re.sub(r"[^\w. ()+-]", "_", name.replace("\\", "/").rpartition("/")[2])[:100]
        self.write(await _swap(_running(spec), NamedBytes(name or "module.wasm", bytes(self._content))))

    def _is_welcome(self) -> bool:
        if "is_valid_password" not in self.settings:
            return True
        scheme, _, password = self.request.headers.get("Authorization", "").partition(" ")
        return bool(self.current_user or scheme == "Bearer" and self.settings["is_valid_password"](password))


class Asset(_Handler):
    """The page's style, script and icon."""

    def get(self, name: str) -> None:
        self.set_header("Content-Type", _TYPES[name.rpartition(".")[2]])
        self.write(sections.asset(name))


class Index(app.IndexHandler):
    """mitmweb's own start page, with a link to this one beside its tabs."""

    def render(self, template_name: str, **arguments: Any) -> Any:
        """Add the link, unless this is the login."""
        if not template_name.endswith("index.html"):
            return super().render(template_name, **arguments)
        html = self.render_string(template_name, **arguments).decode()
        return self.finish(html.replace("</body>", f"{_LINK}</body>", 1))


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


def _texts(content: Any, *names: str) -> list[str]:
    """Returns the members of a JSON object. Each must be a text."""
    if not isinstance(content, dict) or not all(isinstance(content.get(name), str) for name in names):
        wanted = " and ".join(f'"{name}"' for name in names)
        raise app.APIError(400, f"a JSON object with the text {wanted} is expected")
    return [content[name] for name in names]


def _running(spec: str) -> WatmInstance | Upstream:
    """Returns the running server or upstream of this name."""
    for instance in instances():
        if instance.mode.full_spec == spec and instance.is_running:
            return instance
    for upstream in upstreams():
        if upstream.spec.name == spec and upstream.dialer is not None:
            return upstream
    raise app.APIError(404, f"{spec} does not run; reload the page")


def _server(spec: str) -> WatmInstance:
    """Returns the running server of this name."""
    running = _running(spec)
    if not isinstance(running, WatmInstance):
        raise app.APIError(404, f"{spec} is an upstream; only servers have captures and bad networks here")
    return running


def _config(spec: str, index: str) -> ClientConfig:
    """Returns a client configuration of the server with this name."""
    for instance in instances():
        if instance.mode.full_spec == spec and instance.is_running:
            configs = instance.client_configs()
            if index.isascii() and index.isdigit() and int(index) < len(configs):
                return configs[int(index)]
    raise app.APIError(404, f"{spec} has no such client configuration; reload the page")


async def _swap(running: WatmInstance | Upstream, module: AnyModule) -> dict[str, Any]:
    """Swaps, and returns the result for the page."""
    swapped = await running.swap(module)
    current = running.history.current
    return {"swapped": swapped, "error": running.swap_error, "module": None if current is None else current.name}


handlers: list[Any] = [
    (r"/watm/?", Page),
    (r"/watm/servers", Servers),
    (r"/watm/client", Client),
    (r"/watm/swap", Swap),
    (r"/watm/rollback", Rollback),
    (r"/watm/upload", Upload),
    (r"/watm/capture", Capture),
    (r"/watm/network", Network),
    (r"/watm/(page\.css|page\.js|link\.css|icon\.svg)", Asset),
    (r"/", Index),
    (r"/options(?:\.json)?", Options),
]
