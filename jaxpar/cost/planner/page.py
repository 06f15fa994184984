"""Plans as a self-contained page: memory by term, the step by what it is spent on, all numbers."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxpar.cost.planner.fastest import Found
from jaxpar.cost.planner.plan import GB, Plan, show_gb
from jaxpar.cost.planner.report import (
    failures_cost,
    heading,
    show_memory,
    show_seconds,
    spent,
    strategies,
    summary,
    warnings,
)
from jaxpar.cost.terms import Term
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.pages import inline, render
from jaxpar.layout import describe


def page(found: Found, plans: Sequence[Plan]) -> str:
    """The page's text; it loads nothing.

    Args:
        found: what a search found, for the reasons and the strategies.
        plans: those to draw, best first; all on the same cluster.
    """
    titles = [f"{number}. {describe(plan.layout)}" for number, plan in enumerate(plans, 1)]
    device_bytes = plans[0].job.cluster.device.memory_bytes
    return render(
        "jaxpar.cost.planner",
        "plans.html",
        heading=heading(plans[0]),
        plans=[_row(number, plan) for number, plan in enumerate(plans, 1)],
        reasons=list(summary(found)),
        strategies=list(strategies(found)),
        device_memory=show_gb(device_bytes),
        memory=inline(_memory(titles, plans, device_bytes).to_svg()),
        time=inline(_time(titles, plans).to_svg()),
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
