"""`make bench-shadowsocks`: our module beside other people's servers."""
