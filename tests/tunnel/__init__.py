"""Programs with proxy settings, through a tunnel to wireguard-go and boringtun-cli."""
