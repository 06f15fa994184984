# %% [markdown]
# # Lesson 02: collectives
#
# Devices that work on shards of one array must exchange numbers. They do so in a few fixed
# patterns, the *collectives*: operations in which all devices of a group take part. This lesson
# shows the arrays before and after each of them, says what it sends, and measures that. A *root* is
# the one device that sends or receives everything. A *chunk* is one of n equal parts of an array,
# for n devices.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec, varying_axes

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar import collectives
from jaxpar.cost import communication as cost
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect

# %% [markdown]
# ## The idea in one picture
#
# Four devices, and four numbers on each. After an *all-reduce* every device has the sums. A small
# letter (in the SVG file a colour, too) says which device a number comes from; a sum has none.

# %%
x = 10 * np.arange(1, 5)[:, None] + np.arange(4)  # [device, chunk]
sums = np.tile(x.sum(axis=0), (4, 1))
before, after = panel("before", x), panel("after", sums, [NOBODY] * 4)
draw("02_all_reduce", Panels("All-reduce: every device gets the sums", [before, after]))

# %% [markdown]
# ## All of them, before and after
#
# The loop over devices says what a collective leaves on device i, where x[j] is the input of device
# j. The library must agree with the loop. `on_devices` turns the function of one device into a
# program: the function gets a shard of x with one row, `x[0]`, and each y that it returns becomes
# one row, `y[None]`.


# %%
def on_devices(function, n, layout="n_tp"):
    """Runs `function` on n devices, one for each shard of dim 0."""
    mesh, per_device = make_mesh({"tp": n}), spec("n_tp")

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=spec(layout), out_specs=per_device)
    def program(x):  # x has size 1 in dim 0: one block for this device
        return jax.tree.map(lambda y: y[None], function(x[0]))

    return program


