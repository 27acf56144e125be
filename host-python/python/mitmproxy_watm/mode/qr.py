"""A client configuration as a QR code, for the terminal and for the page."""

import io

import segno


def qr_text(content: str) -> str:
    """Drawn with half blocks, light on dark: two rows of the code in a line of text."""
    matrix = [[*row] for row in _code(content).matrix_iter(border=2)]
    if len(matrix) % 2:
        matrix.append([0] * len(matrix[0]))
    blocks = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
    return "\n".join(
        "".join(blocks[bool(upper), bool(lower)] for upper, lower in zip(*rows))
        for rows in zip(matrix[::2], matrix[1::2])
    )


def qr_svg(content: str, title: str) -> str:
    """An `<svg>` element for an HTML page."""
    out = io.BytesIO()
    _code(content).save(
        out, kind="svg", xmldecl=False, svgns=True, title=title, light="#fff", border=4, nl=False, omitsize=True
    )
    return out.getvalue().decode()


def _code(content: str) -> segno.QRCode:
    return segno.make(content, error="l", boost_error=False, micro=False)
