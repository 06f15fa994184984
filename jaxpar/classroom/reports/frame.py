"""What every page has: style, a script that sorts tables, and a policy that lets nothing else run.

The policy names style and script by their hashes: a string that slipped through the escaping
would be shown, and neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from jaxpar.classroom.untrusted_text import line, markup

# Okabe and Ito's colours, which all kinds of eyes can tell apart; words and signs say it too.
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em;
  color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2em } h3 { margin: 1.6em 0 .3em }
table { border-collapse: collapse; margin: .6em 0 }
th, td { text-align: left; vertical-align: top; padding: .25em .8em .25em 0;
  border-bottom: 1px solid #ddd; overflow-wrap: anywhere }
th { border-bottom: 2px solid #888; white-space: nowrap }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
th button { font: inherit; font-weight: bold; border: 0; padding: 0; background: none;
  color: inherit; cursor: pointer }
th[aria-sort=ascending] button::after { content: " \\25B2" }
th[aria-sort=descending] button::after { content: " \\25BC" }
pre { background: #f4f4f4; padding: .6em; overflow-x: auto; white-space: pre-wrap }
.id { white-space: nowrap }
.status { border-left: .5em solid #999; padding-left: .4em; white-space: nowrap }
.pass { border-color: #009E73 } .fail { border-color: #D55E00 } .other { border-color: #E69F00 }
.note { border-left: .5em solid #E69F00; padding: .2em .6em; background: #fff8e8 }
.wide { overflow-x: auto } .quiet { color: #666 } p { max-width: 50em }
svg { vertical-align: middle; margin-right: .4em }
"""
SCRIPT = """
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, row = head.parentElement;
    const body = head.closest("table").tBodies[0];
    const place = [...row.children].indexOf(head);
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const text = (line) => line.children[place].textContent;
    const number = (line) => (text(line) === "" ? -Infinity : parseFloat(text(line)));
    const compare = head.classList.contains("number")
      ? (a, b) => number(a) - number(b) || 0
      : (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true });
    const lines = [...body.rows].sort(compare);
    body.append(...(up ? lines : lines.reverse()));
  });
}
"""
SIGNS = {"pass": "&#10003;", "fail": "&#10007;", "not-judged": "&#8211;"}
BAR = 60


def page(title: str, body: Iterable[str]) -> Iterator[bytes]:
    """A page that loads nothing, in parts."""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{short(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    ).encode()
    for part in body:
        yield f"{part}\n".encode()
    yield f"<script>{SCRIPT}</script>\n</body>\n</html>\n".encode()


def short(value: str) -> str:
    """A name, between tags or in quotes."""
    return markup(line(value))


def own(name: str) -> str:
    """A name that the course gave, so that it is short enough to stay on one line."""
    return f'<span class="id">{short(name)}</span>'


def row(cells: Sequence[str], numbers: Sequence[int] = ()) -> str:
    """A row of cells that are HTML already; some are numbers."""
    tds = (
        f'<td class="number">{cell}</td>' if place in numbers else f"<td>{cell}</td>"
        for place, cell in enumerate(cells)
    )
    return f"<tr>{''.join(tds)}</tr>"


def table(
    head: Sequence[str], rows: Iterable[str], numbers: Sequence[int] = (), sortable: bool = False
) -> Iterator[str]:
    """A table, row by row."""
    yield '<div class="wide"><table><thead><tr>'
    for place, name in enumerate(head):
        kind = ' class="number"' if place in numbers else ""
        shown = f'<button type="button">{name}</button>' if sortable else name
        yield f'<th scope="col"{kind}>{shown}</th>'
    yield "</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"


def status(word: str) -> str:
    """A status: a word, a sign and a colour."""
    kind = word if word in ("pass", "fail") else "other"
    return f'<span class="status {kind}">{SIGNS.get(word, "!")} {short(word)}</span>'


def share(part: int, whole: int) -> str:
    """How many of how many, with a bar."""
    if not whole:
        return '<span class="quiet">none</span>'
    width = BAR * part / whole
    bars = "".join(
        f'<rect width="{length:.1f}" height="10" fill="{colour}"/>'
        for length, colour in ((BAR, "#ddd"), (width, "#0072B2"))
    )
    picture = f'<svg width="{BAR}" height="10" aria-hidden="true">{bars}</svg>'
    return f'<span class="id">{picture}{part} of {whole}</span>'


def _policy() -> str:
    style, script = (f"'sha256-{_hash(source)}'" for source in (STYLE, SCRIPT))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
