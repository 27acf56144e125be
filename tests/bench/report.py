"""Reports of samples as text."""

from collections.abc import Iterator
from statistics import median

from .studies import Study


def line(record: dict) -> str:
    """Formats one sample, for people who watch."""
    head = f"{record['study']}, {record['placement']}, {record['server']}"
    if "error" in record:
        return f"{head}: failed: {record['error']}"
    figures = ", ".join(f"{m['title'].strip()} {m['value']:.{m['digits']}f}" for m in record["measures"])
    return f"{head}: {figures} (load {record['load']:.1f})"


def tables(environment: dict, records: list[dict], studies: list[Study]) -> str:
    """Formats medians, a table for each study and placement."""
    lines = [", ".join(f"{name} {value}" for name, value in environment.items())]
    for study in studies:
        for placement in study.placements:
            here = [r for r in records if r["study"] == study.title and r["placement"] == placement]
            if here:
                lines += ["", *_table(study, placement, here)]
    return "\n".join(lines)


def _table(study: Study, placement: str, records: list[dict]) -> Iterator[str]:
    kinds = [kind for kind in study.servers if any(r["server"] == kind for r in records)]
    repetitions = 1 + max(r["repetition"] for r in records)
    ours, theirs = study.compared
    yield f"{study.title}, {placement}: median of {repetitions} [least..most]; the ratio is {ours} to {theirs}"
    yield ""
    rows = [["", *kinds, "ratio"]]
    for name, title in _titles(records):
        cells, medians = [], {}
        for kind in kinds:
            found = [
                (m["value"], m["digits"])
                for r in records
                if r["server"] == kind and r.get("name") == name
                for m in r["measures"]
                if m["title"] == title
            ]
            cells.append(_cell(found))
            if found:
                medians[kind] = median(value for value, _ in found)
        ratio = f"{medians[ours] / medians[theirs]:.2f}" if ours in medians and medians.get(theirs) else ""
        rows.append([title, *cells, ratio])
    for kind in kinds:
        for failure in {r["error"] for r in records if r["server"] == kind and "error" in r}:
            yield f"{kind} failed: {failure}"
    yield from _aligned(rows)


def _titles(records: list[dict]) -> list[tuple[str, str]]:
    """Returns samples and their figures, in order of arrival."""
    return list(dict.fromkeys((r["name"], m["title"]) for r in records for m in r.get("measures", ())))


def _cell(found: list[tuple[float, int]]) -> str:
    if not found:
        return "-"
    values, digits = [value for value, _ in found], found[0][1]
    text = f"{median(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]
