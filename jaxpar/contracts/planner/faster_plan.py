"""One change that makes a bad plan 1.3 times as fast, judged by the planner's formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.draws import pick
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.faster import MESH, SIZES, faster_plan, most_chunks, plan_costs
from jaxpar.cost.planner.plan import GB, RESERVE

Plan = dict[str, Any]
Job = dict[str, Any]
Seconds = dict[str, float]

TIMES = 1.3
_SURE = 1.31  # what the reference's change gains at least in the calls that are drawn
_TRIES = 200

_SMALL = ("llama3-8b", "mistral-7b", "llama2-7b")
_LARGE = ("llama3-70b", "gpt3-175b", "llama2-70b", "qwen2-72b")
_BY_NODE = {4: ("a100-pcie", "h100-pcie"), 8: ("a100", "h100", "h200", "b200"), 72: ("gb200",)}


def _plan(**sizes: Any) -> Plan:
    return dict.fromkeys(SIZES, 1) | {"remat": "none"} | sizes


def _job(model: str, hardware: str, plan: Plan, batch: int, sequence: int) -> Job:
    return {
        "model": model,
        "layers": find_model(model).layers,
        "hardware": hardware,
        "devices_per_node": find_cluster(hardware).devices_per_node,
        "devices": int(np.prod([plan[axis] for axis in MESH])),
        "batch": batch,
        "sequence": sequence,
    }


def _leaves_its_node(rng: np.random.Generator, per_node: int) -> tuple[Plan, Job]:
    """Tensor parallelism over several nodes, in a pipeline with many microbatches."""
    nodes = pick(rng, (2, 4))
    plan = _plan(pp=pick(rng, (1, 2, 4)), dp=pick(rng, (1, 2, 4)), tp=per_node * nodes)
    batch = plan["dp"] * nodes * plan["pp"] * pick(rng, (8, 12, 16))
    model, sequence = pick(rng, _SMALL + _LARGE), pick(rng, (2048, 4096))
    return plan, _job(model, pick(rng, _BY_NODE[per_node]), plan, batch, sequence)


def _few_microbatches(rng: np.random.Generator, per_node: int, *remats: str) -> tuple[Plan, Job]:
    """A pipeline whose microbatches are large, and few; in large nodes tp is larger than 8."""
    plan = _plan(
        pp=pick(rng, (4, 8, 16)),
        dp=pick(rng, (1, 2, 4)),
        tp=8 if per_node == 8 else 16,
        microbatch=pick(rng, (2, 4, 8)),
        remat=pick(rng, remats),
    )
    count = max(1, plan["pp"] // pick(rng, (1, 2, 4)))
    batch = plan["dp"] * plan["microbatch"] * count
    model, sequence = pick(rng, _LARGE), pick(rng, (1024, 2048, 4096))
    return plan, _job(model, pick(rng, _BY_NODE[per_node]), plan, batch, sequence)


def _few_chunks(rng: np.random.Generator) -> tuple[Plan, Job]:
    """A pipeline whose microbatches have one example, and are few."""
    plan = _plan(pp=pick(rng, (8, 16)), dp=pick(rng, (1, 2, 4)), tp=pick(rng, (4, 8)))
    batch, sequence = plan["dp"] * plan["pp"], pick(rng, (2048, 4096))
    return plan, _job(pick(rng, _LARGE), pick(rng, _BY_NODE[8]), plan, batch, sequence)


def _few_tokens(rng: np.random.Generator) -> tuple[Plan, Job]:
    """FSDP that gathers for a single short example."""
    plan = _plan(dp=pick(rng, (1, 2)), fsdp=pick(rng, (32, 64, 128, 256)), remat="full")
    batch = plan["dp"] * plan["fsdp"] * pick(rng, (24, 32, 64, 96))
    model, sequence = pick(rng, _SMALL + _LARGE), pick(rng, (512, 1024))
    return plan, _job(model, pick(rng, _BY_NODE[8]), plan, batch, sequence)


def _needless_recomputation(rng: np.random.Generator, microbatch: int) -> tuple[Plan, Job]:
    """Tensor parallelism inside a node, very many microbatches, and memory enough."""
    sizes = {"pp": pick(rng, (1, 2, 4)), "dp": pick(rng, (1, 2, 4)), "tp": 8}
    plan = _plan(**sizes, microbatch=microbatch, remat="full")
    batch = plan["dp"] * microbatch * plan["pp"] * pick(rng, (16, 24, 32))
    model, sequence = pick(rng, _SMALL + _LARGE), pick(rng, (2048, 4096))
    return plan, _job(model, pick(rng, _BY_NODE[8]), plan, batch, sequence)


def _bad_plans(rng: np.random.Generator) -> list[Call]:
    """Plans of all faults, each of which the reference mends; some that look alike at a glance."""

    def draw(
        family: Callable[..., tuple[Plan, Job]],
        *how: Any,
        but_not: Callable[[Plan, Job], Plan] | None = None,
    ) -> Call:
        """A plan that fits, and that is mended by the reference, but not by another change."""
        for _ in range(_TRIES):
            plan, job = family(rng, *how)
            seconds = _seconds(plan, job)
            if not seconds or (but_not and _mends(plan, job, but_not(plan, job))):
                continue
            if _mends(plan, job, faster_plan(plan, job, seconds), _SURE):
                return (plan, job, seconds), {}
        raise AssertionError(f"{family.__name__}: no plan in {_TRIES} tries")

    return [
        draw(_leaves_its_node, 8),
        draw(_few_microbatches, 8, "none", "full"),
        draw(_needless_recomputation, 2),
        draw(_few_tokens, but_not=_with_all_examples),
        draw(_few_chunks),
        draw(_leaves_its_node, 4),
        draw(_few_microbatches, 8, "full", but_not=_keeping_all),
        draw(_needless_recomputation, 1),
        draw(_few_microbatches, 72, "none", "full"),
        draw(_few_tokens, but_not=_with_all_examples),
        draw(_leaves_its_node, pick(rng, (4, 8))),
        draw(_few_chunks),
    ]


def _seconds(plan: Plan, job: Job) -> Seconds | None:
    """What a step spends, to three digits; None if the plan is impossible, or does not fit."""
    try:
        spent, memory_bytes = plan_costs(plan, job)
    except ValueError:
        return None
    if memory_bytes > _room(job):
        return None
    return {cause: float(f"{value:.3g}") for cause, value in spent.items()}


def _mends(plan: Plan, job: Job, result: Plan, times: float = TIMES) -> bool:
    return _complaint_about(plan, job, result, times) is None


def _room(job: Job) -> float:
    return (1 - RESERVE) * find_cluster(job["hardware"]).device.memory_bytes


def _complaint(calls: list[Call], results: list[Any]) -> str | None:
    """What is wrong with the first plan that is not as it must be."""
    for ((plan, job, _), _), result in zip(calls, results, strict=True):
        text = _complaint_about(plan, job, result)
        if text is not None:
            where = f"{job['model']} on {job['devices']} x {job['hardware']}"
            return f"{where}, {job['batch']} x {job['sequence']} tokens, {_show(plan)}: {text}"
    return None


def _complaint_about(plan: Plan, job: Job, result: Any, times: float = TIMES) -> str | None:
    if not isinstance(result, dict) or result.keys() != plan.keys():
        return f"gives {str(result)[:200]}; it must give a plan with the keys of the given one"
    for name in SIZES:
        if type(result[name]) is not int or result[name] < 1:
            return f"{name} is {str(result[name])[:80]}; it must be an int of 1 or more"
    if result["remat"] not in ("none", "full"):
        return f"remat is {str(result['remat'])[:80]!r}; it must be 'none' or 'full'"
    changed = _changed(plan, result)
    if len(changed) != 1:
        return f"{_show(result)} changes {' and '.join(changed) or 'nothing'}; make one change"
    devices = int(np.prod([result[axis] for axis in MESH]))
    if devices != job["devices"]:
        return f"{_show(result)} has {devices} devices; there are {job['devices']}"
    try:
        spent, memory_bytes = plan_costs(result, job)
    except ValueError as error:
        return f"{_show(result)} is impossible; {error}"
    if memory_bytes > _room(job):
        room = f"{_room(job) / GB:.1f}"
        return f"{_show(result)} needs {memory_bytes / GB:.1f} GB; {room} GB may be used"
    before, after = sum(plan_costs(plan, job)[0].values()), sum(spent.values())
    if before < times * after:
        took = f"takes {after:.3g} s where {before:.3g} s are given"
        return f"{_show(result)} {took}: {before / after:.2f} times as fast; {times} is asked for"
    return None


def _changed(plan: Plan, result: Plan) -> list[str]:
    """The choices that differ: the sizes of the axes are one choice."""
    axes = ["the mesh"] if any(result[axis] != plan[axis] for axis in MESH) else []
    others = (*(name for name in SIZES if name not in MESH), "remat")
    return axes + [name for name in others if result[name] != plan[name]]


def _show(plan: Mapping[str, Any]) -> str:
    several = [f"{name}={plan[name]}" for name in SIZES if plan[name] != 1]
    return ", ".join([*several, f"remat {plan['remat']}"])


CONTRACT = Contract(
    kind="value",
    task="return the plan with one choice changed, so that a step takes 1/1.3 of its time or less",
    reference=faster_plan,
    oracle=faster_plan,
    values=_bad_plans,
    complaint=_complaint,
    hints=(
        "Which plans have groups of tp that are larger than a node? In the others, is most time "
        "lost in the bubble, in recomputation, or in waiting for fsdp?",
        "Move devices from tp to dp. Against the bubble, cut the batch into smaller microbatches, "
        "or a stage into more chunks. Against gathers, give each of them a few thousand tokens; "
        "not all at once, because activations must fit.",
        'if plan["tp"] > job["devices_per_node"]: cut tp, and multiply dp by as much. Else take '
        'the largest of seconds["recomputation"], seconds["fsdp"] and seconds["bubble"]: remat '
        '"none"; the smallest microbatch with 4096 tokens that divides the examples of a replica; '
        "microbatch 1, and if it is 1 already, the most chunks k for which pp * k divides the "
        "layers.",
    ),
    minimal="A step cannot take less than its arithmetic at the speed that products reach; what "
    "you took away was waiting, or work done twice.",
    harder="Return the fastest plan of all that fit. What does `jaxpar plan` find, and how much "
    "faster is it than yours?",
)


def _with_all_examples(plan: Plan, job: Job) -> Plan:
    return plan | {"microbatch": job["batch"] // (plan["dp"] * plan["fsdp"])}


def _keeping_all(plan: Plan, job: Job) -> Plan:
    del job
    return plan | {"remat": "none"}


@wrong("values")
def plan_as_it_was(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You return the plan as it was; change one choice."""
    return dict(plan)


