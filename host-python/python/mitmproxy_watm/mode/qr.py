"""Client configurations as QR codes, for the terminal and for the page.

The largest code holds 2,953 bytes (ISO/IEC 18004, table 7), which some configurations exceed.
"""

import io

import segno


def qr_text(content: str) -> str | None:
    """Draws a code with half blocks, light on dark: two rows of the code in a line of text. None if
    the content is too long."""
    if (code := _code(content)) is None:
        return None
    matrix = [[*row] for row in code.matrix_iter(border=2)]
    if len(matrix) % 2:
        matrix.append([0] * len(matrix[0]))
    blocks = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
    return "\n".join(
        "".join(blocks[bool(upper), bool(lower)] for upper, lower in zip(*rows))
        for rows in zip(matrix[::2], matrix[1::2])
    )


def qr_svg(content: str, title: str) -> str | None:
    """Returns an `<svg>` element for an HTML page. None if the content is too long."""
    if (code := _code(content)) is None:
        return None
    out = io.BytesIO()
    code.save(
        out, kind="svg", xmldecl=False, svgns=True, title=title, light="#fff", border=4, nl=False, omitsize=True
    )
    return out.getvalue().decode()


TOO_LONG = "This configuration is too long for a QR code."

LARGEST = 2953
"""The bytes in the largest code, at the lowest level of correction."""


def _code(content: str) -> segno.QRCode | None:
    if len(content) > LARGEST:
        return None
    try:
        return segno.make(content, error="l", boost_error=False, micro=False)
    except segno.DataOverflowError:
        # The content has characters of several bytes, or needs a header for their encoding.
        return None
