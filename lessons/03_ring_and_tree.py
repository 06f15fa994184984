# %% [markdown]
# # Lesson 03: rings and trees
#
# In lesson 02 a collective was one word: all-gather, all-reduce. A machine has only links between
# devices, and devices send messages over them. An *algorithm* says who sends what to whom, step
# after step. This lesson has five: the ring, the two-way ring, the tree, recursive doubling, and
# the hierarchy. Results are the same. The number of steps and the bytes are not.
#
# A library picks one for you. But ring attention, pipelines and overlapped matrix products are
# rings that people write themselves, and you want to know what a machine can do at best.
#
# Here `x` is the array that one device holds, and `n` the number of devices.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import numpy as np

from jaxpar import collectives
from jaxpar.cost import communication as cost
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import NOBODY, draw, panel
from jaxpar.inspector import inspect

n = 8
line = make_mesh({"tp": n})  # n devices on one axis
nodes = make_mesh("node=2,device=4")  # two machines (nodes) of four devices each


def on_devices(function, mesh, **arguments):
    """The program in which every device calls `function` on its part of dim 0."""
    parts = spec("b_" + "_".join(mesh.axis_names))
    local = partial(function, **arguments)
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=parts, out_specs=parts))


# %% [markdown]
# ## The idea in one picture
#
# A *ring*: each device sends to the next one only, and the last to the first. In an all-gather
# every device starts with its own block and wants all of them. In each step it passes on the
# block that it received in the step before. The loop does this one device at a time, in numpy.


# %%
def ring_by_hand(x):
    """What is held, [device, block], at the start and after each step; nan is not here yet."""
    held = [np.where(np.eye(len(x)), x, np.nan)]
    for step in range(1, len(x)):
        now = held[-1].copy()
        for device in range(len(x)):
            block = (device - step) % len(x)  # it set out `step` places before
            now[device, block] = held[-1][device - 1, block]
        held.append(now)
    return held


def draw_steps(name, title, moments, arrows):
    """A panel for each moment; a block keeps the colour of the device that it comes from."""
    panels = []
    for step, (held, pairs) in enumerate(zip(moments, [*arrows, []], strict=True)):
        here = ~np.isnan(held)
        owners = np.where(here, np.arange(held.shape[-1]), NOBODY)
        values = np.where(here, held.astype(object), ".")
        panels.append(panel(f"after step {step}", values, owners, arrows=pairs))
    return draw(name, title, *panels)


four = np.array([10.0, 20, 30, 40])
to_next = [(0, 1), (1, 2), (2, 3), (3, 0)]
draw_steps("03_ring", "Ring all-gather on four devices", ring_by_hand(four), [to_next] * 3)

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. On 8 devices, each with an `x` of 4096 bytes:
#
# 1. How many steps does the ring all-gather take, and how many bytes does each device send?
# 2. In a *tree*, all devices that have the root's array send it on in each step. How many steps
#    until everyone has it?
# 3. An all-reduce could be an all-gather and a sum on each device. What is the least it can send?
#
# To compare algorithms we need a price. In the *latency-bandwidth model* a message of `s` bytes
# takes `latency + s / bandwidth`. *Latency* is the time of an empty message, *bandwidth* is bytes
# per second. Messages that wait for one another add up, so an algorithm takes
# `steps * latency + bytes in a row / bandwidth`. Arithmetic is free in this model.
#
# The link below has the bandwidth of NVLink between H100 GPUs, one way. Its latency is assumed.

