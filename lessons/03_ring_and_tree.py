# %% [markdown]
# # Lesson 03: rings and trees
#
# In lesson 02 a collective was one operation. But a machine has only links, which carry messages
# from one device to another. An *algorithm* says which device sends what to which other, step after
# step. All algorithms of a collective have the same result, but one may take ten times as long as
# another.
#
# This lesson has five: the ring, the two-way ring, the tree, recursive doubling, and the hierarchy.
# For an all-reduce, a library such as NCCL picks one for you. But ring attention (lesson 14) and
# pipelines (lesson 15) are made of the same steps, and there you write them yourself. Below, `n` is
# the number of devices, and `x` is the array that one device holds.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from dataclasses import replace
from functools import partial

import jax
import numpy as np
from jax import lax

from jaxpar import collectives
from jaxpar.cost import communication as cost
from jaxpar.cost import network
from jaxpar.cost.hardware import find_cluster
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.steps import StepPicture
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.schedules import overlap
from jaxpar.stepper import whose_parts

n = 8
four, eight = make_mesh("tp=4"), make_mesh("tp=8")
nodes = make_mesh("node=2,device=4")  # two machines of four devices each

# %% [markdown]
# ## The idea in one picture
#
# In a *ring*, each device sends to the next one only, and the last sends to the first. In an
# all-gather each device starts with its own block, and wants the blocks of all. So in each step it
# passes on the block that it received in the step before.
#
# The picture shows the library's `ring_all_gather` at work. Each step is one collective, here a
# permute over the axis `tp`, and `0>1` is a message from device 0 to device 1. A letter is the
# block of one device: `a` is that of device 0.


# %% tags=["fold"]
def step_picture(title, function, mesh, shape=(), **arguments):
    """The steps of `function`, which each device of `mesh` calls on an array of this shape."""
    given = jax.ShapeDtypeStruct(shape, np.float32)
    steps = whose_parts(partial(function, **arguments), [given], mesh.shape)
    return StepPicture(title, steps, mesh.shape)


ring = step_picture("Ring all-gather on four devices", collectives.ring_all_gather, four, axis="tp")
draw("03_ring", ring)

# %% [markdown]
# Follow the block `a` as it goes from device 0 to 1, 2 and 3. In each step every link carries a
# block.
#
# ## Predict
#
# In the *latency-bandwidth model*, a message of `s` bytes takes `latency + s / bandwidth` seconds.
# *Latency* is the time of an empty message, and *bandwidth* is the number of bytes per second. If a
# message can start only when another has arrived, their times add up. Messages on different links,
# or in the two directions of one link, travel at the same time. Arithmetic is free.
#
# This lesson has two kinds of links. NVLink joins the H100 GPUs of a node: 450 GB/s in one
# direction, and 1.9 us of latency. A network card (InfiniBand) joins a GPU to those of other nodes:
# 50 GB/s and 4 us. (`jaxpar/cost/hardware.toml` has the sources.)
#
# In the third question, one device has `x`, and a device can send to one other device in each step.
# The ring of the fourth question goes through all 64 GPUs. Of its 64 links, 8 are network cards:
# the slowest links, which set its bandwidth.

# %%
sent = ask("Bytes that each of 8 devices sends in a ring all-gather of 4096 bytes from each")
least = ask("Bytes that each of 8 devices must at least send in an all-reduce of 4096 bytes")
steps = ask("Fewest steps after which all of 8 devices have x", "count")
slow = ask("Time of an all-reduce of 1 GB on 64 H100 in 8 nodes, round one ring", "seconds")

# %% [markdown]
# ## Implement
#
# ### Ring
#
# `lax.ppermute` takes pairs (from, to), and moves a block from one device to the other for each.
# Here is the first step by hand, on four devices with one number each.


