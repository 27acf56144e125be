"""Plots and tables of the published benchmarks: `make plots`.

`benchmarks.json` has the published results, with the machine and the commit.

The plots, and the tables of docs/src/benchmarks.md, come from there, including rows that WATM
loses. With `--bench build/bench.json`, the medians of that run of `make bench` replace the
published ones, in plots that go to `--output`. `--publish` puts them into `benchmarks.json`, the
plots and the page instead. `--tunnel build/bench-tunnel.json` and `--fairness` do the same for
`make bench-tunnel` and `make bench-fairness`.
"""

import argparse
import json
import math
import re
import textwrap
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from svg import GREY, INK, Picture

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "src" / "images"
RESULTS = HERE / "benchmarks.json"

AHEAD, BEHIND = "#1a7f37", "#cf222e"
COLOURS = ["#1a7f37", "#0969da", "#9a6700", "#8250df", "#57606a"]

PAGE = HERE.parent / "src" / "benchmarks.md"


@dataclass(frozen=True)
class Row:
    """A row of a table, and where a run of `make bench` has its figures."""

    name: str
    study: str
    sample: str
    measure: str
    better: str | None
    servers: tuple[str, str] = ("native", "watm")


NATIVE = [
    Row("echo of 1000 bytes, one connection: messages/s", "traffic", "echo", r"echo .*: msg/s", "higher"),
    Row("the same on 10 connections: messages/s", "traffic", "echo-10", r"echo .*: msg/s", "higher"),
    Row("UDP echo, one at a time: messages/s", "traffic", "udp", r"UDP echo .*: msg/s", "higher"),
    Row("UDP echo, 32 in flight: messages/s", "traffic", "udp-32", r"UDP echo .*: msg/s", "higher"),
    Row("connect, echo, close, one at a time: per second", "traffic", "connect", r"connect.*: conn/s", "higher"),
    Row("the same, 50 at a time: per second", "traffic", "connect-50", r"the same.*: conn/s", "higher"),
    Row("upload: server CPU seconds per GB", "traffic", "up", r"  server CPU s/GB", "lower"),
    Row("download: server CPU seconds per GB", "traffic", "down", r"  server CPU s/GB", "lower"),
    Row("one message beside 10,000 idle flows: server CPU µs", "idle flows", "10000 flows", r"  server CPU us each", "lower"),
    Row("10,000 idle flows: MB", "idle flows", "10000 flows", r"10000 idle flows: MB", "lower"),
    Row("download over a path of 50 ms: MB/s", "long paths", "down 50 ms", r"down.*: MB/s", "higher"),
    Row("upload over a path of 50 ms: MB/s", "long paths", "up 50 ms", r"up.*: MB/s", "higher"),
    Row("slowest of 15 handshakes in a row: ms", "handshakes", "15 handshakes", r"  slowest ms", "lower"),
    Row("resident after 1 GB and 10,000 connections: MB", "memory", "and 10000 short connections", r"resident.*: MB", "lower"),
    Row("mitmdump, GETs on one connection: per second", "mitmdump", "one connection", r"GET.*: requests/s", "higher"),
    Row(
        "the transport without a sandbox, and in the module: CPU seconds per GB",
        "the price of the sandbox",
        "echo",
        r".*: server CPU s/GB",
        None,
        ("crate", "watm"),
    ),
]

TUN = [
    Row("echo of 1000 bytes, one connection: messages/s", "tun", "echo", r"echo .*: msg/s", "higher"),
    Row("the same on 10 connections: messages/s", "tun", "echo-10", r"echo .*: msg/s", "higher"),
    Row("UDP echo, one at a time: messages/s", "tun", "udp", r"UDP echo .*: msg/s", "higher"),
    Row("UDP echo, 32 in flight: messages/s", "tun", "udp-32", r"UDP echo .*: msg/s", "higher"),
    Row("connect, echo, close, one at a time: per second", "tun", "connect", r"connect.*: conn/s", "higher"),
    Row("the same, 50 at a time: per second", "tun", "connect-50", r"the same.*: conn/s", "higher"),
    Row("upload: MB/s", "tun", "up", r"upload.*: MB/s", "higher"),
    Row("upload: server CPU seconds per GB", "tun", "up", r"  server CPU s/GB", "lower"),
    Row("download: MB/s", "tun", "down", r"download.*: MB/s", "higher"),
    Row("download: server CPU seconds per GB", "tun", "down", r"  server CPU s/GB", "lower"),
    Row("upload, packets of 64 KiB: MB/s", "tun", "up 64 KiB", r"upload.*: MB/s", "higher"),
    Row("download, packets of 64 KiB: MB/s", "tun", "down 64 KiB", r"download.*: MB/s", "higher"),
    Row("`exec`, from the start to the first answer: s", "exec", "start", r"from the start.*: s", "lower"),
    Row("`exec`, GETs on one connection: per second", "exec", "one connection", r"GET.*: requests/s", "higher"),
    Row("`exec`, a connection for each GET: median µs", "exec", "a connection each", r"  p50 us", "lower"),
    Row("`exec`, the same: server CPU µs", "exec", "a connection each", r"  server CPU us each", "lower"),
    Row("`exec`, GETs of 10 MB: MB/s", "exec", "download", r"GET.*: MB/s", "higher"),
    Row("`exec`, the same: server CPU seconds per GB", "exec", "download", r"  server CPU s/GB", "lower"),
]

