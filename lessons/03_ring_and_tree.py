# %% [markdown]
# # 03. Rings and trees
#
# Lesson 02 used each collective as one word: all-gather, all-reduce. A machine has only links
# between devices, and each device sends and receives messages on its links. An **algorithm** says
# which device sends what to which other device, step after step. This lesson shows five: the
# ring, the two-way ring, the tree, recursive doubling, and the hierarchy. They give the same
# result. They differ in the number of steps and in the bytes that each device sends.
#
# Why care, when a library picks one for you? You want to know what the machine can do at best.
# And ring attention, pipelines and overlapped matrix products are rings that you write yourself.
#
# `x` is the array that one device holds, `n` the number of devices.

# %%
from functools import partial

import jax
import numpy as np

from jaxpar import collectives
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)
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
# A **ring**: each device sends to the next one only, and the last sends to the first. In an
# all-gather every device starts with its own block and wants all of them. In each step it passes
# on the block that it received in the step before. Here are four devices. The loop moves the
# blocks one device at a time, in numpy, so that nothing is hidden.

# %%
from jaxpar.course.pictures import NOBODY, draw, panel


def ring_by_hand(x):
    """What the devices hold, [device, block], at the start and after each step."""
    devices = len(x)
    held = np.full((devices, devices), np.nan)  # nan: not here yet
    travels = list(x)  # what each device sends next
    for device in range(devices):
        held[device, device] = x[device]
    moments = [held.copy()]
    for step in range(1, devices):
        travels = [travels[device - 1] for device in range(devices)]  # from the one before
        for device in range(devices):
            held[device, (device - step) % devices] = travels[device]
        moments.append(held.copy())
    return moments


def blocks(moments, titles, arrows):
    """A panel for each moment; a block keeps the colour of the device it comes from."""
    for held, title, pairs in zip(moments, titles, arrows, strict=True):
        here = ~np.isnan(held)
        values = np.where(here, held.astype(object), ".")
        owners = np.where(here, np.arange(held.shape[1]), NOBODY)
        names = [str(device) for device in range(len(held))]
        yield panel(title, values, owners, names=names, arrows=pairs)


to_next = [(0, 1), (1, 2), (2, 3), (3, 0)]
moments = ring_by_hand(np.array([10.0, 20, 30, 40]))
titles = ["at the start", "after step 1", "after step 2", "after step 3: done"]
draw("03_ring", "Ring all-gather", *blocks(moments, titles, [to_next] * 3 + [[]]))

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. There are `n = 8` devices, and each holds `x` of 4096 bytes.
#
# 1. How many steps does the ring all-gather take, and how many bytes does each device send?
# 2. In a **tree** the number of devices that hold the root's array doubles in each step.
#    How many steps until all have it?
# 3. An all-reduce could be an all-gather followed by a local sum. What does it send then, and
#    how much less could it be?
#
# To compare algorithms we need a price. In the **latency-bandwidth model** a message of `s` bytes
# takes `latency + s / bandwidth`. **Latency** is the time that even an empty message takes.
# **Bandwidth** is bytes per second. An algorithm takes the sum over the messages that wait for
# one another: `steps * latency + bytes in a row / bandwidth`. Arithmetic is free in this model.
#
# `jaxpar/cost/communication.py` has the formulas. The link below has the bandwidth of NVLink
# between H100 GPUs in one direction. Its latency is assumed: a round number of the right size.

# %%
from jaxpar.cost import communication as cost

ALGORITHMS = (
    "ring_all_gather",
    "two_way_ring_all_gather",
    "recursive_doubling_all_gather",
    "ring_reduce_scatter",
    "tree_broadcast",
    "tree_reduce",
    "ring_all_reduce",
    "recursive_doubling_all_reduce",
)
X_BYTES = 4096
fast = cost.Link(latency_seconds=2e-6, bytes_per_second=450e9)


def predict(name, x_bytes=X_BYTES, devices=n):
    return getattr(cost, name)(x_bytes, devices)


print(f"predicted for {n} devices, x = {X_BYTES} bytes\n")
print(f"{'algorithm':32}{'steps':>6}{'bytes sent':>12}{'in a row':>10}{'microseconds':>14}")
for name in ALGORITHMS:
    c = predict(name)
    seconds = c.seconds(fast)
    print(f"{name:32}{c.steps:6}{c.wire_bytes:12}{c.serial_bytes:10}{1e6 * seconds:14.2f}")

assert predict("ring_all_gather").steps == n - 1
assert predict("tree_broadcast").steps == np.log2(n)
assert predict("ring_all_gather").wire_bytes == 4 * predict("ring_all_reduce").wire_bytes

# %% [markdown]
# Question 3: the all-gather sends `(n-1) x` and a ring all-reduce `2 (n-1)/n x`: four times less
# here, and `n/2` times less in general. Can any algorithm send less than that? No, and the
# argument is short. Follow one element of `x` through an all-reduce.
#
# - A message brings together at most two partial sums. To make one sum out of `n` numbers that
#   lie on `n` devices takes at least `n-1` messages with that element.
# - Then one device knows the sum. Each of the other `n-1` must still receive it: `n-1` messages.
#
# So every element travels at least `2 (n-1)` times. Shared equally by `n` devices, each sends at
# least `2 (n-1)/n x`, which is what the ring sends. It is **bandwidth-optimal**. Half of the
# argument alone gives `(n-1)/n x` for a reduce-scatter. And an all-gather must bring `n-1` blocks
# to each device.
#
# But the ring takes `2 (n-1)` steps. **Recursive doubling** takes `log2 n`: in step `k` a device
# swaps all it has with the partner `2**k` places away. As an all-reduce it sends all of `x` each
# time. For a small `x` steps count, for a large `x` bytes count. In between lies the size where
# both take the same time, the **crossover**. It grows with the latency times the bandwidth.

