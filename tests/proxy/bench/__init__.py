"""`make bench-proxy`: the PROXY protocol compared with mmproxy."""
