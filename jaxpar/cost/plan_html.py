"""Plans as a self-contained page: memory by term, the step by what it is spent on, all numbers."""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from jaxpar.cost.layout import describe
from jaxpar.cost.plan import GB, Plan, show_gb
from jaxpar.cost.plan_words import (
    failing,
    heading,
    show_memory,
    show_seconds,
    spent,
    warnings,
)
from jaxpar.cost.terms import Term
from jaxpar.drawing.bars import Bars

TITLE = "Plans for training"


def page(plans: Sequence[Plan]) -> str:
    """The page's text; it loads nothing.

    Args:
        plans: best first; all on the same cluster.
    """
    titles = [f"{number}. {describe(plan.layout)}" for number, plan in enumerate(plans, 1)]
    device_bytes = plans[0].job.cluster.device.memory_bytes
    parts = [
        f"<p>{escape(heading(plans[0]))}.</p>",
        _table(plans),
        f"<h2>Memory of a device</h2><p>A device has {show_gb(device_bytes)}: the dashed line.</p>",
        _memory(titles, plans, device_bytes).to_svg(),
        "<h2>A step</h2><p>What its time goes to; nothing is drawn twice, so that lengths add up."
        "</p>",
        _time(titles, plans).to_svg(),
        "<h2>Every term</h2>",
        *(
            part
            for title, plan in zip(titles, plans, strict=True)
            for part in _details(title, plan)
        ),
    ]
    return PAGE.format(title=TITLE, body="\n".join(parts))


def _memory(titles: Sequence[str], plans: Sequence[Plan], device_bytes: float) -> Bars:
    held = {
        title: {term.name: float(term.value) / GB for term in plan.memory if term.value}
        for title, plan in zip(titles, plans, strict=True)
    }
    return Bars("What a device holds", "GB", held, ("a device", device_bytes / GB))


def _time(titles: Sequence[str], plans: Sequence[Plan]) -> Bars:
    longest = max(plan.step_seconds for plan in plans)
    unit, per_second = ("s", 1) if longest >= 1 else ("ms", 1000)
    spent_by_plan = {
        title: {name: seconds * per_second for name, seconds in spent(plan).items()}
        for title, plan in zip(titles, plans, strict=True)
    }
    return Bars("What a step takes", unit, spent_by_plan)


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
    yield "".join(f"<p>{escape(line)}</p>" for line in (*warnings(plan), failing(plan)))
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
svg {{ max-width: 100%; height: auto; }}
summary {{ cursor: pointer; padding: 4px 0; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