@wrong("values")
def plan_never_recomputes(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You turn recomputation off in every plan; look at `seconds` for what takes the time, because
    recomputation is at most a quarter of a step."""
    return _keeping_all(plan, job)


@wrong("values")
def plan_of_single_examples(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You make the microbatch 1 in every plan; that shortens the bubble of a pipeline only, and
    FSDP then gathers more often."""
    return plan | {"microbatch": 1}


@wrong("values")
def plan_of_one_microbatch(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You put all examples of a replica into one microbatch in every plan; a pipeline then has a
    longer bubble, and the activations may not fit."""
    return _with_all_examples(plan, job)


@wrong("values")
def plan_without_tensor_parallelism(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You move all devices from tp to dp in every plan; inside a node tensor parallelism is fast,
    and it is what makes large models fit."""
    return plan | {"tp": 1, "dp": plan["dp"] * plan["tp"]}


@wrong("values")
def plan_devices_left_over(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You make tp smaller, and leave the devices that become free without work; multiply another
    axis by as much."""
    within = min(plan["tp"], job["devices_per_node"])
    return faster_plan(plan, job, seconds) | {"tp": within, "dp": plan["dp"]}


@wrong("values")
def plan_nodes_of_8(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You take every node for one of 8 devices; `job["devices_per_node"]` says how many it has."""
    return faster_plan(plan, job | {"devices_per_node": 8}, seconds)


@wrong("values")
def plan_changed_keys_alone(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You return the keys that change; return the whole plan."""
    new = faster_plan(plan, job, seconds)
    return {name: new[name] for name in new if new[name] != plan[name]}


@wrong("values")
def plan_all_gathers_in_one(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """Where FSDP gathers too often you take the largest microbatch; its activations do not always
    fit, and a few thousand tokens are enough to hide a gather."""
    new = faster_plan(plan, job, seconds)
    return _with_all_examples(plan, job) if plan["fsdp"] > 1 else new


@wrong("values")
def plan_with_more_chunks_only(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """Against every fault you cut the stages into chunks; that helps a pipeline's bubble only."""
    return plan | {"chunks": most_chunks(job["layers"], plan["pp"])}


@wrong("values")
def plan_all_mended_at_once(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You change several choices at once; change the one that costs most."""
    new = faster_plan(plan, job, seconds)
    return new | {"remat": "none", "microbatch": 1 if plan["pp"] > 1 else new["microbatch"]}


@wrong("values")
def plan_of_the_mesh_alone(plan: Plan, job: Job, seconds: Seconds) -> Plan:
    """You look at the plan, and not at `seconds`: a plan that recomputes, or whose microbatches are
    large, need not lose its time there."""
    if plan["tp"] > job["devices_per_node"] or plan["fsdp"] > 1 or plan["remat"] == "none":
        return faster_plan(plan, job, seconds)
    return _keeping_all(plan, job)
