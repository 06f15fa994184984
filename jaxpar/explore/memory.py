"""The explorer of memory and time: a model on a cluster, term by term, and what would fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS, failures
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.layout import REMATS
from jaxpar.cost.models import MODELS, find_model
from jaxpar.cost.planner.candidates import Job
from jaxpar.cost.planner.footprint import Inference, Training, fits, nearest_that_fits
from jaxpar.cost.planner.plan import GB, Plan, show_gb
from jaxpar.cost.terms import Term
from jaxpar.cost.zero import MIXED
from jaxpar.drawing.bars import Bars
from jaxpar.explore.clusters import CLUSTERS
from jaxpar.explore.controls import choice, flag, number, read
from jaxpar.explore.stacked import stacked
from jaxpar.layout import AXES, OFFLOAD_KINDS, ZERO_STAGES, Layout, describe

CHOSEN = ("zero", "remat", "sequence_parallel", "chunks", "microbatch", "offload")
"""The fields of a layout beside its axes."""
MOST_ON_AXIS = 4096
DIGITS = 12
"""How many are told: versions of Python differ in the last ones of a sum."""
AXIS_HELP = {
    "pp": "Stages of a pipeline.",
    "dp": "Devices that split the batch and hold the same parameters.",
    "fsdp": "Devices that split the batch, and shard all states; needs ZeRO 3.",
    "ep": "Devices that split the batch, and the experts of each layer.",
    "cp": "Devices that split the positions of an example.",
    "tp": "Devices that split the matrices of each layer.",
}

CONTROLS = (
    choice("model", "model", "llama3-8b", MODELS, "The model that is trained."),
    choice("hardware", "hardware", "h100", CLUSTERS, "The cluster that it is trained on."),
    *(
        number(axis, axis, 8 if axis == "dp" else 1, 1, MOST_ON_AXIS, AXIS_HELP[axis])
        for axis in AXES
    ),
    choice(
        "zero", "ZeRO", "1", map(str, ZERO_STAGES),
        "What ZeRO shards: nothing, the optimizer, gradients too, parameters too.",
    ),
    choice("remat", "remat", "none", REMATS, "What the backward pass computes again."),
    flag(
        "sequence_parallel", "sequence parallel", False,
        "Whether the devices of tp split the positions between their products.",
    ),
    number("chunks", "chunks", 1, 1, 64, "Parts of the model on each stage of the pipeline."),
    number("microbatch", "microbatch", 1, 1, 1024, "Examples that go through a device at once."),
    number("batch", "batch", 64, 1, 1 << 20, "Examples in a step, over all devices."),
    number("sequence", "sequence", 2048, 1, 1 << 20, "Tokens of an example."),
    choice("optimizer", "optimizer", "adamw", MIXED, "What updates the parameters."),
    choice("offload", "offload", "none", OFFLOAD_KINDS, "What waits in the memory of the host."),
)  # fmt: skip


def answer(form: Mapping[str, Any]) -> dict[str, Any]:
    """What each device holds, how long a step takes, and the nearest layout that fits.

    Raises:
        ValueError: a field has a value that is not allowed, or the model cannot be spread so.
    """
    given = read("memory", CONTROLS, form)
    given["zero"] = int(given["zero"])
    footprint = _footprint(given)
    try:
        footprint.check("memory")
    except ValueError as error:  # which names the options of the terminal; here they are fields
        raise ValueError(str(error).replace("--", "")) from None
    plan = _plan(given, footprint.layout)
    cluster = plan.job.cluster
    fitting = fits(footprint, cluster)
    near = None if fitting else nearest_that_fits(footprint, cluster)
    assert not isinstance(near, Inference), "what is trained becomes nothing else"
    bars = _bars(plan)
    return {
        "title": f"{given['model']} on {footprint.layout.devices:,} x {given['hardware']}: "
        f"{describe(footprint.layout)}",
        "svg": stacked({name: bar.to_svg() for name, bar in bars.items()}),
        "numbers": _numbers(plan, fitting),
        "tables": [
            _table(bars["memory"].title, plan.memory, show_gb),
            _table(bars["time"].title, plan.time, _show_seconds),
        ],
        "notes": list(_notes(plan, fitting, near)),
        "terms": [
            *_terms("memory", plan.memory, show_gb),
            *_terms("time", plan.time, _show_seconds),
        ],
        "limit_bytes": cluster.device.memory_bytes,
        "memory_bytes": _told(plan.memory_bytes),
        "step_seconds": _told(plan.step_seconds),
        "fits": fitting,
        "nearest": _difference(footprint, near) if near else None,
    }


def _footprint(given: Mapping[str, Any]) -> Training:
    chosen = {name: given[name] for name in (*AXES, *CHOSEN)}
    return Training(
        find_model(given["model"]),
        Layout(**chosen),
        given["sequence"],
        given["batch"],
        given["optimizer"],
    )


def _plan(given: Mapping[str, Any], layout: Layout) -> Plan:
    model, each = find_model(given["model"]), MIXED[given["optimizer"]]
    cluster = find_cluster(given["hardware"])
    job = Job(model, cluster, layout.devices, given["batch"], given["sequence"], each)
    saved = (each.params + each.optimizer) * model.parameters
    return Plan(job, layout, failures(saved, layout.devices, DEVICE_MTBF_HOURS))


def _bars(plan: Plan) -> dict[str, Bars]:
    """Pictures of memory and of time, each a bar of the layout."""
    device = plan.job.cluster.device
    unit, scale = ("s", 1.0) if plan.step_seconds >= 1 else ("ms", 1e3)
    return {
        "memory": Bars(
            "Memory of the fullest device",
            "GB",
            {describe(plan.layout): {t.name: float(t.value) / GB for t in plan.memory}},
            (f"a device of {plan.job.cluster.name}", device.memory_bytes / GB),
        ),
        "time": Bars(
            "Time of a step",
            unit,
            {describe(plan.layout): {t.name: float(t.value) * scale for t in plan.time}},
        ),
    }


def _numbers(plan: Plan, fitting: bool) -> list[list[str]]:
    layout, device = plan.layout, plan.job.cluster.device
    return [
        ["devices", f"{layout.devices:,}"],
        ["memory of the fullest device", show_gb(plan.memory_bytes)],
        ["a device has", show_gb(device.memory_bytes)],
        ["fits", "yes" if fitting else "no"],
        ["step", _show_seconds(plan.step_seconds)],
        ["model FLOPs utilization", f"{plan.mfu:.1%}"],
        ["sent by a device in a step", show_gb(plan.sent_bytes)],
        ["microbatches", f"{plan.microbatches:,}"],
    ]


def _notes(plan: Plan, fitting: bool, near: Training | None) -> Iterator[str]:
    host = sum(float(term.value) for term in plan.host)
    if host:
        yield f"In the memory of the host, for each device: {show_gb(host)}."
    if fitting and plan.tight:
        yield "Tight: the runtime, buffers and fragmentation take about a tenth of a device, too."
    if not fitting:
        yield (
            f"It does not fit; the nearest that fits is {_words(near)}."
            if near
            else "It does not fit, and no layout on up to 16,384 devices was found that does."
        )
    yield "A GB is 1e9 bytes. Nothing overlaps in the time of a step."


def _words(near: Training) -> str:
    return f"{describe(near.layout)}, batch {near.batch:,}, on {near.layout.devices:,} devices"


def _difference(footprint: Training, near: Training) -> dict[str, Any]:
    """The fields that differ in the nearest that fits, as a form has them."""
    before, after = _fields(footprint), _fields(near)
    changed = {name: value for name, value in after.items() if value != before[name]}
    return {"words": _words(near), "form": changed}


def _fields(footprint: Training) -> dict[str, Any]:
    fields = {name: getattr(footprint.layout, name) for name in (*AXES, *CHOSEN)}
    return fields | {"zero": str(footprint.layout.zero), "batch": footprint.batch}


def _terms(of: str, terms: Sequence[Term], show: Any) -> list[dict[str, Any]]:
    return [
        {
            "of": of,
            "name": term.name,
            "value": _told(term.value),
            "words": show(float(term.value)),
            "formula": term.formula,
            "filled": term.filled,
        }
        for term in terms
    ]


def _table(title: str, terms: Sequence[Term], show: Any) -> dict[str, Any]:
    rows = [[t.name, show(float(t.value)), t.formula, t.filled] for t in terms]
    headers = ["term", "value", "formula", "with numbers"]
    return {
        "title": title,
        "headers": headers,
        "rows": rows,
        "numeric": [False, True, False, False],
    }


def _told(value: Any) -> float:
    return float(f"{float(value):.{DIGITS}g}")


def _show_seconds(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds >= 1 else f"{seconds * 1e3:,.3g} ms"
