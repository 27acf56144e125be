"""`make bench-shadowsocks`: the module compared with other servers."""
