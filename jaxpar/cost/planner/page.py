"""Plans as a self-contained page: memory by term, the step by what it is spent on, all numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

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
WIDTH, CHARACTER = 720, 8  # of the longest bar, and of a letter
TEMPLATES = Environment(
    loader=PackageLoader("jaxpar.cost.planner", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(plans: Sequence[Plan]) -> str:
    """The page's text; it loads nothing.

    Args:
        plans: best first; all on the same cluster.
    """
    memory = [{term.name: float(term.value) for term in plan.memory} for plan in plans]
    names = [name for column in memory for name in column if column[name]]
    device_bytes = plans[0].job.cluster.device.memory_bytes
    most_bytes = max(device_bytes, *(plan.memory_bytes for plan in plans))
    seconds = [spent(plan) for plan in plans]
    groups = [name for name in GROUPS if any(name in of for of in seconds)]
    longest = max(plan.step_seconds for plan in plans)
    titles = [f"{number}. {describe(plan.layout)}" for number, plan in enumerate(plans, 1)]
    return TEMPLATES.get_template("page.html").render(
        heading=heading(plans[0]),
        plans=[_row(number, plan) for number, plan in enumerate(plans, 1)],
        device_memory=show_gb(device_bytes),
        memory=_chart(titles, memory, names, most_bytes, show_gb, device_bytes),
        time=_chart(titles, seconds, groups, longest, show_seconds),
        details=[_details(title, plan) for title, plan in zip(titles, plans, strict=True)],
    )


def _row(number: int, plan: Plan) -> Sequence[object]:
    return (
        number,
        plan.layout.mesh,
        show_seconds(plan.step_seconds),
        f"{plan.mfu:.1%}",
        show_memory(plan),
        f"{plan.failures.goodput:.1%}",
        f"{plan.microbatches} x {plan.layout.microbatch}",
        describe(plan.layout).partition(", ")[2],
    )


def _chart(
    titles: Sequence[str],
    columns: Sequence[Mapping[str, float]],
    names: Sequence[str],
    most: float,
    show: Callable[[float], str],
    mark: float | None = None,
) -> dict[str, Any]:
    """A bar for each plan, in parts that are in the order of the key."""
    names = list(dict.fromkeys(names))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    bars = []
    for title, column in zip(titles, columns, strict=True):
        parts, left = [], 0.0
        for name, colour in colours.items():
            width = column.get(name, 0) / most * WIDTH
            if width:
                number = show(column[name])
                wordings = (f"{name} {number}", number, "")
                label = next(it for it in wordings if CHARACTER * len(it) < width)
                ink = "#FFF" if colour in DARK else "#000"
                parts.append({"left": left, "width": width, "colour": colour, "name": name,
                              "number": number, "label": label, "ink": ink})  # fmt: skip
            left += width
        total = show(sum(column.values()))
        bars.append({"title": title, "parts": parts, "end": left, "total": total})
    at = None if mark is None else mark / most * WIDTH
    return {"colours": colours, "bars": bars, "mark": at, "width": WIDTH}


def _details(title: str, plan: Plan) -> dict[str, Any]:
    def rows(terms: Sequence[Term], show: Callable[[float], str]) -> list[tuple[str, ...]]:
        return [
            (term.name, show(float(term.value)), term.formula, term.filled)
            for term in terms
            if term.value
        ]

    terms = {
        "memory of a device": rows(plan.memory, show_gb),
        "memory of its host": rows(plan.host, show_gb),
        "time of a step": rows(plan.time, show_seconds),
    }
    return {"title": title, "terms": terms, "notes": [*warnings(plan), failures_cost(plan)]}
