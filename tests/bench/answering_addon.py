"""An addon that answers every request itself: `/100` with 100 bytes, and `/` with 1000."""

from mitmproxy import http

USUAL = 1000


class Answering:
    def request(self, flow: http.HTTPFlow) -> None:
        flow.response = http.Response.make(200, b"x" * int(flow.request.path.strip("/") or USUAL))


addons = [Answering()]
