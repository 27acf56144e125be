"""Samples in words."""

from statistics import median

from rounds import Plan


def line(sample: dict) -> str:
    """One sample, for those who watch."""
    head = f"{sample['placement']:8} {sample['server']:13} {sample['workload']:10}"
    if "error" in sample:
        return f"{head} failed: {sample['error']}"
    answer = sample["answer"]
    rate = answer.get("mb_per_second", answer.get("per_second"))
    latency = f"p50 {answer['p50_us']:6.0f} p99 {answer['p99_us']:6.0f} us" if "p50_us" in answer else " " * 25
    return (
        f"{head} {rate:9.1f}/s {latency}  CPU {sample['server_cpu_seconds']:5.2f} s"
        f" (client {sample['client_cpu_seconds']:5.2f})  RSS {sample['server_rss_mb']:5.1f} MB"
        f"  load {sample['load']:.1f}"
    )


def tables(environment: dict, samples: list[dict], plan: Plan) -> str:
    """Medians, a table a placement."""
    lines = ["", ", ".join(f"{name} {value}" for name, value in environment.items())]
    for placement in plan.placements:
        lines += ["", f"{placement}, median of {plan.repetitions} [least..most]; the ratio is watm to native", ""]
        rows = [["", *plan.servers, "ratio"]]
        for name, workload in plan.workloads.items():
            here = [s for s in samples if s["placement"] == placement and s["workload"] == name]
            rows += _rows(workload, here, plan.servers)
        memory = [s for s in samples if s["placement"] == placement and "answer" in s]
        rows.append(_row("RSS at most, MB", memory, plan.servers, lambda s: s["server_rss_mb"], "{:.0f}", max))
        lines += _aligned(rows)
    return "\n".join(lines)


def _rows(workload, samples: list[dict], servers: list[str]) -> list[list[str]]:
    def answer(field: str):
        return lambda sample: sample["answer"].get(field)

    title = f"{workload.title}: {workload.unit}"
    rows = [_row(title, samples, servers, answer(workload.figure), "{:.0f}", ranges=True)]
    if workload.volume:
        per_gb = 1e9 / workload.volume
        rows.append(_row("  server CPU s/GB", samples, servers, lambda s: s["server_cpu_seconds"] * per_gb, "{:.2f}"))
        rows.append(_row("  client CPU s/GB", samples, servers, lambda s: s["client_cpu_seconds"] * per_gb, "{:.2f}"))
        return rows
    rows.append(_row("  p50 us", samples, servers, answer("p50_us"), "{:.0f}"))
    rows.append(_row("  p99 us", samples, servers, answer("p99_us"), "{:.0f}"))
    operations = next(
        iter(s["answer"][f] for s in samples if "answer" in s for f in ("messages", "connections") if f in s["answer"]),
        0,
    )
    if operations:
        rows.append(
            _row(
                "  server CPU us each", samples, servers, lambda s: s["server_cpu_seconds"] * 1e6 / operations, "{:.0f}"
            )
        )
    if any(s.get("answer", {}).get("lost") for s in samples):
        rows.append(_row("  lost", samples, servers, answer("lost"), "{:.0f}"))
    return rows


def _row(title, samples, servers, value, form, summary=median, ranges=False) -> list[str]:
    cells, summaries = [], {}
    for server in servers:
        own = [s for s in samples if s["server"] == server]
        values = [value(s) for s in own if "answer" in s]
        failed = sum("error" in s for s in own)
        if not values:
            cells.append("failed" if failed else "-")
            continue
        summaries[server] = summary(values)
        text = form.format(summaries[server])
        if ranges and len(values) > 1:
            text += f" [{form.format(min(values))}..{form.format(max(values))}]"
        cells.append(text + (f" ({failed} failed)" if failed else ""))
    native, ours = summaries.get("native"), summaries.get("watm")
    return [title, *cells, f"{ours / native:.2f}" if native and ours is not None else ""]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