# %%
def on_devices(function, mesh, **arguments):
    """Makes the program in which each device calls `function` on its rows of the arguments."""
    rows = spec("b_" + "_".join(mesh.axis_names))
    on_each = jax.shard_map(mesh=mesh, in_specs=rows, out_specs=rows)
    return jax.jit(on_each(partial(function, **arguments)))


def first_step(x):
    return lax.ppermute(x, "tp", [(0, 1), (1, 2), (2, 3), (3, 0)])


x = np.array([10, 20, 30, 40], np.float32)  # device 0 has 10, device 1 has 20, ...
print(on_devices(first_step, four)(x))

# %% [markdown]
# In each turn of the library's loop, every device sends the last of its `blocks`, and appends the
# one that it receives. So device `i` gets the block of `i-1`, then that of `i-2`, and so on. The
# last line puts them into the order of devices.

# %%
show(collectives.ring_all_gather)
y = on_devices(collectives.ring_all_gather, four, axis="tp")(x)  # [4, 1] on each device
np.testing.assert_array_equal(y.reshape(4, 4), [x] * 4)

# %% [markdown]
# ### Ring with sums
#
# In a *ring reduce-scatter*, partial sums travel, and each device that a sum passes adds its own
# chunk. After n-1 steps the sum is complete, and stays where it is. You will write it.
#
# JAX can derive it from the ring all-gather. The backward pass of sending a block is sending a
# gradient back, and a block that was copied to many devices gets the sum of their gradients. So the
# backward pass of a ring all-gather *is* a ring reduce-scatter, in the other direction. Here `dy`
# has a gradient for each of 4 blocks on each of 4 devices.


# %%
gather = partial(collectives.ring_all_gather, axis="tp")


def backward(dy):
    """The backward pass of `gather`, which needs no forward pass, since `gather` is linear."""
    (dx,) = jax.linear_transpose(gather, dy[0])(dy)  # dy[0] has the shape of x
    return dx


dy = np.arange(16, dtype=np.float32).reshape(16, 1)  # [4, 1] on each device
dx = on_devices(backward, four)(dy)  # [1] on each device
np.testing.assert_array_equal(dx, dy.reshape(4, 4).sum(axis=0))

# %% tags=["fold"]
draw("03_sums", step_picture("Backward pass of a ring all-gather", backward, four, (4,)))

# %% [markdown]
# In the picture, `cd` without a blank is the sum of a number of device 2 and one of device 3.
# Follow the sum that ends on device 0. It starts as `d` on device 3, leaves device 2 as `cd` and
# device 1 as `bcd`, and device 0 adds its own number. All four are gradients of block 0.
#
# A *ring all-reduce* is a reduce-scatter, after which each device has the sum of one chunk, and
# then an all-gather of these chunks.
#
# ### Two-way ring
#
# A link carries both directions at once, but a ring uses only one. A *two-way ring* sends each
# block both ways, half the way round in each. It sends as many bytes as a ring, in about half the
# steps and time.
#
# ### Tree
#
# A ring takes many steps, which is slow if messages are small. In a *tree reduce* the upper half of
# the devices that still take part sends its sums to the lower half, and is done. At the end the
# *root*, here device 0, has the total.

# %% tags=["fold"]
tree = step_picture(
    "Tree reduce on eight devices", collectives.tree_reduce, eight, axis="tp", root=0
)
draw("03_tree", tree)
senders = [source for frame in tree.steps.frames for source, _ in frame.pairs]
assert sorted(senders) == [*range(1, 8)]

# %% [markdown]
# A full stop is a zero: that is what `lax.ppermute` gives to a device that is sent nothing. So all
# devices run the same addition, which changes nothing where no message arrives.
#
# In the library's function, `p` is the distance of a device from the root. `half` begins as the
# first power of two that is not below `n`, here 8, and is 4, 2 and 1 in the steps. The last line
# clears the sums that are left on the other devices.

