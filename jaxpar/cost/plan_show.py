"""What a search found, as tables for a terminal."""

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from jaxpar.cost.layout import describe
from jaxpar.cost.plan import GB, Plan, show_gb
from jaxpar.cost.plan_words import (
    failing,
    heading,
    show_memory,
    show_seconds,
    strategies,
    summary,
    warnings,
)
from jaxpar.cost.planner import Found
from jaxpar.cost.terms import Term, show_number, total


def render(found: Found) -> RenderableType:
    """The plans, why the first wins, and what strategies that people know come to."""
    parts: list[RenderableType] = [heading(found.plans[0]), _plans(found.plans)]
    parts.append("\n".join(summary(found)))
    if len(found.strategies) > 1:
        known = _table("strategy", "best mesh", "how it compares")
        for row in strategies(found):
            known.add_row(*row)
        parts.append(known)
    return Group(*(item for part in parts for item in (part, "")))


def explain(plan: Plan) -> RenderableType:
    """Every term of a plan's memory and time with its formula and numbers, and all that is sent."""
    parts: list[RenderableType] = [heading(plan), f"Plan: {describe(plan.layout)}"]
    has = show_gb(plan.job.cluster.device.memory_bytes)
    parts.append(f"\nMemory of a device: {show_gb(plan.memory_bytes)} of {has}")
    parts += _terms(plan.memory, show_gb)
    if plan.host:
        parts.append(f"\nMemory of its host: {show_gb(total(plan.host))}")
        parts += _terms(plan.host, show_gb)
    parts.append(f"\nTime of a step: {show_seconds(plan.step_seconds)}, MFU {plan.mfu:.1%}")
    parts += _terms(plan.time, show_seconds)
    if plan.messages:
        parts.append(f"\nSent by a device in a step: {show_gb(plan.sent_bytes)}")
        parts += _sent(plan)
    return Group(*parts, "", *warnings(plan), failing(plan))


def compare(plans: Sequence[Plan]) -> RenderableType:
    """Two plans side by side, term by term."""
    table = _table("", *(plan.layout.mesh for plan in plans))
    first, second = plans
    table.add_row("plan", *(describe(plan.layout).partition(", ")[2] for plan in plans))
    table.add_row("step", *(show_seconds(plan.step_seconds) for plan in plans))
    table.add_row("MFU", *(f"{plan.mfu:.1%}" for plan in plans))
    table.add_row("memory", *(show_memory(plan) for plan in plans), end_section=True)
    for left, right, show in (
        (first.memory, second.memory, show_gb),
        (first.time, second.time, show_seconds),
    ):
        values = [{term.name: float(term.value) for term in terms} for terms in (left, right)]
        for name in dict.fromkeys([*values[0], *values[1]]):
            table.add_row(name, *(show(of[name]) if of.get(name) else "-" for of in values))
        table.add_section()
    slower, faster = sorted(plans, key=lambda plan: -plan.step_seconds)
    ratio = slower.step_seconds / faster.step_seconds
    verdict = f"{faster.layout.mesh} is {ratio:.2f} times as fast as {slower.layout.mesh}."
    return Group(heading(first), table, verdict)


def _plans(plans: Sequence[Plan]) -> Table:
    chunks = any(plan.layout.chunks > 1 for plan in plans)
    also = any(_also(plan) for plan in plans)
    names = ["step", "MFU", "memory\nGB", "mesh", "ZeRO", "remat", "micro-\nbatches"]
    table = _table(*names, *["chunks"] * chunks, *["also"] * also)
    for column in table.columns[:3]:
        column.justify = "right"
    for column in table.columns[:4]:
        column.no_wrap = True
    for plan in plans:
        layout = plan.layout
        row = [show_seconds(plan.step_seconds), f"{plan.mfu:.1%}", f"{plan.memory_bytes / GB:,.1f}"]
        row += [layout.mesh, str(layout.zero), layout.remat]
        row.append(f"{plan.microbatches} x {layout.microbatch}")
        table.add_row(*row, *[str(layout.chunks)] * chunks, *[_also(plan)] * also)
    return table


def _also(plan: Plan) -> str:
    layout = plan.layout
    words = ["SP"] * layout.sequence_parallel
    return ", ".join(words + [f"offload {layout.offload}"] * (layout.offload != "none"))


def _terms(terms: Sequence[Term], show: Callable[[float], str]) -> Iterator[RenderableType]:
    """Largest first."""
    whole = float(total(terms))
    for term in sorted(terms, key=lambda term: -float(term.value)):
        value = float(term.value)
        if value:
            yield f"  {term.name:<32} {show(value):>10} {value / whole:>6.1%}"
            yield f"      {term.formula}"
            yield f"    = {term.filled}"
    nothing = [term.name for term in terms if not term.value]
    if nothing:
        yield f"  nothing: {', '.join(nothing)}"


def _sent(plan: Plan) -> Iterator[RenderableType]:
    """What `times*each` stands for: each collective, over which axes, how large, how often."""
    sent = {its.name: float(its.sent_bytes(plan.layout)) for its in plan.messages}
    for its in sorted(plan.messages, key=lambda message: -sent[message.name]):
        yield f"  {its.name:<32} {show_gb(sent[its.name]):>10}"
        how = f"{its.kind} over {', '.join(its.axes)} of {show_gb(its.operand_bytes)}"
        yield f"      {show_number(its.times)} x {how} = {its.operand.filled}"


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    for name in names:
        table.add_column(name, overflow="fold")
    return table
