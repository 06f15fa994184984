"""What a search found: as sentences, as plain data for JSON, and as tables for a terminal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from jaxpar.cost.goodput import HOUR
from jaxpar.cost.layout import unfit
from jaxpar.cost.planner.fastest import STRATEGIES, Found, Strategy
from jaxpar.cost.planner.measured import beyond
from jaxpar.cost.planner.plan import GB, RESERVE, Plan, show_gb
from jaxpar.cost.planner.schedules import under_schedules
from jaxpar.cost.sites import EVERY_STEP, WAYS, Sites, averaging, steps_ratio
from jaxpar.cost.terms import Term, show_number, total
from jaxpar.layout import describe

# The kinds of work that the time of a step goes to.
GROUPS = ("arithmetic", "recomputation", "memory traffic", "links", "host", "bubble")
EAGER_MATTERS = 0.05
ASKED = ("data parallel", "ZeRO-3, FSDP", "3D")


def group(term: Term) -> str:
    """Which of `GROUPS` a term of time belongs to."""
    name = term.name.removesuffix(" again")
    if name != term.name and name in ("products", "attention", "memory traffic"):
        return "recomputation"
    if name in ("products", "attention", "head"):
        return "arithmetic"
    if name in ("memory traffic", "optimizer"):
        return "memory traffic"
    if name.endswith(" host"):
        return "host"
    return "bubble" if name == "bubble" else "links"


def spent(plan: Plan) -> dict[str, float]:
    """Seconds of a step by group, in the order of `GROUPS`; those that take none are left out."""
    seconds: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    for term in plan.time:
        seconds[group(term)] += float(term.value)
    return {name: value for name, value in seconds.items() if value > 0}


def to_dict(plan: Plan, explain: bool = False) -> dict[str, Any]:
    """A plan as plain data for JSON; "terms" has the terms of `memory_bytes` and `step_seconds`.

    With `explain`, each term has its formula and the numbers in it, too.
    """
    layout = plan.layout
    sums = {"memory_bytes": plan.memory, "step_seconds": plan.time}
    return {
        "mesh": {axis: n for axis, n in layout.sizes.items() if n > 1},
        "zero": layout.zero,
        "remat": layout.remat,
        "microbatches": plan.microbatches,
        "microbatch": layout.microbatch,
        "chunks": layout.chunks,
        "sequence_parallel": layout.sequence_parallel,
        **({"context": layout.context} if layout.cp > 1 else {}),
        "offload": layout.offload,
        "step_seconds": plan.step_seconds,
        "mfu": plan.mfu,
        "memory_bytes": round(plan.memory_bytes),
        "fits": plan.fits,
        **({"advice": plan.advice} if plan.advice else {}),
        "sent_bytes": round(plan.sent_bytes),
        "goodput": plan.failures.goodput,
        "beyond_what_was_measured": beyond(layout, plan.job.cluster),
        "terms": {
            name: {term.name: _term(term, name, explain) for term in terms}
            for name, terms in sums.items()
        },
    }


def _term(term: Term, unit: str, explain: bool) -> Any:
    value = float(term.value)
    value = round(value) if unit.endswith("_bytes") else value
    if not explain:
        return value
    return {"value": value, "formula": term.formula, "numbers": term.filled}


def heading(plan: Plan) -> str:
    """What is trained, and where."""
    job, nodes = plan.job, -(-plan.job.devices // plan.job.cluster.devices_per_node)
    where = f"{job.devices:,} x {job.cluster.name}"
    if nodes > 1:
        where += f" ({nodes:,} nodes of {job.cluster.devices_per_node})"
    size = f"{job.architecture.parameters:,} parameters"
    if job.each.trained != 1:
        size += f" and {job.each.trained:.2%} as many in adapters, which are trained"
    return (
        f"{job.architecture.name}, {size}, on {where}: {job.batch:,} x {job.sequence:,} tokens in "
        "a step"
    )


def summary(found: Found) -> Iterator[str]:
    """Why the first plan wins, what bounds it, and how much failures cost."""
    first, *others = found.plans
    yield _why(first, others, found.tried)
    yield from warnings(first)
    fractions = _fractions(first)
    parts = ", ".join(f"{name} {part:.0%}" for name, part in fractions if part >= 0.005)
    yield f"Bound by {fractions[0][0]}. Where its time goes: {parts}."
    has = show_gb(first.job.cluster.device.memory_bytes)
    yield (
        f"A device has {has} (1e9 bytes), of which plans leave {RESERVE:.0%} free. Micro-batches: "
        "how many x how large. SP: sequence parallelism. Gradients are added up and sent in "
        f"{found.plans[0].job.gradient_bytes} bytes (--gradient-bytes)."
    )
    if not first.overlap:
        yield "Nothing overlaps here; --overlap hides most of what can run beside arithmetic."
    yield from _launches(first)
    yield failures_cost(first)


def _launches(plan: Plan) -> Iterator[str]:
    """A sentence on who launches kernels, where that matters."""
    eager = replace(plan, job=replace(plan.job, cluster=replace(plan.job.cluster, eager=True)))
    longer = eager.step_seconds / plan.step_seconds - 1
    if longer > EAGER_MATTERS:
        yield (
            "A step is one compiled program here. Where Python launches each kernel (--eager), "
            f"the first plan takes {longer:.0%} longer."
        )


def warnings(plan: Plan) -> Iterator[str]:
    """Sentences about a plan that does not fit, is tight, offloads, or is like no measured run."""
    device = plan.job.cluster.device
    if not plan.fits:
        yield (
            f"It does not fit: {_short(plan)}. It is shown because mesh and remat are named; for "
            f"one that fits, {plan.advice}."
        )
    elif plan.tight:
        yield (
            f"Tight: {show_gb(plan.memory_bytes)} of {show_gb(device.memory_bytes)} leaves less "
            f"than the {RESERVE:.0%} that the runtime and fragmentation may need."
        )
    if plan.layout.offload != "none":
        states = "The optimizer's states" if plan.layout.offload == "optimizer" else "All states"
        on_host = show_gb(float(total(plan.host)))
        yield (
            f"{states} wait on the host, {on_host} for each device; unless it is asked for, this "
            "means that nothing fits without."
        )
    if news := beyond(plan.layout, plan.job.cluster):
        yield f"Beyond what was measured (docs/predictions.md): {', '.join(news)}."


def show_memory(plan: Plan) -> str:
    """The memory that a plan needs on a device, and a note if it does not fit."""
    return show_gb(plan.memory_bytes) + ("" if plan.fits else ", does not fit")


def _short(plan: Plan) -> str:
    """How much memory is missing, on the device or else on its host."""
    needed, where = plan.memory_bytes, "a device"
    has = plan.job.cluster.device.memory_bytes
    if needed <= has:
        needed, has, where = total(plan.host), plan.job.cluster.host_bytes, "a device's host"
    missing = show_gb(float(needed - has))
    return f"it needs {show_gb(float(needed))} of {where}'s {show_gb(has)}, {missing} too much"


def failures_cost(plan: Plan) -> str:
    """What failures and checkpoints cost, as a sentence."""
    failures, devices = plan.failures, plan.job.devices
    hours = failures.mtbf_seconds * devices / HOUR
    return (
        f"Goodput {failures.goodput:.1%}: with {hours:,.0f} h between failures of a "
        f"device, one of {devices:,} fails every {show_seconds(failures.mtbf_seconds)}; "
        f"a checkpoint of {show_seconds(failures.checkpoint_seconds)} every "
        f"{show_seconds(failures.interval_seconds)} loses least."
    )


def _why(first: Plan, others: Sequence[Plan], tried: int) -> str:
    if not others:
        return f"First of {tried:,} layouts." if tried > 1 else "No other layout was tried."
    if others[0].step_seconds == first.step_seconds:
        return f"First of {tried:,} layouts: as fast as the second, with less memory."
    return f"First of {tried:,} layouts. The second {_slower(others[0], first)}."


def strategies(found: Found) -> Iterator[tuple[str, str, str]]:
    """For each known strategy: its name, the mesh of its best plan, and how that compares."""
    first = found.plans[0]
    known = {strategy.name: strategy for strategy in found.strategies}
    for name in STRATEGIES:
        if name in known:
            yield name, known[name].plan.layout.mesh, _verdict(known[name], first)
        elif name in ASKED:
            yield name, "-", _why_not(name, first)


def _verdict(strategy: Strategy, first: Plan) -> str:
    plan = strategy.plan
    if not strategy.fits:
        usable = (1 - RESERVE) * plan.job.cluster.device.memory_bytes
        return f"does not fit: needs {show_gb(plan.memory_bytes)}, may use {show_gb(usable)}"
    if plan.layout == first.layout:
        return "the first plan"
    return _slower(plan, first)


def _slower(plan: Plan, first: Plan) -> str:
    """How much longer a plan's step takes than the first plan's, and the main reason."""
    ratio = plan.step_seconds / first.step_seconds
    longer = f"{ratio - 1:.1%} longer" if ratio < 2 else f"{ratio:.1f} times as long"
    its, mine = spent(plan), spent(first)
    most = max(GROUPS, key=lambda name: its.get(name, 0) - mine.get(name, 0))
    before = show_seconds(mine[most]) if most in mine else "0"
    words = f"takes {longer}: {most} {show_seconds(its[most])}, not {before}"
    if most != "links" or plan.sent_bytes <= first.sent_bytes:
        return words
    sent = f"it sends {show_gb(plan.sent_bytes)} a step from a device, not"
    return f"{words}, as {sent} {show_gb(first.sent_bytes)}"


def _why_not(name: str, first: Plan) -> str:
    """Why no mesh is of this kind, which people ask for."""
    job, node = first.job, first.job.cluster.devices_per_node
    if name == "3D":
        if node == 1:
            return "a node has one device, and tensor parallelism is tried inside nodes only"
        why = unfit(job.architecture, job.sequence, "tp", 2)
        return f"tp=2: {why}" if why else "not among the meshes that were asked for"
    if job.batch % job.devices:
        return f"{job.batch:,} examples cannot be split over {job.devices:,} devices"
    return "not among the meshes that were asked for"


def _fractions(plan: Plan) -> list[tuple[str, float]]:
    """The fraction of a step's time that each group takes, the largest first."""
    seconds = spent(plan)
    whole = sum(seconds.values())
    return sorted(((name, value / whole) for name, value in seconds.items()), key=lambda it: -it[1])