# The tables that come from `make bench`.
ROWS = {"native": NATIVE, "tun": TUN}


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
    columns = list(range(1, len(tunnel["columns"])))
    return {
        "bench-native.svg": factors(results["native"]),
        "bench-tunnel.svg": grouped(tunnel, "Mbit/s without a delay, more is better", tunnel["rows"][:4], columns),
        "bench-tunnel-paths.svg": grouped(tunnel, "Mbit/s over emulated paths, more is better", tunnel["rows"][4:16], columns),
        "bench-tls.svg": grouped(tls, "share of hitch's; more is better, hitch is 1", tls["rows"], [1, 2, 3, 4]),
        "bench-shadowsocks.svg": grouped(shadowsocks, "MB/s, more is better", shadowsocks["rows"][:8], [3, 1, 2, 4, 5]),
        "bench-water.svg": grouped(
            water, "microseconds, less is better" + scale, [water["rows"][at] for at in (0, 1, 4)], [6, 4, 3, 2, 1], True
        ),
    }


def median_of(run: dict[str, Any], row: Row, server: str) -> str | None:
    """The median of a figure over the processes of a server, with the digits that the run gives it."""
    found = [
        (measure["value"], measure["digits"])
        for record in run["samples"]
        if (record["study"], record["placement"], record["server"]) == (row.study, "pinned", server)
        and record.get("name") == row.sample
        for measure in record["measures"]
        if re.fullmatch(row.measure, measure["title"])
    ]
    return f"{median(value for value, _ in found):.{found[0][1]}f}" if found else None


