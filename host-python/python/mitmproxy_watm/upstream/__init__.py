"""Connections of mitmproxy to servers, through modules that dial."""
