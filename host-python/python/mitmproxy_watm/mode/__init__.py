"""The parts of the proxy mode; `mitmproxy_watm.mitmproxy` has what others use."""
