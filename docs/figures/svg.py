"""A small writer of SVG, for `plots.py` and `data_path.py`.

Pictures have a background of their own, so that they can be read on light and on dark pages.
"""

from html import escape

FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
INK = "#1f2328"
GREY = "#6e7781"


class Picture:
    """Shapes in a frame, in pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' "
            f"role='img' aria-label='{escape(title, quote=True)}' {FONT}>",
            f"<title>{escape(title)}</title>",
            f"<rect width='{width}' height='{height}' rx='6' fill='#ffffff'/>",
        ]

    def rect(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", radius: int = 0) -> None:
        """A rectangle."""
        self._parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 0):.1f}' height='{height:.1f}' rx='{radius}' "
            f"fill='{fill}' stroke='{stroke}'/>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = GREY, arrow: bool = False) -> None:
        """A line, or an arrow whose tip is the second point. Arrows are horizontal."""
        self._parts.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{stroke}' stroke-width='1.5'/>"
        )
        if arrow:
            back = x2 + (7 if x1 > x2 else -7)
            self._parts.append(
                f"<polygon points='{x2:.1f},{y2:.1f} {back:.1f},{y2 - 4:.1f} {back:.1f},{y2 + 4:.1f}' fill='{stroke}'/>"
            )

    def text(self, x: float, y: float, text: str, size: int = 12, anchor: str = "start", fill: str = INK, weight: str = "normal") -> None:
        """One line of text on the base line `y`."""
        self._parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' fill='{fill}' "
            f"font-weight='{weight}'>{escape(text)}</text>"
        )

    def done(self) -> str:
        """The file."""
        return "\n".join([*self._parts, "</svg>", ""])
