"""One page of HTML that needs nothing else: no script, no font, no address. Light or dark, as the reader has it."""

from __future__ import annotations

import html
from collections.abc import Sequence

_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--text:#1c1f23;--quiet:#5c6670;--line:#d5dade;--card:#f6f7f9;
--c0:#1f6fb4;--c1:#c2570c;--c2:#2a7f3b;--c3:#8b4bb0;--c4:#b3243a;--c5:#5f6b1e}
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--text:#e6e9ec;--quiet:#9aa5af;--line:#38414a;--card:#1d2226;
--c0:#6db3f0;--c1:#f39a57;--c2:#6fca82;--c3:#c99be8;--c4:#f37d8e;--c5:#bcca6a}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--ground);max-width:72rem;margin:0 auto;
padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0;overflow-wrap:anywhere}.quiet{color:var(--quiet);font-size:.9rem}.warning{color:var(--c4)}
.grid{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr))}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.6rem;min-width:0}
figcaption{font-weight:600}svg{display:block;width:100%;height:auto}
svg text{fill:var(--quiet);font:11px system-ui,sans-serif}
.scroll{overflow-x:auto;max-width:100%}table{border-collapse:collapse;font-size:.92rem}
th,td{padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
pre{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.6rem;overflow-x:auto;
font-size:.85rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}.legend i{display:inline-block;
width:.8rem;height:.8rem;
margin-right:.35rem;border-radius:.15rem;vertical-align:-.1rem}img{max-width:100%;height:auto;background:#fff}
"""


def page(title: str, parts: Sequence[str]) -> str:
    """Returns a whole page.

    Args:
        title: Plain text, above all.
        parts: HTML.

    Example:
        >>> from tfscale.console.page import page, paragraph
        >>> "a &lt; b" in page("runs", [paragraph("a < b")])
        True
    """
    named = html.escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{named}</title><style>{_STYLE}</style></head>\n<body><h1>{named}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def heading(text: str) -> str:
    """Returns a heading of plain text."""
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str, kind: str = "") -> str:
    """Returns a paragraph of plain text; `kind` is "quiet", "warning" or empty."""
    return f'<p class="{kind}">{html.escape(text)}</p>' if kind else f"<p>{html.escape(text)}</p>"


def preformatted(text: str) -> str:
    """Returns text in columns, which scrolls by itself where it is wide."""
    return f"<pre>{html.escape(text)}</pre>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table, which scrolls by itself where it is wide; what looks like a number stands at the right."""
    numeric = [all(_is_numeric(row[column]) for row in rows) for column in range(len(header))]
    kinds = [' class="number"' if each else "" for each in numeric]
    head = "".join(f"<th{kind}>{html.escape(each)}</th>" for kind, each in zip(kinds, header, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{html.escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _is_numeric(text: str) -> bool:
    first = text.strip().split(" ")[0].rstrip("%")
    try:
        float(first)
    except ValueError:
        return first in ("", "-")
    return True