# %%
show(collectives.tree_reduce)
x8 = np.arange(1, 9, dtype=np.float32)  # device 0 has 1, device 1 has 2, ...
y = on_devices(collectives.tree_reduce, eight, axis="tp", root=0)(x8)
assert y[0] == x8.sum() and not y[1:].any()

# %% [markdown]
# A *tree broadcast* is the same tree backwards, from the root outwards. Each device that has the
# root's `x` sends it on to one that has not. A reduce and a broadcast in a row are an all-reduce.
#
# ### Recursive doubling
#
# In a tree most devices wait. *Recursive doubling* keeps all of them busy: in each step two
# partners exchange everything that they have, at distance 1, then 2, then 4. What a device holds
# doubles each time, so `log2 n` steps are enough. The partner of device `i` at distance `d` is
# `i ^ d`, which is `i` with one bit flipped.

# %% tags=["fold"]
doubling = step_picture(
    "Recursive doubling on four devices",
    collectives.recursive_doubling_all_gather,
    four,
    axis="tp",
)
draw("03_doubling", doubling)

# %% [markdown]
# In the library's function, `i & distance` is the bit that differs between the partners. Where it
# is 0, the partner has the higher number, and its blocks come after the device's own.

# %%
show(collectives.recursive_doubling_all_gather)
y = on_devices(collectives.recursive_doubling_all_gather, four, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(4, 4), [x] * 4)

# %% [markdown]
# In an all-reduce by recursive doubling, partners exchange all of `x` and add.
#
# ### Hierarchy
#
# Fast links join the devices of a node (the axis `inner`). Slow links join nodes (`outer`), and
# should carry little. So a *hierarchical* all-gather begins between nodes, while each device has
# only its own block to send, and goes on inside them.

# %%
show(collectives.hierarchical_all_gather)
levels = {"inner": "device", "outer": "node"}
y = on_devices(collectives.hierarchical_all_gather, nodes, **levels)(x8)
np.testing.assert_array_equal(y.reshape(8, 8), [x8] * 8)

# %% tags=["fold"]
hierarchy = step_picture(
    "Hierarchical all-gather on two nodes", collectives.hierarchical_all_gather, nodes, **levels
)
draw("03_hierarchy", hierarchy)

# %% [markdown]
# Device `1,0` is device 0 of node 1. In step 1 it and device `0,0` exchange blocks, so both have
# `a` and `e`. In step 2 each device gathers the pairs of its node. With `axis=1` each pair becomes
# a column of the result, whose rows are then in the order of devices.
#
# An all-reduce begins inside: a reduce-scatter in each node, after which each of its 4 devices has
# 1/4 of the node's sum. Then an all-reduce adds these quarters between nodes, and an all-gather in
# each node joins them.
#
# ## Measure
#
# ### Steps and bytes
#
# The inspector reads the program of each algorithm, and runs nothing. Each of 8 devices gives 4096
# bytes. We count permutes, wire bytes (lesson 02), and the bytes of the result on each device.
# Beside them are the steps that the formulas of `jaxpar/cost/communication.py` predict.

