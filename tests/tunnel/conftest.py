"""Programs that know proxies, through a tunnel to wireguard-go and boringtun-cli."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / folder) for folder in ("tls", "tunnel/bench")]  # certificates; clients, completion
