"""One change that makes a bad plan faster, found by rules: for teaching only.

The planner itself tries every plan (`fastest`). Here a plan and a job are plain dicts, as in the
exercise `faster_plan`, and these formulas judge its answers.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.candidates import Job, layouts
from jaxpar.cost.planner.plan import memory_terms, pick, time_terms
from jaxpar.cost.planner.report import group
from jaxpar.cost.terms import total
from jaxpar.cost.traffic import step_traffic
from jaxpar.layout import Layout

MESH = ("pp", "dp", "fsdp", "tp")
SIZES = (*MESH, "chunks", "microbatch")
CAUSES = ("arithmetic", "recomputation", "memory traffic", *MESH, "bubble")
ENOUGH_TOKENS = 4096  # on a device, so that computing a layer hides its gather, in nodes of GPUs


def faster_plan(
    plan: dict[str, Any], job: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """A plan that is at least 1.3 times as fast as `plan`, by one change.

    A plan has the sizes of its axes, "pp", "dp", "fsdp" and "tp"; "chunks", the parts of the model
    on each stage; "microbatch", the examples that go through a device at once; "remat", which is
    "none" or "full". Every plan that is given has one of four faults: tensor parallelism leaves its
    node, the pipeline has too few microbatches or chunks, FSDP gathers for too few tokens, or
    layers are recomputed without need. One change is another value of "chunks", "microbatch" or
    "remat", or other sizes of axes, with as many devices in all.

    `seconds` says what a step of `plan` spends: "arithmetic", "recomputation", "memory traffic",
    the "bubble", and for each axis the time that devices wait for what is sent over it. Tensor
    parallelism comes with sequence parallelism. Over dp ZeRO-1 shards the optimizer's states, and
    over fsdp ZeRO-3 shards everything.

    `job` has the "model" with its number of "layers", the "hardware" with its "devices_per_node",
    the number of "devices", and "batch" (over all devices) times "sequence" tokens. The groups of
    tp fill nodes first. The result is judged by the formulas of `jaxpar plan --overlap`. It must
    leave a tenth of a device's memory free. dp * fsdp * microbatch must divide the batch. With
    several chunks, pp must divide the number of microbatches, and pp * (chunks - 1) must be less
    than the layers. `plan` stays as it is.

    Source: Narayanan et al. 2021, section 3, takeaways 1 to 3; jax-ml/scaling-book, gpus.md
    """
    new = dict(plan)
    of_replica = job["batch"] // (plan["dp"] * plan["fsdp"])
    if plan["tp"] > job["devices_per_node"]:
        new["tp"] = job["devices_per_node"]
        new["dp"] = plan["dp"] * plan["tp"] // new["tp"]
        return new
    worst = max(("recomputation", "fsdp", "bubble"), key=lambda cause: seconds[cause])
    if worst == "recomputation":
        new["remat"] = "none"
    elif worst == "fsdp":
        enough = range(-(-ENOUGH_TOKENS // job["sequence"]), of_replica)
        new["microbatch"] = next(k for k in enough if of_replica % k == 0)
    elif plan["microbatch"] > 1:
        new["microbatch"] = 1
    else:
        new["chunks"] = most_chunks(job["layers"], plan["pp"])
    return new


def most_chunks(layers: int, pp: int) -> int:
    """The most chunks on each of pp stages that all have equally many layers; 1 if none have."""
    return max((k for k in range(1, layers + 1) if layers % (pp * k) == 0), default=1)


def plan_costs(plan: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """Seconds of a step by `CAUSES`, and bytes on the fullest device.

    Raises:
        ValueError: the model cannot be spread so, or the batch cannot be split so.
    """
    seconds, memory_bytes = _costs(tuple(plan.items()), tuple(job.items()))
    return dict(zip(CAUSES, seconds, strict=True)), memory_bytes


@lru_cache(maxsize=4096)
def _costs(plan: tuple, job: tuple) -> tuple[tuple[float, ...], float]:
    its = dict(job)
    sizes = {"batch": its["batch"], "sequence": its["sequence"]}
    model, cluster = find_model(its["model"]), find_cluster(its["hardware"])
    where = Job(model, cluster, its["devices"], **sizes)
    layout = _layout(dict(plan), where)
    axes = {one.name: one.axes for one in step_traffic(model, layout, **sizes)}
    seconds: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
    for term in time_terms(where, layout, True):
        kind = group(term)
        # What is sent over several axes, as gradients over dp and fsdp, counts for the last.
        cause = axes[term.name][-1] if kind == "links" else kind
        seconds[cause] += float(term.value)
    return tuple(seconds.values()), float(total(memory_terms(where, layout)))


def _layout(plan: dict[str, Any], job: Job) -> Layout:
    zero = 3 if plan["fsdp"] > 1 else 1 if plan["dp"] > 1 else 0
    chosen = {name: plan[name] for name in (*SIZES, "remat")}
    one_device = {"ep": 1, "cp": 1, "zero": zero, "sequence_parallel": plan["tp"] > 1}
    (found,) = layouts(job, chosen | one_device, "none")
    return pick(found, 0)
