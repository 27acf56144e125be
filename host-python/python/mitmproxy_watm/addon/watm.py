"""The addon, for a stock mitmproxy: -s "$(python -m mitmproxy_watm)" --set watm=wireguard@51820."""

from mitmproxy_watm.mitmproxy import Watm
from mitmproxy_watm.mode.signals import Signals

addons = [Watm(), Signals()]
