"""The parts of the proxy mode; `mitmproxy_watm.mitmproxy` is its interface."""
