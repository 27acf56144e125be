"""Programs that know proxies, through a tunnel to wireguard-go and boringtun-cli."""
