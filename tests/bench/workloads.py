"""The client's actions, and the fields that are read from its answers."""

from dataclasses import dataclass

ECHO = 7
SINK = 9
SOURCE = 19
TRICKLE = 20
# The longest packet of IP, in bytes.
LONGEST = 65_535


@dataclass(frozen=True)
class Workload:
    """An action of tests/wgclient with its parameters."""

    title: str
    action: str
    port: int
    options: dict[str, int]
    # The figure in the table, a field of the client's answer; more is better.
    figure: str
    unit: str
    # Bytes of payload that it moves; 0 if CPU time for each byte is meaningless.
    volume: int = 0

    @property
    def count(self) -> int:
        """The number of round trips or connections in all."""
        options = self.options
        return options.get("count", options.get("messages", 0) * options.get("connections", 1))


def _bulk(title: str, action: str, port: int, size: int, connections: int) -> Workload:
    return Workload(
        title,
        action,
        port,
        {"bytes": size, "connections": connections},
        "mb_per_second",
        "MB/s",
        size * connections,
    )


def _catalogue(
    *, echoes: int, side_by_side: int, megabytes: int, datagrams: int, connections: int
) -> dict[str, Workload]:
    size = megabytes * 1_000_000
    return {
        "echo": Workload(
            f"echo 1000 B x {echoes}", "echo", ECHO, {"messages": echoes, "size": 1000}, "per_second", "msg/s"
        ),
        "echo-10": Workload(
            f"echo 1000 B x {side_by_side}, 10 connections",
            "echo",
            ECHO,
            {"messages": side_by_side, "size": 1000, "connections": 10},
            "per_second",
            "msg/s",
        ),
        "up": _bulk(f"upload {megabytes} MB", "bulk-up", SINK, size, 1),
        "down": _bulk(f"download {megabytes} MB", "bulk-down", SOURCE, size, 1),
        "up-4": _bulk(f"4 uploads, {megabytes} MB in all", "bulk-up", SINK, size // 4, 4),
        "down-4": _bulk(f"4 downloads, {megabytes} MB in all", "bulk-down", SOURCE, size // 4, 4),
        "udp": Workload(
            f"UDP echo 100 B x {datagrams}", "udp-echo", ECHO, {"messages": datagrams, "size": 100}, "per_second", "msg/s"
        ),
        "udp-32": Workload(
            f"UDP echo 1200 B x {datagrams}, window 32",
            "udp-echo",
            ECHO,
            {"messages": datagrams, "size": 1200, "window": 32},
            "per_second",
            "msg/s",
        ),
        "connect": Workload(
            f"connect, echo, close x {connections}", "connect", ECHO, {"count": connections}, "per_second", "conn/s"
        ),
        "connect-50": Workload(
            f"the same, 50 side by side x {connections}",
            "connect",
            ECHO,
            {"count": connections, "parallel": 50},
            "per_second",
            "conn/s",
        ),
    }


FULL = _catalogue(echoes=10_000, side_by_side=1_000, megabytes=200, datagrams=10_000, connections=1_000)
QUICK = _catalogue(echoes=200, side_by_side=20, megabytes=4, datagrams=200, connections=50)