# %%
X_BYTES = 4096
NAMES = ("ring_all_gather", "two_way_ring_all_gather", "recursive_doubling_all_gather")
NAMES += ("ring_reduce_scatter", "ring_all_reduce", "recursive_doubling_all_reduce")
NAMES += ("tree_reduce", "tree_broadcast")
block = jax.ShapeDtypeStruct((n * n, X_BYTES // 4 // n), np.float32)  # [n, ...] on each device
predicted, reports = {}, {}
for name in NAMES:
    root = {"root": 0} if name.startswith("tree") else {}
    program = on_devices(getattr(collectives, name), eight, axis="tp", **root)
    reports[name] = inspect(program, block)
    predicted[name] = getattr(cost, name)(X_BYTES, n)

# %% tags=["fold"]
rows = []
for name, report in reports.items():
    (wire,) = report.wire_bytes_by_axis().values()
    counted = len(report.collectives), wire, report.memory.outputs_bytes
    rows.append((name, predicted[name].steps, *counted))
headers = ("algorithm", "predicted steps", "permutes", "wire bytes", "result")
table(f"Measured on {n} devices, {X_BYTES:,} bytes on each", headers, rows)

# %% [markdown]
# Permutes are steps, with one exception: in the two-way ring, those of one direction do not wait
# for those of the other. The wire bytes of a tree reduce are what the root receives, `x` in each
# step; every other device sends `x` once.
#
# ### Few steps, or few bytes
#
# Which all-reduce is best? A ring sends few bytes in many steps. A tree and recursive doubling have
# few steps, but send all of `x` in each. So it depends on the size of `x`, and on `n`. The picture
# shows the times for 64 KiB, a small `x`, as if NVLink joined all devices.

# %%
h100 = find_cluster("h100")  # the figures of a cluster of H100
nvlink = h100.inside  # the links inside a node; h100.between are those between nodes
ALL_REDUCES = {
    "ring": cost.ring_all_reduce,
    "tree": cost.tree_all_reduce,
    "recursive doubling": cost.recursive_doubling_all_reduce,
}
counts = (2, 4, 8, 16, 32, 64)
times = {
    name: [1e6 * price(2**16, count).seconds(nvlink) for count in counts]
    for name, price in ALL_REDUCES.items()
}

# %% tags=["fold"]
draw("03_small", Curves("An all-reduce of 64 KiB", "devices", "microseconds", counts, times))
rows = []
for count in (8, 64, 1024):
    crossover = partial(cost.crossover_bytes, n=count, link=nvlink)
    few_steps = (ALL_REDUCES["tree"], ALL_REDUCES["recursive doubling"])
    sizes = [crossover(few, cost.ring_all_reduce) / 1e6 for few in few_steps]
    rows.append((count, *(round(size, 1) for size in sizes)))
headers = ("devices", "tree, MB", "recursive doubling, MB")
table("Faster than a ring up to this size of x", headers, rows)
assert [round(time[-1]) for time in times.values()] == [240, 25, 12]

# %% [markdown]
# The time of the ring grows with `n`, that of the others with its logarithm: on 64 devices they
# take 240, 25 and 12 us. The table has the *crossover*, the size at which an algorithm takes as
# long as the ring. Above it, the ring wins.
#
# ### What leaves a node
#
# We compare the hierarchy, on 2 nodes of 4 devices, with a *flat ring*, which knows no nodes: it
# passes through the devices of a node, leaves it from the last one, and comes back to the first.

# %%
program = on_devices(collectives.hierarchical_all_reduce, nodes, **levels)
by_axis = inspect(program, block).wire_bytes_by_axis()
flat_ring = predicted["ring_all_reduce"].wire_bytes
leaving = [
    ("flat ring", 1, flat_ring, flat_ring),
    ("hierarchy", 4, by_axis[("node",)], 4 * by_axis[("node",)]),
]

# %% tags=["fold"]
headers = ("", "devices that send", "each sends", "the node sends")
table("Bytes to the other node, all-reduce of 4,096 bytes", headers, leaving)
inner, outer = cost.hierarchical_all_reduce(X_BYTES, n_inner=4, n_outer=2)
assert by_axis == {("device",): inner.wire_bytes, ("node",): outer.wire_bytes}
assert leaving[0][2] == 7 * leaving[1][2] and leaving[0][3] == 1.75 * leaving[1][3]

# %% [markdown]
# The *busiest device* of the flat ring sends 7 times what a device of the hierarchy sends to the
# other node, because it does alone what the hierarchy divides among 4 devices. But the *node* sends
# only 1.75 times as much. So if the node has one network card, the flat ring takes 1.75 times as
# long there. It takes 7 times as long if each device has a card, and the ring uses only one of
# them.
#
# ## Compare

# %%
wire = {name: report.wire_bytes_by_axis()[("tp",)] for name, report in reports.items()}
sent.compare(wire["ring_all_gather"], {"7 steps of one block": 7 * X_BYTES})
halves = {"reduce-scatter": 7 * X_BYTES / n, "all-gather of the sums": 7 * X_BYTES / n}
least.compare(wire["ring_all_reduce"], halves)
steps.compare(len(reports["tree_broadcast"].collectives))
one_card = replace(h100, between=cost.Link(4e-6, 50e9 / 8))  # which a node's 8 devices share
one_ring = network.flat_ring_seconds("all_reduce", 1e9, Layout(dp=64), "dp", one_card)
parts = {
    "bytes / bandwidth": cost.ring_all_reduce(1e9, 64).wire_bytes / 50e9,
    "latency of 112 steps inside nodes": 112 * 1.9e-6,
    "latency of 14 steps between nodes": 14 * 4e-6,
}
slow.compare(float(one_ring), parts)

# %% [markdown]
# An all-gather, and a sum on each device, would send `(n-1) x`. The ring all-reduce sends
# `2 (n-1)/n x`, which is `n/2` times less. No algorithm sends less, if only devices can add. Follow
# one element of `x`:
#
# - A message joins at most two partial sums. Before one device knows the sum of all `n` numbers,
#   at least `n-1` messages have carried this element.
# - After that, each of the other `n-1` devices must still receive it: `n-1` messages more.
#
# So each element is sent at least `2 (n-1)` times. Divided among `n` devices, that is
# `2 (n-1)/n x` for each. A ring reaches it, so it is *bandwidth-optimal*.
#
# In a tree broadcast 2 devices have the root's `x` after one step, then 4, then 8. With 1,024
# devices it takes 10 steps.

# %% tags=["fold"]
for name, report in reports.items():
    at_once = 2 if name.startswith("two_way") else 1
    assert predicted[name].steps == np.ceil(len(report.collectives) / at_once)
    assert wire[name] == predicted[name].wire_bytes
    times_x = {"gather": n, "scatter": 1 / n}.get(name.rpartition("_")[2], 1)
    assert report.memory.outputs_bytes == times_x * X_BYTES
assert wire["ring_all_gather"] == n / 2 * wire["ring_all_reduce"]
assert wire["ring_all_reduce"] == 2 * (n - 1) / n * X_BYTES
assert 2 ** predicted["tree_broadcast"].steps == n and cost.tree_broadcast(1, 1024).steps == 10
assert round(1e3 * float(one_ring), 1) == 39.6

# %% [markdown]
# ## On real hardware
#
# ### Eight cards
#
# 40 ms is slow for 1 GB. A node of 8 H100 has 8 network cards, so 400 GB/s can leave it (NVIDIA,
# DGX BasePOD: 8 ports of 400 Gb/s). A single ring leaves the node by one of them, and the other 7
# are idle. So NCCL makes several rings that share the bytes, and each leaves the node from another
# device, by another card. In the hierarchy all cards are busy anyway, since each device sends its
# own 1/8 of the array to the other nodes.
#
# Here are four ways to all-reduce on 64 H100. `jaxpar/cost/network.py` has the formulas of all
# but the third; its `Layout(dp=64)` means an axis dp of 64 devices. Between nodes, a hierarchy
# takes a ring or a tree, whichever is faster.

# %%
everyone = Layout(dp=64)


def four_ways(num_bytes):
    """The seconds of an all-reduce on 8 nodes of 8 H100."""
    inside, ring = cost.hierarchical_all_reduce(num_bytes, 8, 8)
    tree = cost.tree_all_reduce(num_bytes / 8, 8)
    between = min(ring.seconds(h100.between), tree.seconds(h100.between))
    reduce = "all_reduce", num_bytes, everyone, "dp"
    return {
        "one ring, one card of each node": network.flat_ring_seconds(*reduce, one_card),
        "eight rings, eight cards": network.flat_ring_seconds(*reduce, h100),
        "hierarchy, one part after another": inside.seconds(h100.inside) + between,
        "hierarchy, parts overlapping": network.collective_seconds(*reduce, h100),
    }


# %% tags=["fold"]
large, small = four_ways(1e9), four_ways(1e6)
rows = [(k, round(1e3 * float(large[k]), 1), round(1e6 * float(small[k]))) for k in large]
headers = ("algorithm", "1 GB, milliseconds", "1 MB, microseconds")
table("All-reduce on 64 H100 in 8 nodes", headers, rows)
assert [row[1] for row in rows] == [39.6, 5.2, 8.3, 4.5]
assert [row[2] for row in rows] == [308, 274, 69, 66]

# %% [markdown]
# For 1 GB, eight rings take 5.2 ms. They send 9/8 of what the hierarchy sends out of each node. But
# a hierarchy whose parts wait for one another takes 8.3 ms, because either the network or NVLink is
# always idle. So the array is cut into pieces, and one piece is reduced inside the nodes while
# another is between them. With many pieces only the slower part counts: 4.5 ms.
#
# The timeline below has a row for each kind of link; time goes to the right, and latency is left
# out. A `Task` has a kind, a label, the link that it occupies, its seconds, and the tasks for which
# it waits.

# %%
inside, between = cost.hierarchical_all_reduce(1e9, 8, 8)
half = inside.wire_bytes / 2 / 450e9  # reduce-scatter, or all-gather
middle = between.wire_bytes / 50e9


def in_pieces(count):
    scatters, reduces, gathers = [], [], []
    for piece in range(1, count + 1):
        label = str(piece)
        scatter = overlap.Task("reduce-scatter", label, "NVLink", half / count)
        reduce = overlap.Task("all-reduce", label, "network", middle / count, (scatter,))
        gather = overlap.Task("all-gather", label, "NVLink", half / count, (reduce,))
        scatters.append(scatter)
        reduces.append(reduce)
        gathers.append(gather)
    return overlap.run(scatters + reduces + gathers)  # on each link, in this order


# %% tags=["fold"]
ways = {"in one piece": in_pieces(1), "in 4 pieces": in_pieces(4)}
draw("03_pieces", Lanes("A hierarchical all-reduce of 1 GB on 64 H100", "ms", ways))
assert [round(1e3 * overlap.step_seconds(spans), 1) for spans in ways.values()] == [8.3, 5.3]
assert cost.ring_all_reduce(1, 64).wire_bytes / cost.ring_all_reduce(1, 8).wire_bytes == 9 / 8
in_steps = network.collective_seconds("all_reduce", 0, everyone, "dp", h100)
assert np.isclose(in_steps, 14 * 1.9e-6 + 6 * 4e-6)

# %% [markdown]
# For 1 MB the hierarchy is 4 times as fast as the eight rings, because it has fewer steps: 14
# inside nodes and 6 between them (by a tree), in place of 126.
#
# ### What the model leaves out
#
# - **These are lower bounds.** For an all-gather of `bf16[4096, 65536]` on 8 H100, *How to Scale
#   Your Model* ("GPUs") computes 1.04 ms, and says that it takes about 1.5 ms.
# - **One card each.** If tensor parallelism fills the nodes, gradients are reduced by groups with
#   one device of each node, so each group has one card. The 8 groups of a node send at once.
# - **Neighbours.** Behind a switch, any two devices can exchange messages directly. TPUs form a
#   *torus*, a grid whose ends are joined, and have links to their neighbours in it only. So rings
#   run both ways there, and a message to a distant device takes several hops.
# - **Trees in pieces.** NCCL sends pieces along two trees at once; a device that passes pieces on
#   in one tree is a leaf of the other. These *double binary trees* have the bandwidth of a ring
#   (Sanders et al. 2009).
# - **Switches that add** (NVIDIA's SHARP) take part in the sum, so devices send less than the bound
#   above: in theory half. About 30% more bandwidth was measured ("GPUs", as above).
# - **On a CPU** steps and bytes are real, but time is not: simulated devices share its memory.

# %% tags=["fold"]
ideal = cost.ring_all_gather(2 * 4096 * 65536 / 8, 8)
assert round(1e3 * ideal.seconds(cost.Link(0, 450e9)), 2) == 1.04

# %% [markdown]
# ## Exercises
#
# `jaxpar step ring_reduce_scatter` draws what *your* function sends, as the pictures above do.

# %%
exercises("03")

# %% [markdown]
# ## On paper
#
# 1. In inference, tensor parallelism over 8 H100 does two all-reduces in each of the 80 layers of
#    Llama 3 70B, for one token of 8192 numbers of 16 bits. How long do these take for a token, by a
#    ring and by recursive doubling?
#
# <details><summary>Answer</summary>
#
# x has 16,384 bytes. A ring takes 14 steps of 1.9 us, and `2 * 7/8 * 16384 / 450e9` s = 0.06 us for
# its bytes. Recursive doubling takes 3 steps, and 3 times x in 0.11 us. 160 of them take 4.3 ms or
# 0.93 ms. The bytes hardly count; the steps must be few.
#
# </details>
#
# 2. The gradients of Llama 3 70B are 141 GB: 2 bytes for each of 70.6 billion parameters. How long
#    does their all-reduce take on 8 nodes of 8 H100, by one ring, by eight rings, and by a
#    hierarchy whose parts overlap? Leave latency out.
#
# <details><summary>Answer</summary>
#
# One ring: `2 * 63/64 * 141 / 50` = 5.6 s. Eight rings: as many bytes by 400 GB/s, 0.69 s. In the
# hierarchy each card sends `2 * 7/8 * 141/8` = 30.8 GB: 0.62 s. That is longer than the part inside
# the nodes, `2 * 7/8 * 141 / 450` = 0.55 s.
#
# </details>
#
# 3. Llama 3 405B was trained on 16,384 H100, in 2,048 nodes. How long do the steps of an all-reduce
#    over all of them take, with an empty array, by flat rings and by a hierarchy with a tree
#    between nodes?
#
# <details><summary>Answer</summary>
#
# A ring has 32,766 steps: 4,094 between nodes, of 4 us, and 28,672 inside, of 1.9 us. That is
# 70.9 ms. The hierarchy has 14 steps inside nodes and 22 between them: 0.11 ms. So one ring over
# all devices of a large run is out of the question.
#
# </details>
#
# ## Sources
#
# Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
# MPICH*, sections 3 and 4. Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for
# clusters of workstations*. Sanders, Speck and Traff 2009, *Two-tree algorithms for full bandwidth
# broadcast, reduction and scan*. Cho et al. 2019, *BlueConnect* (hierarchy). Austin et al. 2025,
# *How to Scale Your Model*, "Sharded Matrices" and "GPUs". NVIDIA/nccl, `src/graph/tuning.cc`
# (rings, latencies). Grattafiori et al. 2024, *The Llama 3 Herd of Models*, section 3.3.
#
# | here | NCCL (`NCCL_ALGO`) | MPI | others |
# |---|---|---|---|
# | ring | Ring | ring | PyTorch, Horovod, DeepSpeed and Megatron call NCCL |
# | tree | Tree (all-reduce) | binomial tree | |
# | recursive doubling | PAT (a relative) | recursive doubling, Bruck | Gloo: halving-doubling |
# | hierarchical | NVLSTree, CollNet | HAN (Open MPI) | `HOROVOD_HIERARCHICAL_ALLREDUCE` |
#
# HSDP (PyTorch), hpZ (DeepSpeed) and `--num-distributed-optimizer-instances` (Megatron) split
# parameters or optimizer state over two such levels.
