"""`make demo`: a real client's traffic in mitmproxy."""
