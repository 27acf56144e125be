"""Shadowsocks with other implementations."""