def show_seconds(seconds: float) -> str:
    """Seconds to three digits, in a unit that suits."""
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    number, unit = next(
        ((seconds * per, unit) for unit, per in (("s", 1), ("ms", 1e3)) if seconds * per >= 0.1),
        (seconds * 1e6, "us"),
    )
    return f"{number:#.3g}".rstrip(".") + f" {unit}"


def render(found: Found) -> RenderableType:
    """The plans, why the first wins, and how the strategies that people know compare."""
    parts: list[RenderableType] = [heading(found.plans[0]), _plans_table(found.plans)]
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
    parts += term_lines(plan.memory, show_gb)
    if plan.host:
        parts.append(f"\nMemory of its host: {show_gb(total(plan.host))}")
        parts += term_lines(plan.host, show_gb)
    parts.append(f"\nTime of a step: {show_seconds(plan.step_seconds)}, MFU {plan.mfu:.1%}")
    parts += term_lines(plan.time, show_seconds)
    if plan.messages:
        parts.append(f"\nSent by a device in a step: {show_gb(plan.sent_bytes)}")
        parts += _sent(plan)
    return Group(*parts, "", *warnings(plan), failures_cost(plan))


def sites_table(plan: Plan, sites: Sites) -> RenderableType:
    """How long sites that each train by this plan average, by every way, and what that leaves."""
    table = _table("the sites average", "for", "step", "computing", "may need\nsteps, times")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in sites_rows(plan, sites):
        table.add_row(
            row["way"],
            show_seconds(row["averaging_seconds"]),
            show_seconds(row["step_seconds"]),
            f"{plan.step_seconds / row['step_seconds']:.1%}",
            f"{row['steps_ratio']:,.2f}",
        )
    line, every = sites.line, averaging(plan.job.architecture.parameters, sites, EVERY_STEP)
    gigabits = show_number(line.bytes_per_second * 8 / 1e9)
    heading = (
        f"{sites.count} sites with this plan each, joined by lines of {gigabits} Gb/s and "
        f"{show_seconds(line.latency_seconds)}:"
    )
    notes = (
        f"Averaging, for each step: {every.formula} = {every.filled}, for {EVERY_STEP}. Nothing "
        "hides it. Codes and local steps learn less in a step. They win where they need fewer "
        "steps to the same loss than the last column says, times those of the first row."
    )
    return Group(heading, table, "", notes)


