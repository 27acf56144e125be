"""Graphs of the traffic in the last two minutes, as SVG without scripts."""

import math
from collections.abc import Callable, Sequence
from html import escape

from mitmproxy_watm.history import KEPT, History
from mitmproxy_watm.words import counted, rate

WIDTH, HEIGHT = 600, 120
"""The size of the drawing, which the style stretches."""

SECONDS = KEPT - 1
"""The time from the left edge to the right one."""


def throughput(history: History) -> str:
    """Draws the bytes per second in each direction."""
    pairs = list(zip(history.samples, list(history.samples)[1:]))
    received = [(later.time, (later.received - first.received) / (later.time - first.time)) for first, later in pairs]
    sent = [(later.time, (later.sent - first.sent) / (later.time - first.time)) for first, later in pairs]
    now = history.rates
    return _figure(
        "Throughput",
        [("received", "Received", received, rate(now[0])), ("sent", "Sent", sent, rate(now[1]))],
        rate,
        least=1024,
        base=1024,
    )


def flows(history: History) -> str:
    """Draws the number of open flows."""
    points = [(sample.time, float(sample.flows)) for sample in history.samples]
    now = history.samples[-1].flows if history.samples else 0
    return _figure("Open flows", [("flows", "Open", points, str(now))], lambda most: counted(round(most), "flow"), least=4)


_Points = Sequence[tuple[float, float]]


def _figure(
    title: str,
    series: Sequence[tuple[str, str, _Points, str]],
    words: Callable[[float], str],
    *,
    least: float,
    base: int = 10,
) -> str:
    most = ceiling(max([least, *(value for _, _, points, _ in series for _, value in points)]), base)
    latest = max((time for _, _, points, _ in series for time, _ in points), default=0.0)
    drawn = "".join(_line(kind, points, latest, most) for kind, _, points, _ in series)
    legend = "".join(
        f'<li class="{kind}"><span class="swatch"></span>{escape(name)} <b>{escape(now)}</b></li>'
        for kind, name, _, now in series
    )
    said = f"{title} in the last two minutes; now: " + ", ".join(f"{name.lower()} {now}" for _, name, _, now in series)
    grid = "".join(f'<path class="grid" d="M0 {y}H{WIDTH}"/>' for y in (0, HEIGHT / 2, HEIGHT))
    return (
        f'<figure class="graph"><figcaption><h3>{escape(title)}</h3><ul class="legend">{legend}</ul></figcaption>'
        f'<div class="plot"><span class="most">{escape(words(most))}</span>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(said)}">'
        f"{grid}{drawn}</svg></div>"
        '<div class="times" aria-hidden="true"><span>2 min ago</span><span>1 min ago</span><span>now</span></div></figure>'
    )


def _line(kind: str, points: _Points, latest: float, most: float) -> str:
    if len(points) < 2:
        return ""
    places = [(WIDTH - (latest - time) * WIDTH / SECONDS, HEIGHT - HEIGHT * value / most) for time, value in points]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return (
        f'<path class="area {kind}" d="M{places[0][0]:.1f} {HEIGHT}L{line}L{places[-1][0]:.1f} {HEIGHT}Z"/>'
        f'<path class="line {kind}" d="M{line}"/>'
    )


def ceiling(most: float, base: int) -> float:
    """Returns the next round number: 1, 2 or 5 times a power of ten, or of two for bytes."""
    if base != 10:
        return float(2 ** math.ceil(math.log2(most)))
    power = 10 ** math.floor(math.log10(most))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= most))
