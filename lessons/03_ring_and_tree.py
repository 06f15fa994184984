# %% [markdown]
# # Lesson 03: rings and trees
#
# In lesson 02 a collective was one word: all-gather, all-reduce. A machine has only links between
# devices, and devices send messages over them. An *algorithm* says which device sends what to which
# other, step after step. This lesson has five: the ring, the two-way ring, the tree, recursive
# doubling, and the hierarchy. Results are the same; the number of steps and the bytes are not. A
# library picks one for you, but ring attention and pipelines are rings that people write
# themselves. Here `x` is the array that one device holds, and `n` the number of devices.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from dataclasses import astuple
from functools import partial

import jax
import numpy as np

from jaxpar import collectives
from jaxpar.cost import communication as cost
from jaxpar.cost import network
from jaxpar.cost.hardware import find_cluster
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.layout import step_panels
from jaxpar.inspector import inspect
from jaxpar.layout import Layout

n = 8
four, eight = make_mesh("tp=4"), make_mesh("tp=8")
nodes = make_mesh("node=2,device=4")  # two machines of four devices each
LEVELS = {"inner": "device", "outer": "node"}


def on_devices(function, mesh, **arguments):
    """Makes the program in which each device calls `function` on its rows."""
    parts = spec("b_" + "_".join(mesh.axis_names))
    on_each = jax.shard_map(mesh=mesh, in_specs=parts, out_specs=parts)
    return jax.jit(on_each(partial(function, **arguments)))


# %% [markdown]
# ## The idea in one picture
#
# A *ring*: each device sends to the next one only, and the last to the first. In an all-gather
# every device starts with its own block and wants all of them. In each step it passes on the
# block that it received in the step before. The loop does this one device at a time, in numpy.

# %%
x = np.array([10, 20, 30, 40], np.float32)  # one number for each device
start = np.where(np.eye(4), x, np.nan)  # [device, block]; nan: not here yet
ring = [start]
for step in (1, 2, 3):
    now = ring[-1].copy()
    for device in range(4):
        block = (device - step) % 4  # it set out `step` places before
        now[device, block] = ring[-1][device - 1, block]
    ring.append(now)

arrows = [[(device, (device + 1) % 4) for device in range(4)]] * 3
draw("03_ring", step_panels("Ring all-gather on four devices", ring, arrows))

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. On 8 devices, each with an `x` of 4096 bytes:
#
# 1. How many steps does the ring all-gather take? How many bytes does a device send, and return?
# 2. In a *tree*, all devices that have the root's array send it on in each step. How many steps is
#    that?
# 3. An all-reduce could be an all-gather and a sum on each device. What is the least it can send?
#
# To compare algorithms we need a price. In the *latency-bandwidth model* a message of `s` bytes
# takes `latency + s / bandwidth`. *Latency* is the time of an empty message, and *bandwidth* is the
# bytes per second. The times of messages that wait for one another add up; those of messages that
# are sent in both directions at once do not.
# Arithmetic is free in this model. `jaxpar/cost/communication.py` has a formula per algorithm.
#
# The link below is NVLink between H100 GPUs, one way: 18 links of 25 GB/s, and the latency that
# NCCL reckons with. `jaxpar/cost/hardware.toml` has the source of each figure.
# *Wire bytes* are those of lesson 02: what the busiest device sends or what it receives, whichever
# is more. In a tree reduce that device is the root, which only receives; every other device sends
# `x` once.

