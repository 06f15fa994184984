"""What a search found, in words and as plain data."""

from collections.abc import Iterator, Sequence
from typing import Any

from jaxpar.cost.fits import RESERVE, unfit
from jaxpar.cost.goodput import HOUR
from jaxpar.cost.plan import Plan, show_gb
from jaxpar.cost.planner import STRATEGIES, Found, Strategy
from jaxpar.cost.terms import Term, total

# What a step's time goes to.
GROUPS = ("arithmetic", "recomputation", "memory traffic", "links", "host", "bubble")
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
    """Seconds of a step by group, in the order of `GROUPS`, without those of none."""
    seconds: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    for term in plan.time:
        seconds[group(term)] += float(term.value)
    return {name: value for name, value in seconds.items() if value > 0}


def to_dict(plan: Plan, explain: bool = False) -> dict[str, Any]:
    """A plan as JSON has it; under "terms" what `memory_bytes` and `step_seconds` are sums of.

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
        "offload": layout.offload,
        "step_seconds": plan.step_seconds,
        "mfu": plan.mfu,
        "memory_bytes": round(plan.memory_bytes),
        "fits": plan.fits,
        **({} if plan.fits else {"advice": plan.advice}),
        "sent_bytes": round(plan.sent_bytes),
        "goodput": plan.failures.goodput,
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
    return (
        f"{job.architecture.name}, {job.architecture.parameters:,} parameters, on {where}: "
        f"{job.batch:,} x {job.sequence:,} tokens in a step"
    )


def summary(found: Found) -> Iterator[str]:
    """Why the first plan wins, what bounds it, and how much failures cost."""
    first, *others = found.plans
    yield _why(first, others, found.tried)
    yield from warnings(first)
    shares = ", ".join(f"{name} {part:.0%}" for name, part in _shares(first) if part >= 0.005)
    yield f"Bound by {_shares(first)[0][0]}. Where its time goes: {shares}."
    has = show_gb(first.job.cluster.device.memory_bytes)
    yield (
        f"A device has {has} (1e9 bytes), of which plans leave {RESERVE:.0%} free. Micro-batches: "
        "how many x how large. SP: sequence parallelism."
    )
    if not first.overlap:
        yield "Nothing overlaps here; --overlap hides most of what can run beside arithmetic."
    yield failing(first)


def warnings(plan: Plan) -> Iterator[str]:
    """What to look out for."""
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


def show_memory(plan: Plan) -> str:
    """What it needs of a device, and whether it does not fit."""
    return show_gb(plan.memory_bytes) + ("" if plan.fits else ", does not fit")


def _short(plan: Plan) -> str:
    """What is missing, of the device or else of its host."""
    needed, where = plan.memory_bytes, "a device"
    has = plan.job.cluster.device.memory_bytes
    if needed <= has:
        needed, has, where = total(plan.host), plan.job.cluster.host_bytes, "a device's host"
    missing = show_gb(float(needed - has))
    return f"it needs {show_gb(float(needed))} of {where}'s {show_gb(has)}, {missing} too much"


def failing(plan: Plan) -> str:
    """What failures and checkpoints cost."""
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
    """Of each known strategy its name, the mesh of its best plan, and how it compares."""
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
    """How much longer a plan's step takes, and what most of that is."""
    ratio = plan.step_seconds / first.step_seconds
    longer = f"{ratio - 1:.1%} longer" if ratio < 2 else f"{ratio:.1f} times as long"
    its, mine = spent(plan), spent(first)
    most = max(GROUPS, key=lambda name: its.get(name, 0) - mine.get(name, 0))
    words = f"takes {longer}: {most} {show_seconds(its[most])}, not {_some(mine.get(most))}"
    if most != "links" or plan.sent_bytes <= first.sent_bytes:
        return words
    sent = f"it sends {show_gb(plan.sent_bytes)} a step from a device, not"
    return f"{words}, as {sent} {show_gb(first.sent_bytes)}"


def _some(seconds: float | None) -> str:
    return show_seconds(seconds) if seconds else "0"


def _why_not(name: str, first: Plan) -> str:
    """Why no mesh is of a kind that people ask for."""
    job, node = first.job, first.job.cluster.devices_per_node
    if name == "3D":
        if node == 1:
            return "a node has one device, and tensor parallelism is tried inside nodes only"
        why = unfit(job.architecture, job.sequence, "tp", 2)
        return f"tp=2: {why}" if why else "not among the meshes that were asked for"
    if job.batch % job.devices:
        return f"{job.batch:,} examples cannot be shared by {job.devices:,} devices"
    return "not among the meshes that were asked for"


def _shares(plan: Plan) -> list[tuple[str, float]]:
    """Parts of a step's time by group, the largest first."""
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
