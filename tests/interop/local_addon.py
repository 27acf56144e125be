"""An addon that answers requests for `/SIZE` with that many bytes, and sends everything else to a server on this
machine.
"""

from mitmproxy import ctx, http


class Local:
    def load(self, loader) -> None:
        loader.add_option("local_server", int, 0, "port of the server on this machine")

    def server_connect(self, data) -> None:
        data.server.address = ("127.0.0.1", ctx.options.local_server)

    def request(self, flow: http.HTTPFlow) -> None:
        size = flow.request.path.removeprefix("/")
        if size.isdecimal():
            flow.response = http.Response.make(200, bytes(int(size)))


addons = [Local()]