# %%
X_BYTES = 4096
gathers = ("ring", "two_way_ring", "recursive_doubling")
reduces = ("ring_all", "recursive_doubling_all", "tree")
RETURNED = {f"{name}_all_gather": n * X_BYTES for name in gathers}
RETURNED |= {f"{name}_reduce": X_BYTES for name in reduces}
RETURNED |= {"tree_broadcast": X_BYTES, "ring_reduce_scatter": X_BYTES // n}
h100 = find_cluster("h100")
nvlink = h100.inside
predicted = {name: getattr(cost, name)(X_BYTES, n) for name in RETURNED}
headers = ("algorithm", "steps", "wire bytes", "returned", "microseconds")
rows = []
for name, price in predicted.items():
    time = round(1e6 * price.seconds(nvlink), 2)
    rows.append((name, price.steps, price.wire_bytes, RETURNED[name], time))
table(f"Predicted for {n} devices, x of {X_BYTES:,} bytes", headers, rows)
flat_ring = predicted["ring_all_reduce"]
assert predicted["ring_all_gather"].steps == n - 1
assert predicted["ring_all_gather"].wire_bytes == n / 2 * flat_ring.wire_bytes
assert 2 ** predicted["tree_broadcast"].steps == n

# %% [markdown]
# Questions 1 and 2: the table. Question 3: all-gather and sum sends `(n-1) x`. The ring all-reduce
# sends `2 (n-1)/n x`, which is `n/2` times less. Nothing can send less. Follow one element of `x`:
#
# - A message joins at most two partial sums. Before one device knows the sum of `n` numbers that
#   are on `n` devices, at least `n-1` messages have carried this element.
# - After that, each of the other `n-1` devices must still receive it: `n-1` messages more.
#
# So each element is sent at least `2 (n-1)` times. Divided among `n` devices that is `2 (n-1)/n x`
# for each: the ring is *bandwidth-optimal*. The first half of the argument is the bound of a
# reduce-scatter.
#
# But the ring takes `2 (n-1)` steps. A tree reduce and a tree broadcast take `2 log2 n`.
# *Recursive doubling* takes `log2 n`: partners exchange all they have, at distance 1, then 2, then
# 4. In both, the busiest device sends or receives all of `x` in each step. For a small `x`, few
# steps are best; for a large `x`, few bytes. The *crossover* is the size at which both take the
# same time.

# %%
few_steps = (cost.tree_all_reduce, cost.recursive_doubling_all_reduce)
rows = []
for k in (8, 64, 1024):
    crossover = partial(cost.crossover_bytes, n=k, link=nvlink)
    sizes = [crossover(few, cost.ring_all_reduce) for few in few_steps]
    rows.append((k, *(round(size / 1e6, 1) for size in sizes)))
table("All-reduce: beats a ring below, in MB", ("n", "tree", "doubling"), rows)
assert few_steps[1](X_BYTES, n).seconds(nvlink) < flat_ring.seconds(nvlink)

# %% [markdown]
# ## Implement
#
# **Ring all-gather.** The loop over devices is gone: all devices run the same lines, and
# `lax.ppermute`
# moves a block from each device to the next. Device `i` receives the blocks of `i-1`, `i-2`, and
# so on. The last line puts them into device order.

# %%
show(collectives.ring_all_gather)
y = on_devices(collectives.ring_all_gather, four, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(4, 4), ring[-1])

# %% [markdown]
# A **two-way ring** sends both ways at once. A block travels half way round in each direction: as
# many bytes, half the steps, if links carry both directions at the same time.
#
# A **ring reduce-scatter** is a ring with sums: a partial sum travels, and each device adds its own
# chunk. Differentiation finds it by itself: the transpose of sending is sending back, so the
# gradient of a ring all-gather is a ring reduce-scatter that runs in the other direction.

# %%
gather = partial(collectives.ring_all_gather, axis="tp")
backward = on_devices(lambda x, dy: jax.vjp(gather, x)[1](dy)[0], four)
dy = np.arange(16, dtype=np.float32).reshape(16, 1)  # [4, 1] on each device
np.testing.assert_array_equal(backward(x, dy), dy.reshape(4, 4).sum(axis=0))

# %% [markdown]
# **Tree reduce.** In each step, the upper half of the devices that still take part sends its sums
# to the lower half, and is done. In the end the **root**, device 0, has the total.

# %%
x8 = np.arange(1, 9, dtype=np.float32)
tree, arrows = [x8], []
for half in (4, 2, 1):
    arrows.append([(device + half, device) for device in range(half)])
    now = tree[-1].copy()
    for source, target in arrows[-1]:
        now[target] += now[source]
        now[source] = np.nan
    tree.append(now)
draw("03_tree", step_panels("Tree reduce on eight devices", tree, arrows))
assert sorted(s for pairs in arrows for s, _ in pairs) == list(range(1, 8))

show(collectives.tree_reduce)
y = on_devices(collectives.tree_reduce, eight, axis="tp", root=0)(x8)
assert y[0] == tree[-1][0] == x8.sum() and not y[1:].any()

# %% [markdown]
# A **tree broadcast** is the tree reduce run backwards: from the root outwards.

# %%
holders = [(step, str(list(range(2**step)))) for step in range(4)]
table("Tree broadcast from device 0", ("after step", "held by"), holders)

# %% [markdown]
# **Recursive doubling:** the partner of device `i` at distance `d` is `i ^ d`: one bit flipped.

# %%
doubling, arrows = [start], []
for distance in (1, 2):
    arrows.append([(device, device ^ distance) for device in range(4)])
    theirs = [doubling[-1][device ^ distance] for device in range(4)]
    doubling.append(np.where(np.isnan(doubling[-1]), theirs, doubling[-1]))
draw("03_doubling", step_panels("Recursive doubling, four devices", doubling, arrows))

show(collectives.recursive_doubling_all_gather)
y = on_devices(collectives.recursive_doubling_all_gather, four, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(4, 4), doubling[-1])

# %% [markdown]
# **Hierarchical.** Fast links join the devices of a node (`inner`), and slow links join nodes
# (`outer`). Slow links should carry little. So an all-gather starts between nodes, while a device
# has only its own block. An all-reduce does a reduce-scatter inside the node, an all-reduce of the
# resulting chunks between nodes, and an all-gather inside the node.

# %%
grid = x8.reshape(2, 4)  # [node, device]
columns = [grid[:, device] for device in range(4)]  # between nodes
by_hand = np.stack(columns, axis=1).ravel()  # inside each node

show(collectives.hierarchical_all_gather)
y = on_devices(collectives.hierarchical_all_gather, nodes, **LEVELS)(x8)
np.testing.assert_array_equal(y.reshape(8, 8), [by_hand] * 8)

# %% [markdown]
# ## Measure
#
# The inspector reads the programs, and runs nothing. It counts the permutes, the wire bytes, and
# the bytes that a device returns.

# %%
shapes = jax.ShapeDtypeStruct((n * n, X_BYTES // 4 // n), np.float32)
rows = []
for name in RETURNED:
    root = {"root": 0} if name.startswith("tree") else {}
    program = on_devices(getattr(collectives, name), eight, axis="tp", **root)
    report = inspect(program, shapes)
    (sent,) = report.wire_bytes_by_axis().values()
    returned = report.memory.outputs_bytes
    rows.append((name, len(report.collectives), sent, returned))
table("Measured", ("algorithm", "permutes", "wire bytes", "returned"), rows)

# %% [markdown]
# ## Compare
#
# Bytes are as predicted, everywhere. Permutes are steps, with one exception: the two-way ring has
# as many permutes as the ring, but those of one direction do not wait for those of the other.

# %%
for name, permutes, sent, returned in rows:
    assert sent == predicted[name].wire_bytes and returned == RETURNED[name]
    at_once = 2 if name.startswith("two_way") else 1
    assert predicted[name].steps == np.ceil(permutes / at_once)

# %% [markdown]
# The hierarchical all-reduce, by axis: `device` is the fast one, `node` the slow one. A flat ring
# over all devices has no such axes: it passes through a node, leaves it by the node's last device,
# and returns to its first. What that one device sends between nodes is 7 times what a device of the
# hierarchy sends there. But of the hierarchy all four devices of a node send between nodes, each
# its own quarter. What leaves a node in all is `2 (n-1)/n x` round a flat ring and `x` in the
# hierarchy with two nodes: 1.75 times, not 7 times.

# %%
program = on_devices(collectives.hierarchical_all_reduce, nodes, **LEVELS)
by_axis = inspect(program, shapes).wire_bytes_by_axis()
inner, outer = cost.hierarchical_all_reduce(X_BYTES, n_inner=4, n_outer=2)
assert by_axis == {("device",): inner.wire_bytes, ("node",): outer.wire_bytes}
table("Hierarchical", ("over", "wire bytes"), [(*a, b) for a, b in by_axis.items()])
out_of_a_node = {"flat ring": flat_ring.wire_bytes, "hierarchy": 4 * outer.wire_bytes}
table("All that leaves a node", ("", "bytes"), [*out_of_a_node.items()])
assert flat_ring.wire_bytes == 7 * outer.wire_bytes
assert out_of_a_node["flat ring"] == 1.75 * out_of_a_node["hierarchy"]

# %% [markdown]
# ## On real hardware
#
# The simulated devices share the CPU's memory. Here steps and bytes are real, and time is not.
#
# - The model is a lower bound. *How to Scale Your Model* computes 1.04 ms for an all-gather of
#   `bf16[4096, 65536]` on 8 H100, as we do below, and quotes about 1.5 ms measured.
# - **Between nodes.** A node of 8 H100 has 8 network cards (NICs) of 400 Gb/s, which are 50 GB/s
#   each. A single ring leaves a node by one of them. So NCCL makes several rings that share the
#   bytes, and each leaves a node by another card: together 400 GB/s. Below are 8 such nodes.
# - One device of each node has one card for itself. A group of such devices, as data parallelism
#   has where tensor parallelism fills the nodes, sends at 50 GB/s; the 8 groups share the node.
# - Behind a switch any two devices are neighbours. On a TPU's torus only real neighbours are: rings
#   run both ways there, and a tree pays for every hop.
# - Libraries split messages into pieces, and send the next before the last has arrived. In pieces,
#   a tree (NCCL's double binary tree) has the bandwidth of a ring as well.
# - Switches that add (SHARP, NVLS) take part in the sum, and get below the bound above.

# %%
ideal = cost.ring_all_gather(2 * 4096 * 65536 / 8, 8)
assert round(1e3 * ideal.seconds(cost.Link(0, 450e9)), 2) == 1.04
everyone = Layout(dp=64)
links = {"inner_link": astuple(h100.inside), "outer_link": astuple(h100.between)}
reduce = "all_reduce", 1e9, everyone, "dp", h100
seconds = {
    "a single ring, by one card": cost.ring_all_reduce(1e9, 64).seconds(h100.between),
    "eight rings, by eight cards": network.flat_ring_seconds(*reduce),
    "hierarchy, one part after another": cost.hierarchical_all_reduce_seconds(
        1e9, inner=8, outer=8, **links
    ),
    "hierarchy, parts overlapping": network.collective_seconds(*reduce),
}
rows = [(name, round(1e3 * float(time), 1)) for name, time in seconds.items()]
table("All-reduce of 1 GB on 64 H100 in 8 nodes", ("algorithm", "ms"), rows)
assert [row[1] for row in rows] == [39.9, 5.2, 8.3, 4.5]

# %% [markdown]
# The formulas, with their sources, are in `jaxpar/cost/network.py`. With all cards in use a flat
# ring is not bad: out of each of 8 nodes it sends 9/8 of what the hierarchy sends, and a hierarchy
# that waits for each of its parts is slower than that. A hierarchy gains much where messages are
# small: it has 14 steps inside nodes and 14 between them, or 6 by a tree, in place of 126.

# %%
small = ["all_reduce", 1e6, *reduce[2:]]
rings, two_levels = network.flat_ring_seconds(*small), network.collective_seconds(*small)
print(f"1 MB: eight rings {1e6 * rings:.0f} us, hierarchy {1e6 * two_levels:.0f} us\n")
assert rings > 4 * two_levels

# %% [markdown]
# ## Exercises

# %%
exercises("03")

# %% [markdown]
# ## Sources
#
# Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
# MPICH*, sections 3 and 4 (model, rings, trees, doubling). Patarasuk and Yuan 2009, *Bandwidth
# optimal all-reduce algorithms for clusters of workstations*. Cho et al. 2019, *BlueConnect*
# (hierarchy). Austin et al. 2025, *How to Scale Your Model*, "Sharded Matrices" and "GPUs".
#
# | here | NCCL (`NCCL_ALGO`) | MPI | others |
# |---|---|---|---|
# | ring | Ring | ring | PyTorch, Horovod, DeepSpeed and Megatron call NCCL |
# | tree | Tree (all-reduce) | binomial tree | |
# | recursive doubling | PAT (a relative) | recursive doubling, Bruck | Gloo: halving-doubling |
# | hierarchical | NVLSTree, CollNet | HAN (Open MPI) | `HOROVOD_HIERARCHICAL_ALLREDUCE` |
#
# HSDP (PyTorch), hpZ (DeepSpeed) and `--num-distributed-optimizer-instances` (Megatron)
# shard parameters or optimizer state on two such levels.
