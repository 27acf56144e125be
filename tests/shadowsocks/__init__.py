"""Shadowsocks against other people's programs."""