def sites_rows(plan: Plan, sites: Sites) -> list[dict[str, Any]]:
    """The same as plain data for JSON, a row for each way to average."""
    parameters, computing = plan.job.architecture.parameters, plan.step_seconds
    rows = []
    for way in WAYS:
        seconds = float(averaging(parameters, sites, way).value)
        rows.append({
            "way": str(way),
            "averaging_seconds": seconds,
            "step_seconds": computing + seconds,
            "steps_ratio": steps_ratio(computing, parameters, sites, way),
        })  # fmt: skip
    return rows


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


def schedules_table(plan: Plan) -> RenderableType:
    """The first plan under each pipeline schedule."""
    table = _table("schedule", "step", "bubble", "in flight", "memory\nGB")
    for column in table.columns[1:]:
        column.justify = "right"
    problems = []
    for one in under_schedules(plan):
        if one.problem:
            problems.append(f"{one.name}: {one.problem}.")
            continue
        table.add_row(
            one.name,
            show_seconds(one.step_seconds),
            f"{one.bubble:.1%}",
            f"{one.in_flight:g}",
            f"{one.memory_bytes / GB:,.1f}",
        )
    note = (
        "By simulation of equal stages. In flight: the most microbatches whose activations a "
        "device keeps. The library trains with each of them: `jaxpar train --schedule NAME`."
    )
    return Group(f"{plan.layout.mesh} under each schedule:", table, "", note, *problems)


