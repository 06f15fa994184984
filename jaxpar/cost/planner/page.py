"""Plans as a self-contained page: memory by term, the step by what it is spent on, all numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from jaxpar.cost.planner.plan import Plan, show_gb
from jaxpar.cost.planner.report import (
    GROUPS,
    failures_cost,
    heading,
    show_memory,
    show_seconds,
    spent,
    warnings,
)
from jaxpar.cost.terms import Term
from jaxpar.layout import describe

# Okabe and Ito's colours, which all kinds of eyes can tell apart.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
DARK = ("#0072B2", "#D55E00")  # white letters on these
WIDTH, BAR, GAP, NUMBERS, CHARACTER = 720, 26, 36, 190, 8
TITLE = "Plans for training"


def page(plans: Sequence[Plan]) -> str:
    """The page's text; it loads nothing.

    Args:
        plans: best first; all on the same cluster.
    """
    memory = [{term.name: float(term.value) for term in plan.memory} for plan in plans]
    device_bytes = plans[0].job.cluster.device.memory_bytes
    has = f"A device has {show_gb(device_bytes)}: the dashed line."
    seconds = [spent(plan) for plan in plans]
    names = [name for name in GROUPS if any(name in of for of in seconds)]
    titles = [f"{number}. {describe(plan.layout)}" for number, plan in enumerate(plans, 1)]
    longest = max(plan.step_seconds for plan in plans)
    most = max(device_bytes, *(plan.memory_bytes for plan in plans))
    parts = [
        f"<p>{escape(heading(plans[0]))}.</p>",
        _table(plans),
        f"<h2>Memory of a device</h2><p>{has}</p>",
        _bars(titles, memory, _names(memory), most, show_gb, device_bytes),
        "<h2>A step</h2><p>What its time goes to; nothing is drawn twice, so that lengths add up."
        "</p>",
        _bars(titles, seconds, names, longest, show_seconds),
        "<h2>Every term</h2>",
        *(
            part
            for title, plan in zip(titles, plans, strict=True)
            for part in _details(title, plan)
        ),
    ]
    return PAGE.format(title=TITLE, body="\n".join(parts))


def _names(columns: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for column in columns for name in column if column[name]))


def _table(plans: Sequence[Plan]) -> str:
    head = ("", "mesh", "step", "MFU", "memory", "goodput", "microbatches", "rest of the plan")
    rows = [
        (
            str(number),
            plan.layout.mesh,
            show_seconds(plan.step_seconds),
            f"{plan.mfu:.1%}",
            show_memory(plan),
            f"{plan.failures.goodput:.1%}",
            f"{plan.microbatches} x {plan.layout.microbatch}",
            describe(plan.layout).partition(", ")[2],
        )
        for number, plan in enumerate(plans, 1)
    ]
    return _html_table(head, rows)


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{titles}</tr>\n{body}</table>"


def _bars(
    titles: Sequence[str],
    columns: Sequence[Mapping[str, float]],
    names: Sequence[str],
    most: float,
    show: Callable[[float], str],
    mark: float | None = None,
) -> str:
    """A bar for each plan, in parts; the key has the order of the parts."""
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    parts, top = [], 0
    for name in names:
        parts.append(_box(0, top, 16, 16, colours[name], name))
        parts.append(_text(24, top + 13, name))
        top += 20
    first = top
    for title, column in zip(titles, columns, strict=True):
        left = 0.0
        parts.append(_text(0, top + GAP - 6, title))
        top += GAP
        for name in names:
            width = column.get(name, 0) / most * WIDTH
            if width:
                parts += _part(left, top, width, colours[name], name, show(column[name]))
            left += width
        parts.append(_text(left + 8, top + 18, show(sum(column.values()))))
        top += BAR
    if mark:
        x = mark / most * WIDTH
        parts.append(f'<path d="M{x:.1f} {first}V{top}" stroke="#222" stroke-dasharray="5 4"/>')
    size = f'viewBox="0 0 {WIDTH + NUMBERS} {top + 8}" width="{WIDTH + NUMBERS}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'


def _part(
    left: float, top: float, width: float, colour: str, name: str, number: str
) -> Iterator[str]:
    yield _box(left, top, width, BAR, colour, f"{name}: {number}")
    label = next((text for text in (f"{name} {number}", number) if _wide(text) < width), "")
    if label:
        ink = "#FFF" if colour in DARK else "#000"
        yield _text(left + width / 2, top + 18, label, f'text-anchor="middle" fill="{ink}"')


def _wide(text: str) -> int:
    return CHARACTER * len(text)


def _box(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}" '
        f'stroke="#222" stroke-width="0.6"><title>{escape(title)}</title></rect>'
    )


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {style}>{escape(text)}</text>'


def _details(title: str, plan: Plan) -> Iterator[str]:
    yield f"<details><summary>{escape(title)}</summary>"
    for name, terms, show in (
        ("memory of a device", plan.memory, show_gb),
        ("memory of its host", plan.host, show_gb),
        ("time of a step", plan.time, show_seconds),
    ):
        if terms:
            rows = [_row(term, show) for term in terms if term.value]
            yield _html_table((name, "", "formula", "with numbers"), rows)
    yield "".join(f"<p>{escape(line)}</p>" for line in (*warnings(plan), failures_cost(plan)))
    yield "</details>"


def _row(term: Term, show: Callable[[float], str]) -> tuple[str, str, str, str]:
    return term.name, show(float(term.value)), term.formula, term.filled


PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px Helvetica, Arial, sans-serif; margin: 2em auto; max-width: 960px; color: #222; }}
table {{ border-collapse: collapse; margin: 1em 0; font-size: 13px; }}
th, td {{ border-bottom: 1px solid #CCC; padding: 4px 8px; text-align: left; vertical-align: top; }}
svg {{ max-width: 100%; height: auto; font-size: 13px; }}
summary {{ cursor: pointer; padding: 4px 0; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
