"""mitmproxy's connections through modules, to other people's servers."""