# %%
ALGORITHMS = (
    "ring_all_gather", "two_way_ring_all_gather", "recursive_doubling_all_gather",
    "ring_reduce_scatter", "ring_all_reduce", "recursive_doubling_all_reduce",
    "tree_broadcast", "tree_reduce",
)  # fmt: skip
X_BYTES = 4096
RETURNS = {"gather": n * X_BYTES, "scatter": X_BYTES // n, "reduce": X_BYTES, "broadcast": X_BYTES}
nvlink = cost.Link(latency_seconds=2e-6, bytes_per_second=450e9)
predicted = {name: getattr(cost, name)(X_BYTES, n) for name in ALGORITHMS}
returned = {name: RETURNS[name.split("_")[-1]] for name in ALGORITHMS}

table(
    f"Predicted for {n} devices, x of {X_BYTES:,} bytes",
    ("algorithm", "steps", "bytes sent", "bytes in a row", "bytes returned", "microseconds"),
    [(name, c.steps, c.wire_bytes, c.serial_bytes, returned[name], f"{1e6 * c.seconds(nvlink):.2f}")
     for name, c in predicted.items()],
)  # fmt: skip
assert predicted["ring_all_gather"].steps == n - 1 and 2 ** predicted["tree_broadcast"].steps == n
assert predicted["ring_all_gather"].wire_bytes == n / 2 * predicted["ring_all_reduce"].wire_bytes

# %% [markdown]
# Question 3: all-gather and sum sends `(n-1) x`. The ring all-reduce sends `2 (n-1)/n x`, which is
# `n/2` times less. Nothing can send less. Follow one element of `x` through an all-reduce:
#
# - A message joins at most two partial sums. Until one device knows the sum of `n` numbers that
#   lie on `n` devices, at least `n-1` messages have carried this element.
# - After that, each of the other `n-1` devices must still receive it: `n-1` messages more.
#
# So each element travels at least `2 (n-1)` times. Shared by `n` devices that is `2 (n-1)/n x`
# each: the ring is *bandwidth-optimal*. The first half of the argument alone is the bound of a
# reduce-scatter, `(n-1)/n x`.
#
# But the ring takes `2 (n-1)` steps. *Recursive doubling* takes `log2 n`: partners swap all they
# have, at distance 1, then 2, then 4. As an all-reduce it sends the whole `x` each time. A small
# `x` wants few steps, a large `x` few bytes. Where both take the same time is the *crossover*.

# %%
doubling, ring = cost.recursive_doubling_all_reduce, cost.ring_all_reduce
rows = []
for devices in (8, 64, 1024):
    size = cost.crossover_bytes(doubling, ring, devices, nvlink)
    assert doubling(size / 2, devices).seconds(nvlink) < ring(size / 2, devices).seconds(nvlink)
    assert doubling(2 * size, devices).seconds(nvlink) > ring(2 * size, devices).seconds(nvlink)
    rows.append((devices, round(size / 1e6, 1)))
table("All-reduce: recursive doubling is faster below", ("devices", "MB"), rows)

# %% [markdown]
# ## Implement
#
# **Ring all-gather.** The loop over devices is gone: all run the same lines, and `lax.ppermute`
# moves a block from each device to the next. Device `i` receives the blocks of `i-1`, `i-2`, and
# so on. The last line puts them into device order.

# %%
show(collectives.ring_all_gather)

x = np.arange(10.0, 90, 10, np.float32)  # one number for each device
y = on_devices(collectives.ring_all_gather, line, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(n, n), ring_by_hand(x)[-1])

# %% [markdown]
# A **two-way ring** sends both ways at once. A block travels half way round in each direction: as
# many bytes, half the steps, if links carry both directions at the same time.
#
# A **ring reduce-scatter** is the ring with sums in it: a partial sum travels, and each device
# adds its own part. JAX knows it. The derivative of sending is sending back, so the gradient of a
# ring all-gather is a ring reduce-scatter that runs the other way round.


# %%
def backward(x, dy):
    gather = partial(collectives.ring_all_gather, axis="tp")
    return jax.vjp(gather, x)[1](dy)[0]


parts = spec("b_tp")
gradient = jax.jit(jax.shard_map(backward, mesh=line, in_specs=(parts, parts), out_specs=parts))
dy = np.random.default_rng(0).normal(size=(n * n, 1)).astype(np.float32)  # [n, 1] on each device
np.testing.assert_allclose(gradient(x, dy), dy.reshape(n, n).sum(axis=0), rtol=1e-4)

# %% [markdown]
# **Tree reduce.** In each step the upper half of those that still take part sends its sums to the
# lower half, and is done. The picture counts how many of the 8 numbers each sum covers.


# %%
def tree_by_hand(x):
    """The sum on each device, at the start and after each step; nan is done. Device 0 is root."""
    sums, half = [x], len(x)
    while half > 1:
        half //= 2
        now = sums[-1].copy()
        for device in range(half):
            now[device] += sums[-1][device + half]
            now[device + half] = np.nan
        sums.append(now)
    return sums


halves = [[(device + half, device) for device in range(half)] for half in (4, 2, 1)]
draw_steps("03_tree", "Tree reduce on eight devices", tree_by_hand(np.ones(n)), halves)

show(collectives.tree_reduce)

y = on_devices(collectives.tree_reduce, line, axis="tp", root=0)(x)
assert y[0] == tree_by_hand(x)[-1][0] and not y[1:].any()

# %% [markdown]
# A **tree broadcast** is the same tree from the root outwards. **Recursive doubling:** the partner
# of device `i` at distance `d` is `i ^ d`, its number with one bit flipped.


# %%
def doubling_by_hand(x):
    """What is held, [device, block], at the start and after each step; nan is not here yet."""
    held, distance = [np.where(np.eye(len(x)), x, np.nan)], 1
    while distance < len(x):
        theirs = [held[-1][device ^ distance] for device in range(len(x))]
        held.append(np.where(np.isnan(held[-1]), theirs, held[-1]))
        distance *= 2
    return held


swaps = [[(i, i ^ distance) for i in range(4)] for distance in (1, 2)]
draw_steps("03_doubling", "Recursive doubling on four devices", doubling_by_hand(four), swaps)

show(collectives.recursive_doubling_all_gather)

y = on_devices(collectives.recursive_doubling_all_gather, line, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(n, n), doubling_by_hand(x)[-1])

# %% [markdown]
# **Hierarchical.** Fast links join the devices of a node (`inner`), slow links join nodes
# (`outer`). Slow links should carry little. So an all-gather starts between nodes, while a device
# has only its own block. An all-reduce does a reduce-scatter inside the node, an all-reduce of
# what is left between nodes, and an all-gather inside the node.


# %%
def hierarchy_by_hand(x):
    """What each device holds in the end, for x [node, device]."""
    held = {}
    for node, device in np.ndindex(x.shape):
        held[node, device] = x[:, device]  # from the same place in every node
    for node, device in np.ndindex(x.shape):
        columns = [held[node, other] for other in range(x.shape[1])]  # from its own node
        yield np.stack(columns, axis=1).ravel()


show(collectives.hierarchical_all_gather)

y = on_devices(collectives.hierarchical_all_gather, nodes, inner="device", outer="node")(x)
np.testing.assert_array_equal(y.reshape(n, n), [*hierarchy_by_hand(x.reshape(2, 4))])

# %% [markdown]
# ## Measure
#
# The inspector reads the programs, without running them: how many permutes there are, how many
# bytes a device sends, and how many it returns.


# %%
def measure(function, mesh, **arguments):
    x = jax.ShapeDtypeStruct((n * n, X_BYTES // 4 // n), np.float32)  # [n, ...] on each device
    return inspect(on_devices(function, mesh, **arguments), x)


measured = {}
for name in ALGORITHMS:
    root = {"root": 0} if name.startswith("tree") else {}
    measured[name] = measure(getattr(collectives, name), line, axis="tp", **root)
sent = {name: report.wire_bytes_by_axis()[("tp",)] for name, report in measured.items()}
permutes = {name: len(report.collectives) for name, report in measured.items()}

# %% [markdown]
# ## Compare
#
# Bytes are as predicted, everywhere. Permutes are steps, with one exception: the two-way ring has
# as many permutes as the ring, but those of one direction do not wait for those of the other.

# %%
table(
    "Predicted | measured",
    ("algorithm", "steps | permutes", "bytes sent", "bytes returned"),
    [(name, f"{c.steps} | {permutes[name]}", f"{c.wire_bytes:,} | {sent[name]:,}",
      f"{returned[name]:,} | {measured[name].memory.outputs_bytes:,}")
     for name, c in predicted.items()],
)  # fmt: skip
for name in ALGORITHMS:
    assert sent[name] == predicted[name].wire_bytes
    assert measured[name].memory.outputs_bytes == returned[name]
    if name == "two_way_ring_all_gather":
        directions = [c.pairs for c in measured[name].collectives]
        steps = max(directions.count(pairs) for pairs in directions)
    else:
        steps = permutes[name]
    assert steps == predicted[name].steps

# %% [markdown]
# The hierarchical all-reduce, by axis: `device` is the fast one, `node` the slow one. A flat ring
# over all devices crosses from node to node too, with all its bytes.

# %%
report = measure(collectives.hierarchical_all_reduce, nodes, inner="device", outer="node")
inner, outer = cost.hierarchical_all_reduce(X_BYTES, n_inner=4, n_outer=2)
by_axis = report.wire_bytes_by_axis()
assert by_axis == {("device",): inner.wire_bytes, ("node",): outer.wire_bytes}
flat = predicted["ring_all_reduce"].wire_bytes
rows = [(*axes, sent, flat) for axes, sent in by_axis.items()]
table("All-reduce, bytes sent", ("over", "hierarchical", "flat ring"), rows)
assert flat == 7 * outer.wire_bytes

# %% [markdown]
# ## On real hardware
#
# The simulated devices share the CPU's memory, so their times say nothing about links. Steps and
# bytes are true here; latency, bandwidth and overlap are not. What changes:
#
# - The model is a lower bound. *How to Scale Your Model* computes 1.04 ms for an all-gather of
#   `bf16[4096, 65536]` on 8 H100, and quotes about 1.5 ms measured. The next cell computes it too.
# - A step is as slow as its slowest link. The cell compares a flat ring with the hierarchy on 8
#   nodes of 8 GPUs; between nodes each GPU has 50 GB/s (and a latency that we assume).
# - Behind a switch (NVSwitch) any two devices are neighbours. On a TPU's torus only real
#   neighbours are: there a tree pays for every hop, and rings run both ways.
# - Libraries cut messages into pieces and send the next piece before the last one has arrived. A
#   tree in pieces (NCCL's double binary tree) reaches the ring's bandwidth as well.
# - Switches that add (SHARP, NVLS) get below the bound above: they take part in the sum.

# %%
tensor_bytes = 2 * 4096 * 65536
ideal = cost.ring_all_gather(tensor_bytes / 8, 8).seconds(cost.Link(0, 450e9))
assert round(1e3 * ideal, 2) == 1.04

network = cost.Link(latency_seconds=10e-6, bytes_per_second=50e9)
flat = cost.ring_all_reduce(1e9, 64).seconds(network)
inner, outer = cost.hierarchical_all_reduce(1e9, n_inner=8, n_outer=8)
levels = inner.seconds(nvlink) + outer.seconds(network)
print(f"all-reduce of 1 GB on 64 GPUs: ring {1e3 * flat:.1f} ms, hierarchy {1e3 * levels:.1f} ms")
assert flat > 4 * levels

# %% [markdown]
# ## Exercises
#
# Open a file, write the function, then type `jaxpar check` and the name of the exercise. You are
# asked for the siblings of what stands above, so the same ideas do.

# %%
exercises("03")

# %% [markdown]
# ## Sources
#
# Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
# MPICH*, section 4 (all but hierarchies). Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce
# algorithms for clusters of workstations* (bound and ring). Chan et al. 2007, *Collective
# communication: theory, practice, and experience*. Cho et al. 2019, *BlueConnect* (hierarchy).
# Austin et al. 2025, *How to Scale Your Model*, chapters "Sharded Matrices" and "GPUs".
#
# | here | NCCL (`NCCL_ALGO`) | MPI | frameworks |
# |---|---|---|---|
# | ring | Ring | ring | PyTorch, Horovod, DeepSpeed, Megatron call NCCL |
# | tree | Tree (all-reduce) | binomial tree | the same |
# | recursive doubling | PAT (a relative) | recursive doubling, Bruck | Gloo: halving-doubling |
# | hierarchical | NVLSTree, CollNet | HAN (Open MPI) | `HOROVOD_HIERARCHICAL_ALLREDUCE` |
#
# The hierarchy as a layout: HSDP (PyTorch), hpZ (DeepSpeed ZeRO++), and Megatron's
# `--num-distributed-optimizer-instances`. Next: lesson 04, what a training step costs.
