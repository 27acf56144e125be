"""An addon that chooses an upstream for each connection by its path or its port."""

from mitmproxy_watm.mitmproxy import use_upstream


class Chooser:
    def requestheaders(self, flow):
        use_upstream(flow, flow.request.headers.get("x-upstream"))

    def server_connect(self, data):
        if data.server.address[1] == 81:
            use_upstream(data.server, "nowhere")


addons = [Chooser()]
