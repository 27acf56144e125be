"""mitmproxy's connections through modules to other servers."""
