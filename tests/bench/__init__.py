"""`make bench`: the WireGuard module beside mitmproxy's own server."""