# %%
doubling, ring = cost.recursive_doubling_all_reduce, cost.ring_all_reduce
print("all-reduce: below this size recursive doubling is faster, above it the ring\n")
for devices in (8, 64, 1024):
    size = cost.crossover_bytes(doubling, ring, devices, fast)
    times = [f(size, devices).seconds(fast) for f in (doubling, ring)]
    assert np.isclose(*times)
    small, large = ([f(k * size, devices).seconds(fast) for f in (doubling, ring)] for k in (0.1, 10))
    assert small[0] < small[1] and large[0] > large[1]
    print(f"{devices:6} devices: {size / 1e6:7.1f} MB, {1e3 * times[0]:6.2f} ms")

# %% [markdown]
# ## Implement
#
# **Ring all-gather.** The loop over devices is gone: every device runs the same lines, and
# `lax.ppermute` moves one block from each device to the next. Device `i` receives the blocks in
# the order `i-1, i-2, ...`; the last line brings them into device order.

# %%
show(collectives.ring_all_gather)

x = np.arange(10.0, 90, 10)  # one number for each device
y = on_devices(collectives.ring_all_gather, line, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(n, n), ring_by_hand(x)[-1])

# %% [markdown]
# A **two-way ring** sends blocks both ways at once, on links that carry both directions at the
# same time. Every block then travels half way round. As many bytes, half the steps.
#
# A **ring reduce-scatter** is the same ring with sums in it: a partial sum travels, and each
# device adds its own part. JAX can show you that the two belong together. The derivative of
# sending is sending back, so the gradient of the ring all-gather is a ring reduce-scatter that
# runs the other way round. Each device hands in `n` blocks, and gets the sum of the blocks that
# are its own.

# %%
def backward(x, dy):
    """The gradient with respect to x of the sum of dy * ring_all_gather(x)."""
    gather = partial(collectives.ring_all_gather, axis="tp")
    return jax.vjp(gather, x)[1](dy)[0]


parts = spec("b_tp")
gradient = jax.jit(jax.shard_map(backward, mesh=line, in_specs=(parts, parts), out_specs=parts))
dy = np.random.default_rng(0).normal(size=(n * n, 1)).astype(np.float32)
dx = gradient(np.float32(x), dy)
np.testing.assert_allclose(dx, dy.reshape(n, n).sum(axis=0), rtol=1e-5)

# %% [markdown]
# **Tree reduce.** In each step the upper half of the devices that still take part sends its sums
# to the lower half. The picture shows how many of the eight numbers each sum covers.

# %%
def tree_by_hand(x):
    """The sums that the devices hold at the start and after each step, and who sends to whom."""
    sums, half = list(x), len(x)  # the root is device 0
    moments, arrows = [list(sums)], []
    while half > 1:
        half //= 2
        arrows.append([(device + half, device) for device in range(half)])
        for source, target in arrows[-1]:
            sums[target] += sums[source]
        moments.append(list(sums))
    return moments, [*arrows, []]


moments, arrows = tree_by_hand(np.ones(n, int))
titles = ["at the start", "after step 1", "after step 2", "after step 3: the root has all"]
names = [str(device) for device in range(n)]
rounds = zip(titles, moments, arrows, strict=True)
panels = [panel(t, [[s] for s in m], names=names, arrows=a) for t, m, a in rounds]
draw("03_tree", "Tree reduce", *panels)

# %%
show(collectives.tree_reduce)

y = on_devices(collectives.tree_reduce, line, axis="tp", root=0)(x)
assert y[0] == tree_by_hand(x)[0][-1][0] == x.sum() and not y[1:].any()

# %% [markdown]
# A **tree broadcast** is the same tree from the root to the leaves.
#
# **Recursive doubling.** Partners are `1` apart, then `2`, then `4`. The partner of device `i` at
# distance `d` is `i ^ d`: the number with one bit flipped. After `k` steps a device has the
# blocks of the `2**k` devices that share its upper bits.

# %%
def doubling_by_hand(x):
    """What the devices hold, [device, block], at the start and after each step."""
    held = np.where(np.eye(len(x), dtype=bool), x, np.nan)
    moments, distance = [held], 1
    while distance < len(x):
        theirs = [held[device ^ distance] for device in range(len(x))]
        held = np.where(np.isnan(held), theirs, held)
        moments.append(held)
        distance *= 2
    return moments


pairs = [[(i, i ^ d) for i in range(n)] for d in (1, 2, 4)]
titles = ["at the start", "after step 1", "after step 2", "after step 3: done"]
draw("03_doubling", "Recursive doubling", *blocks(doubling_by_hand(x), titles, [*pairs, []]))

# %%
show(collectives.recursive_doubling_all_gather)

y = on_devices(collectives.recursive_doubling_all_gather, line, axis="tp")(x)
np.testing.assert_array_equal(y.reshape(n, n), doubling_by_hand(x)[-1])

# %% [markdown]
# As an all-reduce, partners swap their sums and add. That is one of the exercises.
#
# **Hierarchical.** Devices inside a node share fast links, nodes are joined by slow ones. So the
# slow links should carry as little as possible. For an all-gather: first between nodes, while a
# device has only its own block; then inside the node.
