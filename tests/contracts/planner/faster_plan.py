"""Answers to faster_plan: right ones by other routes, and wrong ones."""

from __future__ import annotations

from itertools import product

from jaxpar.contracts.base import wrong
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.planner.faster import plan_costs
from tests.contracts.answers import right


@right
def by_trying_every_change(plan, job, seconds):
    """With the planner's own formulas, which a learner does not have."""
    room = 0.9 * find_cluster(job["hardware"]).device.memory_bytes
    best, least = dict(plan), sum(plan_costs(plan, job)[0].values())
    for other in _neighbours(plan, job):
        try:
            spent, held = plan_costs(other, job)
        except ValueError:
            continue
        if held <= room and sum(spent.values()) < least:
            best, least = other, sum(spent.values())
    return best


def _neighbours(plan, job):
    yield plan | {"remat": "none" if plan["remat"] == "full" else "full"}
    powers = [2**k for k in range(10)]
    for k in powers:
        yield plan | {"microbatch": k}
    for k in range(1, job["layers"] + 1):
        yield plan | {"chunks": k}
    devices = job["devices"]
    for dp, tp in product(powers, powers):
        if dp * tp <= devices and devices % (plan["pp"] * plan["fsdp"] * dp * tp) == 0:
            pp = devices // (plan["fsdp"] * dp * tp)
            yield plan | {"pp": pp, "dp": dp, "tp": tp}


@right
def by_the_bubble_formula(plan, job, seconds):
    new = dict(plan)
    replica = job["batch"] // (plan["dp"] * plan["fsdp"])
    nodes = plan["tp"] // job["devices_per_node"]
    if nodes > 1:
        new.update(tp=plan["tp"] // nodes, dp=plan["dp"] * nodes)
    elif plan["fsdp"] > 1:
        # 8,192 tokens are too many for some of the memories
        fits = (k for k in range(1, replica + 1) if replica % k == 0)
        new["microbatch"] = min(fits, key=lambda k: abs(k * job["sequence"] - 4096))
    elif (plan["pp"] - 1) / (replica // plan["microbatch"] * plan["chunks"]) < 0.4:
        new["remat"] = "none"
    elif plan["microbatch"] > 1:
        new["microbatch"] = 1
    else:
        each = job["layers"] // plan["pp"]
        new["chunks"] = each
    return new


@right
def bubble_before_the_rest(plan, job, seconds):
    new = {**plan}
    per_node = job["devices_per_node"]
    if plan["tp"] > per_node:
        new["dp"], new["tp"] = plan["dp"] * plan["tp"] // per_node, per_node
    elif seconds["bubble"] > 0.4 * seconds["arithmetic"]:
        key, value = ("chunks", job["layers"] // plan["pp"])
        if plan["microbatch"] > 1:
            key, value = "microbatch", 1
        new[key] = value
    elif seconds["fsdp"] > 0.3 * seconds["arithmetic"]:
        new["microbatch"] = 4096 // job["sequence"]
    else:
        new["remat"] = "none"
    return new


@wrong("values")
def by_the_largest_of_seconds(plan, job, seconds):
    new = dict(plan)
    worst = max(seconds, key=lambda cause: seconds[cause])
    if worst == "tp":
        new["dp"], new["tp"] = plan["dp"] * plan["tp"], 1
    elif worst == "bubble":
        new["microbatch"] = 1
    elif worst == "fsdp":
        new["microbatch"] = 4
    elif worst == "recomputation":
        new["remat"] = "none"
    return new


@wrong("values")
def to_stages(plan, job, seconds):
    new = bubble_before_the_rest(plan, job, seconds)
    if plan["tp"] > job["devices_per_node"]:
        nodes = plan["tp"] // job["devices_per_node"]
        new = plan | {"tp": job["devices_per_node"], "pp": plan["pp"] * nodes * 2}
    return new


@wrong("values")
def microbatches_halved(plan, job, seconds):
    new = bubble_before_the_rest(plan, job, seconds)
    if plan["pp"] > 1 and new["microbatch"] < plan["microbatch"]:
        new["microbatch"] = max(1, plan["microbatch"] - 1)
    return new


@wrong("values")
def sizes_as_floats(plan, job, seconds):
    new = bubble_before_the_rest(plan, job, seconds)
    return {name: size / 1 if isinstance(size, int) else size for name, size in new.items()}


@wrong("values")
def with_more_devices(plan, job, seconds):
    new = dict(plan)
    new["dp"] *= 2
    return new


@wrong("values")
def with_a_key_more(plan, job, seconds):
    return bubble_before_the_rest(plan, job, seconds) | {"because": "it is faster"}


@wrong("values")
def in_place(plan, job, seconds):
    new = bubble_before_the_rest(plan, job, seconds)
    plan.update(new)
    return plan


@wrong("values")
def with_selective_recomputation(plan, job, seconds):
    new = bubble_before_the_rest(plan, job, seconds)
    return new | {"remat": "selective"} if plan["remat"] != new["remat"] else new


@wrong("values")
def all_is_well(plan, job, seconds):
    return None


@wrong("values")
def for_one_node_size(plan, job, seconds):
    return bubble_before_the_rest(plan, job | {"devices_per_node": 8}, seconds)
