"""The targets, compared with the results."""

from collections.abc import Iterator
from statistics import median

from .questions import SIZES

# The clients that must reach a target, by the project of their module.
_OURS = ("ours-v1", "ours-component")

# Microseconds in addition to TCP, for messages of at most this many bytes.
_ROUND_TRIP_US, _ROUND_TRIP_SIZE = 15, 4096
# The share of the native copy's rate, for pieces of at least this many bytes.
_SHARE, _SHARE_SIZE = 0.9, 512
_IDLE_MB, _IDLE_THREADS, _IDLE_DESCRIPTORS = 300, 8, 2  # the socket and one more
_FIRST_BYTE_US = 1_000


def lines(records: list[dict]) -> Iterator[str]:
    """Returns a line for each figure."""
    figures = _Figures(records)
    yield "to be reached:"
    for kind in _OURS:
        for size in SIZES:
            if size <= _ROUND_TRIP_SIZE:
                ours = figures.get("round trips", kind, f"{size}", "p50_us")
                raw = figures.get("round trips", "raw-rust", f"{size}", "p50_us")
                if ours and raw:
                    what = f"round trip of {size} B beyond TCP, us"
                    yield _line(kind, what, ours - raw, _ROUND_TRIP_US, ours - raw <= _ROUND_TRIP_US)
            if size >= _SHARE_SIZE:
                ours = figures.get("throughput", kind, f"{size}", "mbit_per_second")
                for hop in ("hop-go", "hop-rust"):
                    native = figures.get("throughput", hop, f"{size}", "mbit_per_second")
                    if native and ours is not None:
                        share = ours / native
                        yield _line(kind, f"throughput at {size} B, of {hop}", share, _SHARE, share >= _SHARE)
        first = figures.get("connections", kind, "connect", "p50_us")
        if first:
            yield _line(kind, "dial to first byte, us", first, _FIRST_BYTE_US, first < _FIRST_BYTE_US)
        for index, (what, limit) in enumerate(
            [("MB", _IDLE_MB), ("threads", _IDLE_THREADS), ("descriptors a connection", _IDLE_DESCRIPTORS)]
        ):
            # The order is that of the study. Its second figure only qualifies the first.
            value = figures.measure("idle connections", kind, index + (index > 0))
            if value is not None:
                yield _line(kind, f"idle connections: {what}", value, limit, value <= limit)


def _line(kind: str, what: str, value: float, limit: float, reached: bool) -> str:
    return f"  {'reached' if reached else 'MISSED '}  {kind}: {what}: {value:.2f} (limit {limit})"


class _Figures:
    """Returns medians, of pinned samples if there are any."""

    def __init__(self, records: list[dict]) -> None:
        self._records = [record for record in records if "error" not in record]

    def get(self, study: str, kind: str, name: str, field: str) -> float | None:
        """Returns the median of a field of the client's answer."""
        return _median([r["answer"][field] for r in self._chosen(study, kind) if r["name"] == name])

    def measure(self, study: str, kind: str, index: int) -> float | None:
        """Returns the median of a figure of the table, by its place."""
        return _median([r["measures"][index]["value"] for r in self._chosen(study, kind)])

    def _chosen(self, study: str, kind: str) -> list[dict]:
        found = [r for r in self._records if r["study"] == study and r["server"] == kind]
        return [r for r in found if r["placement"] == "pinned"] or found


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