ROOT, n = 1, 4
LOOPS = {
    "broadcast": ("the root's x goes to all", lambda i: x[ROOT]),
    "scatter": ("chunk i of the root goes to device i", lambda i: x[ROOT][i]),
    "reduce": ("the sums go to the root", lambda i: (i == ROOT) * sum(x)),
    "gather": ("every x goes to the root", lambda i: (i == ROOT) * x),
    "all_reduce": ("the sums go to all", lambda i: sum(x)),
    "all_gather": ("every x goes to all", lambda i: x),
    "reduce_scatter": ("sum i goes to device i", lambda i: sum(x)[i]),
    "all_to_all": ("chunk j goes to device j", lambda i: x[:, i]),
    "permute": ("x goes to the next device, in a ring", lambda i: x[i - 1]),
}
WITH_ROOT = ("broadcast", "scatter", "reduce", "gather")
WITHOUT_ROOT = ("all_gather", "reduce_scatter", "all_to_all", "permute")
extra = {f: {"root": ROOT} for f in WITH_ROOT} | {"permute": {"shift": 1}}
per_shard, panels = {}, []
for name, (meaning, loop) in LOOPS.items():
    function, arguments = getattr(collectives, name), extra.get(name, {})
    per_shard[name] = partial(function, axis="tp", **arguments)
    held = np.asarray(on_devices(per_shard[name], n)(x))
    np.testing.assert_array_equal(held, np.stack([loop(i) for i in range(n)]))
    whose = np.where(held < 50, held // 10 - 1, NOBODY)  # a sum is nobody's
    panels.append(panel(f"after {name}: {meaning}", held, whose))
draw("02_root", Panels("With a root: device 1", [before, *panels[:4]]))
draw("02_no_root", Panels("Without a root", [before, *panels[5:]]))

# %% [markdown]
# A *reduction* combines numbers, here a pair from each device. There are seven, and the sum is one
# of them. A reduction with a *location* also says which device holds the smallest (or largest)
# number; if there are several, it is the first.

# %%
numbers = np.array([[6, 3], [5, 9], [7, 9], [6, 2]])
fold = {"sum": np.add, "prod": np.multiply, "min": np.fmin, "max": np.fmax}
fold |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
rows = []
for op, ufunc in fold.items():
    reduce = partial(collectives.all_reduce, axis="tp", op=op)
    result = on_devices(reduce, n)(numbers)[0]
    np.testing.assert_array_equal(result, ufunc.reduce(numbers))
    rows.append((op, result.tolist()))
reduce = partial(collectives.reduce_min_location, axis="tp")
value, holder = (y[0].tolist() for y in on_devices(reduce, n)(numbers))
assert holder == np.argmin(numbers, axis=0).tolist()
rows.append(("min and its location", f"{value} on devices {holder}"))
table(f"Reductions of {numbers.tolist()}", ("reduction", "result"), rows)

# %% [markdown]
# ## Predict
#
# Now n = 8. On each device x has 8 chunks of 32 numbers in float32: 1024 bytes. The size of the
# input of a collective on one device is its *operand bytes*. Three counts of what is sent, each
# with a word that it keeps in all lessons:
#
# - *Sent bytes*: what one device sends.
# - *Wire bytes*: what the busiest device sends or what it receives, whichever is more. Where all
#   devices send and receive equally much, as in the collectives below, these are the bytes that
#   each of them sends.
# - *Traffic*: what one device sends plus what it receives.
#
# In a reduce-scatter, a device keeps one of its chunks and sends seven, or partial
# sums in their place: (n-1)/n of x. In an all-gather it sends x to seven others: (n-1) x. An
# all-reduce can be built as a reduce-scatter of x, then an all-gather of chunks of x/n: together
# 2(n-1)/n of x. In every all-reduce some device sends that much, unless the network adds (lesson 03
# says why).
#
# **Your turn, before you read on:** how many bytes does a device send in each of these, and how
# many does the result take? A broadcast is here an all-reduce to which all devices except the root
# contribute zeros (`lax.pbroadcast` does not run on a CPU). A reduce is a reduce-scatter and an
# all-gather.

# %%
n, x_bytes = 8, 1024
plan = {kind: {kind: x_bytes} for kind in (*WITHOUT_ROOT, "all_reduce")}
plan["broadcast"] = {"all_reduce": x_bytes}
plan["reduce"] = {"reduce_scatter": x_bytes, "all_gather": x_bytes // n}
results = dict.fromkeys(plan, x_bytes)
results |= {"reduce_scatter": x_bytes // n, "all_gather": n * x_bytes}
predicted = []
for name, parts in plan.items():
    for kind, operand in parts.items():
        wire = cost.wire_bytes(kind, operand, n)
        predicted.append((name, kind, operand, wire, results[name]))
headers = ("function", "sends", "operand bytes", "wire bytes", "result bytes")
table("Predicted", headers, predicted)

# %% [markdown]
# ## Implement
#
# The loops above are the slow version. This is the library. Read the docstrings: *Math* defines the
# result, *Comm* says what is sent (x is the number of elements of x), and *Memory* is the size of
# the result. A `forward` line without `if` applies where the line before does not: for every `op`
# except sum, say. `axis` is None for one device. `split` makes n chunks of ceil(x/n) elements (x/n
# rounded up), `join` undoes it, and `check_chunks` raises an error unless dim 0 has size n. "Types
# that vary", below, explains `to=`.

# %%
show(*(getattr(collectives, name) for name in plan))

# %% [markdown]
# ## Measure
#
# The inspector reads the programs as they are compiled for 8 devices. Nothing is run.

# %%
shape = jax.ShapeDtypeStruct((n, n, 32), jnp.float32)  # [device, chunk, ...]
reports = {f: inspect(on_devices(per_shard[f], n), shape) for f in plan}

# %% [markdown]
# ## Compare
#
# The same table, measured. If a number differed, the lesson would stop.

# %%
measured = []
for name, report in reports.items():
    held = report.memory.outputs_bytes
    for c in report.collectives:
        measured.append((name, c.kind, c.operand_bytes, c.wire_bytes, held))
table("Measured", headers, measured)
assert measured == predicted
tree, ring = cost.tree_broadcast(x_bytes, n), cost.ring_all_reduce(x_bytes, n)
print(f"Broadcast by a tree: {tree.steps} steps, {tree.wire_bytes:,} bytes;")
print(f"by an all-reduce: {ring.steps} steps, {ring.wire_bytes:,} bytes.\n")

# %% [markdown]
# In a broadcast only the root has something to send: if devices pass x on along a line, each sends
# it once. And our reduce brings the sums to all devices, although only the root keeps them.
# Lesson 03 builds both as trees: fewer steps, but more wire bytes, those of the root.
#
# **The master as bottleneck.** Many people's first idea is a *master*: all devices send x to device
# 0, which adds them up and sends the sums back. Count its traffic. (`lax.axis_size("tp")` is n.)


# %%
def sum_at_master(x):
    total = x
    for j in range(1, lax.axis_size("tp")):
        total = total + lax.ppermute(x, "tp", [(j, 0)])  # zeros to others
    result = total
    for j in range(1, lax.axis_size("tp")):
        received = lax.ppermute(total, "tp", [(0, j)])
        result = jnp.where(lax.axis_index("tp") == j, received, result)
    return result


np.testing.assert_array_equal(on_devices(sum_at_master, 4)(x), sums)
rows, all_reduce = [], per_shard["all_reduce"]
for n in (2, 4, 8):
    shape = jax.ShapeDtypeStruct((n, 256), jnp.float32)  # 1024 bytes each
    messages = inspect(on_devices(sum_at_master, n), shape).collectives
    at_master = sum(one.wire_bytes for one in messages if 0 in one.pairs[0])
    (ring,) = inspect(on_devices(all_reduce, n), shape).collectives
    assert at_master == 2 * (n - 1) * x_bytes == n * ring.wire_bytes
    rows.append((n, at_master, 2 * ring.wire_bytes))
headers = ("devices", "of the master", "of each device of an all-reduce")
table("Traffic in bytes, to sum 1024 bytes", headers, rows)

# %% [markdown]
# The master's traffic grows with n, and all the others wait for it. In an all-reduce no device
# ever has a traffic of more than 4 times x, however many devices there are.

# %% [markdown]
# ## Types that vary, and gradients
#
# Inside `shard_map`, JAX knows for each array whether it may differ between the devices of an axis.
# If it may, its type is *varying* over the axis; if not, it is *invariant*. `lax.psum` makes an
# invariant array from a varying one. `lax.pcast(y, "tp", to="varying")` goes back: it changes the
# type and sends nothing. A result whose `out_specs` do not name the axis must be invariant.


# %%
def types(x):
    total = lax.psum(x, "tp")
    for y in (x, total, lax.pcast(total, "tp", to="varying")):
        print(f"varies over {set(varying_axes(y)) or 'nothing'}")
    return x


print("x, then psum(x), then pcast(psum(x)):")
mapped = partial(jax.shard_map, types, mesh=make_mesh("tp=4"))
try:
    mapped(in_specs=spec("n_tp"), out_specs=spec("n"))(x)
except ValueError as error:
    print(f"x cannot leave as invariant: {type(error).__name__}\n")

# %% [markdown]
# The backward pass of a collective is another collective. If forward copies a number to many
# devices, backward must sum their gradients, and the other way round. Megatron-LM calls `pcast` f
# and `psum` g: f sends nothing forward and an all-reduce backward; for g it is the reverse. Where a
# varying array meets an invariant one, JAX adds the `pcast`. `lax.pmax` has no derivative.


# %%
def kinds(forward, layout):
    """The collectives of the forward pass, and what the backward pass adds."""

    def both(x):
        y, pull_back = jax.vjp(forward, x)  # from a gradient of y to one of x
        return y, pull_back(y)

    found, shape = [], jax.ShapeDtypeStruct((8, 8, 4), jnp.float32)
    for f in (forward, both):
        report = inspect(on_devices(f, 8, layout), shape)
        found.append(" ".join(c.kind for c in report.collectives))
    there, total = found
    assert total.startswith(there)
    return there or "nothing", total.removeprefix(there).strip() or "nothing"


rows = [("pcast (f)", *kinds(lambda x: lax.pcast(x, "tp", to="varying"), "n"))]
rows += [("psum (g)", *kinds(lambda x: lax.psum(x, "tp"), "n_tp"))]
rows += [(name, *kinds(per_shard[name], "n_tp")) for name in WITHOUT_ROOT]
table("What is sent", ("function", "forward", "backward"), rows)

# %% [markdown]
# ## On real hardware
#
# - **Algorithms.** Wire bytes here are those of a ring. NCCL, which JAX uses on NVIDIA GPUs, has
#   rings, trees, and sums made inside the network switch; with the last, devices send less.
# - **Time** is bytes over bandwidth for large arrays only; for small ones it is the latency of each
#   step (lesson 03). A CPU shows neither. GPUs and TPUs also compute while they send.
# - **Order.** All devices must call the same collectives in the same order, or they wait forever.
# - **bfloat16.** The CPU sends it as float32. The inspector counts what you wrote, and notes it:

# %%
shape = jax.ShapeDtypeStruct((8, 4), jnp.bfloat16)
report = inspect(on_devices(per_shard["all_reduce"], 8), shape)
print(report.collectives[0].operand_bytes, "bytes in.", *report.notes, "\n")

# %% [markdown]
# ## Exercises

# %%
exercises("02")

# %% [markdown]
# ## Sources
#
# | JAX | torch.distributed | MPI |
# |---|---|---|
# | `lax.pbroadcast` | `broadcast` | `MPI_Bcast` |
# | - | `scatter`, `gather`, `reduce` | `MPI_Scatter`, `MPI_Gather`, `MPI_Reduce` |
# | `lax.all_gather` | `all_gather_into_tensor` | `MPI_Allgather` |
# | `lax.psum_scatter` | `reduce_scatter_tensor` | `MPI_Reduce_scatter_block` |
# | `lax.psum`, `pmin`, `pmax` | `all_reduce` | `MPI_Allreduce` |
# | `lax.all_to_all` | `all_to_all_single` | `MPI_Alltoall` |
# | `lax.ppermute` | `batch_isend_irecv` | `MPI_Sendrecv` |
#
# NCCL writes `ncclBroadcast`, `ncclAllReduce` and so on; `deepspeed.comm` has the names of
# torch.distributed. f and g: Megatron-LM, arXiv 1909.08053, section 3, in its code `copy_to_` and
# `reduce_from_tensor_model_parallel_region`. The bound on the all-reduce: Patarasuk and Yuan 2009.
# Wire bytes: NVIDIA/nccl-tests, doc/PERFORMANCE.md. The standard: MPI 4.1, chapter 6.