def schedules_rows(plan: Plan) -> list[dict[str, Any]]:
    """The same as plain data for JSON, a row for each schedule that can run."""
    return [
        {name: value for name, value in vars(one).items() if name != "problem"}
        for one in under_schedules(plan)
        if not one.problem
    ]


def _plans_table(plans: Sequence[Plan]) -> Table:
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
    words = ["SP"] * layout.sequence_parallel + [layout.context] * (layout.cp > 1)
    words += [f"offload {layout.offload}"] * (layout.offload != "none")
    return ", ".join(words + ["does not fit"] * (not plan.fits))


def term_lines(terms: Sequence[Term], show: Callable[[float], str]) -> Iterator[str]:
    """The terms as lines, with their formulas and numbers, the largest first."""
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
    """Each collective that `times*each` stands for: over which axes, how large, and how often."""
    sent = {message.name: float(message.sent_bytes(plan.layout)) for message in plan.messages}
    for message in sorted(plan.messages, key=lambda message: -sent[message.name]):
        yield f"  {message.name:<32} {show_gb(sent[message.name]):>10}"
        operand = show_gb(message.operand_bytes)
        how = f"{message.kind} over {', '.join(message.axes)} of {operand}"
        yield f"      {show_number(message.times)} x {how} = {message.operand.filled}"


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    for name in names:
        table.add_column(name, overflow="fold")
    return table