def measured(bench: Path, published: dict[str, Any], wanted: list[Row]) -> dict[str, Any]:
    """A study with the medians of a run of `make bench`. Rows that the run lacks are left out."""
    run = json.loads(bench.read_text())
    rows, better = [], []
    for row in wanted:
        theirs, ours = (median_of(run, row, server) for server in row.servers)
        if theirs is not None and ours is not None and float(theirs) > 0:
            ratio = float(ours) / float(theirs)
            rows.append([row.name, theirs, ours, f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"])
            better.append(row.better)
    environment = _environment(bench, run["environment"])
    environment["machine"] += ", server and client on a CPU each"
    return published | environment | {"rows": rows, "better": better}


def all_measured(bench: Path, published: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """The studies that a run of `make bench` has, by name. `whole`: a study has all rows, or none."""
    found = {name: measured(bench, published[name], rows) for name, rows in ROWS.items()}
    found = {name: study for name, study in found.items() if study["rows"]}
    if not found:
        raise SystemExit(f"plots: {bench} has no pinned samples of both servers; run `make bench`")
    for name, study in found.items():
        if whole and len(study["rows"]) < len(ROWS[name]):
            raise SystemExit(f"plots: {bench} lacks rows of {name}; a run that is published has all its studies and is not --quick")
    return found


# The columns of `make bench-tunnel`: the client, and its title.
CLIENTS = {
    "watm": "WATM",
    "watm, BBR": "WATM, BBR",
    "wireguard-go": "wireguard-go",
    "kernel": "kernel TCP",
    "kernel, BBR": "kernel TCP, BBR",
}


def of_tunnel(run: Path, published: dict[str, Any]) -> dict[str, Any]:
    """The study of a run of `make bench-tunnel`."""
    taken = json.loads(run.read_text())
    rounds = max(len(samples) for by in taken["bulk"].values() for samples in by.values())
    rows = []
    for name, by in taken["bulk"].items():
        way, _, title = name.partition(": ")
        rows.append([f"{way}, {title}", *(_sent(by.get(client, []), rounds) for client in CLIENTS)])
    trips = taken["round_trip_us"]
    rows.append(["round trip of 64 bytes, 0 ms", *(f"{median(trips[client]):.0f} µs" for client in CLIENTS)])
    for title, by in taken["completion"].items():
        seconds = (by.get(client) for client in CLIENTS)
        rows.append([title, *(f"{median(s['seconds'] for s in one):.2f} s" if one else "did not end" for one in seconds)])
    return published | _environment(run, taken["environment"]) | {
        "method": f"medians of {rounds} rounds, in turns; Mbit/s, and seconds of the client's processors for a GB; below, seconds "
        "until the last byte has arrived",
        "columns": ["path", *CLIENTS.values()],
        "rows": rows,
    }


def _sent(samples: list[dict[str, Any]], rounds: int) -> str:
    """The cell of a client, which is left out once a transfer does not end."""
    if len(samples) < rounds:
        return "did not end"
    rate = f"{median(sample['mbits'] for sample in samples):.0f}"
    spent = [sample["cpu"] for sample in samples if sample["cpu"] is not None]
    return f"{rate}, {median(spent):.1f} s" if spent else rate


def of_fairness(run: Path, published: dict[str, Any]) -> dict[str, Any]:
    """The study of a run of `make bench-fairness`."""
    taken = json.loads(run.read_text())
    firsts = {"watm": "WATM", "watm, BBR": "WATM, BBR", "kernel": "kernel, CUBIC"}
    cells: dict[tuple[int, int, str], dict[str, str]] = {}
    for row in taken["rows"]:
        beside = " and ".join(control.upper() for control in row["beside"])
        cells.setdefault((row["round_trip"], row["queue"], beside), {})[row["first"]] = row["spread"]
    rounds = max(len(row["mbits"]) for row in taken["rows"])
    seconds = taken["environment"]["seconds"]
    return published | _environment(run, taken["environment"]) | {
        "method": f"medians and ranges of {rounds} rounds of {seconds} s, in turns; the share of the connection, where 1 is fair",
        "columns": ["round trip, queue", "beside the kernel's", *firsts.values()],
        "rows": [
            [f"{trip} ms, {queue} ms", beside, *(by[first] for first in firsts)] for (trip, queue, beside), by in cells.items()
        ],
    }


def _environment(run: Path, environment: dict[str, Any]) -> dict[str, str]:
    return {
        "commit": environment["commit"],
        "date": date.fromtimestamp(run.stat().st_mtime).isoformat(),
        "machine": f"{environment['cpus']} cores of an {environment['cpu']}",
    }


def with_tables(page: str, results: dict[str, Any]) -> str:
    """A page whose tables, each below a comment with a study's name, are those of the studies."""
    for name, study in results.items():
        command, rest = origin(study)[0].split(", ", 1)
        said = textwrap.fill(f"Measured with `{command}`, {rest}. Method: {study['method']}.", 124, break_on_hyphens=False)
        block = f"<!-- {name} -->\n\n{said}\n\n{table(study)}\n\n<!-- end -->"
        page, count = re.subn(rf"<!-- {name} -->.*?<!-- end -->", lambda _: block, page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"plots: {PAGE} has {count} comments <!-- {name} -->; must be one")
    return page


def publish(results: dict[str, Any]) -> None:
    """Write the results and the page."""
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), results))


def main() -> None:
    """Draw into the folder of the book, or elsewhere."""
    parser = argparse.ArgumentParser(prog="plots", description=__doc__.partition("\n")[0])
    parser.add_argument("--bench", type=Path, help="the samples of `make bench`, such as build/bench.json")
    parser.add_argument("--tunnel", type=Path, help="those of `make bench-tunnel`, such as build/bench-tunnel.json")
    parser.add_argument("--fairness", type=Path, help="the output of `make bench-fairness`")
    parser.add_argument("--publish", action="store_true", help="put the figures of these runs into the book")
    parser.add_argument("--output", type=Path, help="a folder for the plots; by default that of the book")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    if (options.bench or options.tunnel or options.fairness) and options.output is None and not options.publish:
        parser.error("figures of a run go with --output FOLDER or with --publish")
    if options.bench:
        results |= all_measured(options.bench, results, whole=options.publish)
    if options.tunnel:
        results["tunnel"] = of_tunnel(options.tunnel, results["tunnel"])
    if options.fairness:
        results["fairness"] = of_fairness(options.fairness, results["fairness"])
    if options.output is None:
        publish(results)
    folder = options.output or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in draw(results).items():
        (folder / name).write_text(content)
        print(folder / name)


if __name__ == "__main__":
    main()
