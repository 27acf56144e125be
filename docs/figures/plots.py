"""Plots and tables of the published benchmarks: `make plots`.

`benchmarks.json` has what the benchmarks said, as published, with the machine and the commit. Each figure is drawn
from there, rows that WATM loses included. With `--bench build/bench.json`, the figures of `make bench` on this machine
take the place of the published ones; `--output` says where the plots go then.
"""

import argparse
import json
import math
import re
from pathlib import Path
from statistics import median
from typing import Any

from svg import GREY, INK, Picture

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "src" / "images"
RESULTS = HERE / "benchmarks.json"

AHEAD, BEHIND = "#1a7f37", "#cf222e"
COLOURS = ["#1a7f37", "#0969da", "#9a6700", "#8250df", "#57606a"]

# The figures of `make bench` for the rows of "native": study, title of the measure. Two rows are of other commands.
MEASURED = {
    "echo of 1000 bytes, one connection: messages/s": ("traffic", r"echo 1000 B x \d+: msg/s"),
    "the same on 10 connections: messages/s": ("traffic", r"echo 1000 B x \d+, 10 connections: msg/s"),
    "UDP echo, one at a time: messages/s": ("traffic", r"UDP echo 100 B x \d+: msg/s"),
    "UDP echo, 32 in flight: messages/s": ("traffic", r"UDP echo 1200 B x \d+, window 32: msg/s"),
    "connect, echo, close, one at a time: per second": ("traffic", r"connect, echo, close x \d+: conn/s"),
    "the same, 50 at a time: per second": ("traffic", r"the same, 50 side by side x \d+: conn/s"),
    "download over a path of 50 ms: MB/s": ("long paths", r"down, 50 ms: MB/s"),
    "upload over a path of 50 ms: MB/s": ("long paths", r"up, 50 ms: MB/s"),
    "mitmdump, GETs on one connection: per second": ("mitmdump", r"GET, one connection: requests/s"),
}


def number(cell: str) -> float | None:
    """The number that a cell begins with."""
    found = re.match(r"[\d.]+", cell)
    return float(found[0]) if found else None


def origin(study: dict[str, Any]) -> list[str]:
    """The commit and the machine of a study, and the method, a line each."""
    commit = f"commit {study['commit']}" if study["commit"] else f"recorded in commit {study['recorded']}"
    return [f"{study['command']}, {commit}, {study['date']}; {study['machine']}", study["method"]]


def sign(picture: Picture, study: dict[str, Any], y: float) -> None:
    """The origin of a study below its bars."""
    for number_of, line in enumerate(origin(study)):
        picture.text(16, y + 14 * number_of, line, 10, fill=GREY)


def table(study: dict[str, Any]) -> str:
    """A study as a table of Markdown."""
    lines = ["| " + " | ".join(study["columns"]) + " |", "|" + "---|" * len(study["columns"])]
    lines += ["| " + " | ".join(row) + " |" for row in study["rows"]]
    return "\n".join(line.replace("|  |", "| |").replace("|  |", "| |") for line in lines)


def factors(study: dict[str, Any]) -> str:
    """Bars on a logarithmic scale: by which factor the second column is better than the first."""
    rows = []
    for (name, theirs, ours, *_), better in zip(study["rows"], study["better"], strict=True):
        first, second = number(theirs), number(ours)
        if better and first and second:
            rows.append((name, second / first if better == "higher" else first / second))
    width, left, right, step, top = 860, 350, 70, 24, 66
    picture = Picture(width, top + step * len(rows) + 64, study["title"])
    picture.text(16, 26, study["title"], 15, weight="bold")
    picture.text(16, 46, "factor by which the module is better than mitmproxy's native server; 1 is equal", 11, fill=GREY)
    low = min(0.5, *(factor for _, factor in rows))
    high = max(factor for _, factor in rows)

    def x(factor: float) -> float:
        return left + (width - left - right) * math.log(factor / low) / math.log(high / low)

    for at in (0.5, 1, 2, 5, 10, 20, 50, 100):
        if low <= at <= high:
            picture.line(x(at), top - 6, x(at), top + step * len(rows), INK if at == 1 else "#d0d7de")
            picture.text(x(at), top + step * len(rows) + 15, f"{at:g}", 11, "middle", GREY)
    for place, (name, factor) in enumerate(rows):
        y = top + step * place
        picture.text(left - 46, y + 15, name.replace("per second", "1/s"), 11, "end")
        picture.rect(min(x(1), x(factor)), y + 3, abs(x(factor) - x(1)), step - 8, AHEAD if factor >= 1 else BEHIND)
        label = f"{factor:.2f}" if factor < 2 else f"{factor:.2g}" if factor < 10 else f"{factor:.0f}"
        edge = x(factor) + 5 if factor >= 1 else x(factor) - 5
        picture.text(edge, y + 15, label, 11, "start" if factor >= 1 else "end")
    sign(picture, study, top + step * len(rows) + 38)
    return picture.done()


