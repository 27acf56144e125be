"""`python -m mitmproxy_watm` prints the path of the addon, for mitmproxy's option -s."""

from importlib import resources

print(resources.files("mitmproxy_watm") / "addon" / "watm.py")
