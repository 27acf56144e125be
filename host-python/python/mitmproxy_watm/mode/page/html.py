"""Parts that all sections of the page consist of."""

from collections.abc import Iterable, Sequence
from html import escape

ICONS = {
    "yes": '<path d="M3 8.5l3.2 3.2L13 4.8"/>',
    "no": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "alert": '<path d="M8 2.2l6.3 11.3H1.7zM8 6.4v3.4M8 11.6v.2"/>',
    "down": '<path d="M8 2.5v8M4.5 7.5L8 11l3.5-3.5M3 13.5h10"/>',
    "copy": '<path d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3"/>',
    "back": '<path d="M6 3L2.5 6.5 6 10M2.5 6.5H10a3.5 3.5 0 010 7H7"/>',
}
"""Drawings of 16 by 16, in lines."""


def icon(name: str) -> str:
    """Returns a drawing beside words that say the same."""
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{ICONS[name]}</svg>'


def alert(*texts: str, kind: str = "bad") -> str:
    """Returns a message: what happened, to what, and what to do. Its kind is "bad" or "warn"."""
    said = "".join(f"<p>{escape(text)}</p>" for text in texts)
    return f'<div class="alert {kind}">{icon("alert")}<div>{said}</div></div>'


def items(kind: str, texts: Iterable[str]) -> str:
    """Returns a list whose items have a drawing each."""
    return (
        f'<ul class="facts {kind}">'
        + "".join(f"<li>{icon(kind)}<span>{escape(text)}</span></li>" for text in texts)
        + "</ul>"
    )


def tile(label: str, value: str, note: str = "") -> str:
    """Returns a figure with its name."""
    more = f'<span class="note">{escape(note)}</span>' if note else ""
    return f'<div class="tile"><dt>{escape(label)}</dt><dd>{escape(value)}{more}</dd></div>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; cells are HTML. On a phone each row is a list of names and values."""
    header = "".join(f'<th scope="col" role="columnheader">{escape(cell)}</th>' for cell in head)
    body = "".join(
        '<tr role="row">'
        + "".join(f'<td role="cell" data-label="{escape(label)}">{cell}</td>' for label, cell in zip(head, row))
        + "</tr>"
        for row in rows
    )
    # The roles stay valid where the style shows rows as lists.
    return (
        f'<table role="table"><caption class="hidden">{escape(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{header}</tr></thead><tbody role="rowgroup">{body}</tbody></table>'
    )


def short(text: str, length: int = 12) -> str:
    """Returns HTML for a key or a hash: its beginning, with the whole text for a pointer and for screen readers."""
    if len(text) <= length + 3:
        return f"<code>{escape(text)}</code>"
    return f'<code title="{escape(text)}">{escape(text[:length])}…</code>'