def grouped(study: dict[str, Any], unit: str, rows: list[list[str]], columns: list[int], logarithmic: bool = False) -> str:
    """A bar for each of these columns, in a group for each row."""
    width, left, right, bar, gap, top = 860, 300, 80, 13, 9, 84
    group = bar * len(columns) + gap
    picture = Picture(width, top + group * len(rows) + 42, study["title"])
    picture.text(16, 26, study["title"], 15, weight="bold")
    picture.text(16, 46, unit, 11, fill=GREY)
    place = 16.0
    for index, column in enumerate(columns):
        picture.rect(place, 58, 10, 10, COLOURS[index])
        picture.text(place + 15, 67, study["columns"][column], 11)
        place += 34 + 6.6 * len(study["columns"][column])
    values = [number(row[column]) for row in rows for column in columns]
    high = max(value for value in values if value)
    low = min(value for value in values if value) / 2

    def length(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if logarithmic else value / high
        return (width - left - right) * share

    for place_of, row in enumerate(rows):
        y = top + group * place_of
        picture.text(left - 10, y + bar * len(columns) / 2 + 4, re.sub(r": .*", "", row[0]), 11, "end")
        for index, column in enumerate(columns):
            value = number(row[column])
            if value is None:
                picture.text(left + 4, y + bar * (index + 1) - 3, row[column] or "not measured", 9, fill=GREY)
                continue
            picture.rect(left, y + bar * index, length(value), bar - 2, COLOURS[index])
            picture.text(left + length(value) + 5, y + bar * (index + 1) - 3, f"{value:g}", 10)
    sign(picture, study, top + group * len(rows) + 16)
    return picture.done()


def draw(results: dict[str, Any]) -> dict[str, str]:
    """Each plot by the name of its file."""
    tunnel, tls, shadowsocks, water = (results[name] for name in ("tunnel", "tls", "shadowsocks", "water"))
    scale = "; logarithmic scale"
    return {
        "bench-native.svg": factors(results["native"]),
        "bench-tunnel.svg": grouped(tunnel, "Mbit/s without a delay, more is better", tunnel["rows"][:4], [1, 2, 3, 4]),
        "bench-tunnel-paths.svg": grouped(tunnel, "Mbit/s over emulated paths, more is better", tunnel["rows"][4:16], [1, 2, 3, 4]),
        "bench-tls.svg": grouped(tls, "share of hitch's; more is better, hitch is 1", tls["rows"], [1, 2, 3, 4]),
        "bench-shadowsocks.svg": grouped(shadowsocks, "MB/s, more is better", shadowsocks["rows"][:8], [3, 1, 2, 4, 5]),
        "bench-water.svg": grouped(
            water, "microseconds, less is better" + scale, [water["rows"][at] for at in (0, 1, 4)], [6, 4, 3, 2, 1], True
        ),
    }


def measured(bench: Path, published: dict[str, Any]) -> dict[str, Any]:
    """The study "native" with the medians of a run of `make bench`."""
    run = json.loads(bench.read_text())
    rows, better = [], []
    for name, (study, title) in MEASURED.items():
        medians = []
        for server in ("native", "watm"):
            values = [
                measure["value"]
                for record in run["samples"]
                if (record["study"], record["placement"], record["server"]) == (study, "pinned", server)
                for measure in record.get("measures", ())
                if re.fullmatch(title, measure["title"])
            ]
            medians.append(median(values) if values else None)
        if None not in medians:
            rows.append([name, *(f"{value:.1f}" for value in medians), f"{medians[1] / medians[0]:.2f}"])
            better.append("higher")
    if not rows:
        raise SystemExit(f"plots: {bench} has no pinned sample of both servers; run `make bench`")
    environment = run["environment"]
    return published | {
        "commit": environment["commit"],
        "date": "this run",
        "machine": f"{environment['cpus']} CPUs of {environment['cpu']}",
        "method": "medians",
        "rows": rows,
        "better": better,
    }


def main() -> None:
    """Draw into the folder of the book, or elsewhere."""
    parser = argparse.ArgumentParser(prog="plots", description=__doc__.partition("\n")[0])
    parser.add_argument("--bench", type=Path, help="the samples of `make bench`, such as build/bench.json")
    parser.add_argument("--output", type=Path, default=IMAGES, help="the folder for the plots (%(default)s)")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    if options.bench:
        results["native"] = measured(options.bench, results["native"])
    options.output.mkdir(parents=True, exist_ok=True)
    for name, content in draw(results).items():
        (options.output / name).write_text(content)
        print(options.output / name)


if __name__ == "__main__":
    main()
