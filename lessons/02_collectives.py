# %% [markdown]
# # Lesson 02: collectives
#
# Devices that work on parts of one array must exchange numbers. They do it in a few fixed patterns,
# the *collectives*: operations in which all devices of a group take part. This lesson shows each of
# them before and after, says what it sends, and measures that.
#
# A *root* is the one device that gives or gets everything. A *chunk* is one of n equal pieces of an
# array, where n is the number of devices in the group.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec, varying_axes

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar import collectives
from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import NOBODY, draw, panel
from jaxpar.inspector import inspect


def on_devices(function, n, layout="n_tp"):
    """Calls `function` on each of n devices; dim 0 of what goes in and comes out counts them."""

    def on_one_device(x):  # x has size 1 in dim 0: one block for this device
        return jax.tree.map(lambda y: y[None], function(x[0]))

    mesh, per_device = make_mesh({"tp": n}), spec("n_tp")
    mapped = jax.shard_map(on_one_device, mesh=mesh, in_specs=spec(layout), out_specs=per_device)
    return jax.jit(mapped)


# %% [markdown]
# ## The idea in one picture
#
# Four devices, and four numbers on each. After an *all-reduce* every device has the sums. A small
# letter (in the SVG file a colour, too) says which device a number comes from; a sum has none.


# %%
def whose(held):
    """The device that each number comes from; nobody's are sums, and the zeros of no root."""
    return np.where(held < 50, held // 10 - 1, NOBODY)


x = 10 * np.arange(1, 5)[:, None] + np.arange(4)  # [device, chunk]: chunk 2 of device 0 is 12
sums = np.asarray(on_devices(partial(collectives.all_reduce, axis="tp"), 4)(x))
before, after = panel("before", x), panel("after", sums, map(whose, sums))
draw("02_all_reduce", "All-reduce: every device gets the sums", before, after)

# %% [markdown]
# ## All of them, before and after
#
# The loop over devices says what a collective leaves on device i, where x[j] is what device j gives
# in. The library must agree with the loop.

# %%
ROOT, n = 1, 4
LOOPS = {
    "broadcast": ("the root's x goes to all", lambda i: x[ROOT]),
    "scatter": ("chunk i of the root's x goes to device i", lambda i: x[ROOT][i]),
    "reduce": ("the sums go to the root", lambda i: sum(x) if i == ROOT else 0 * x[i]),
    "gather": ("every x goes to the root", lambda i: np.stack(x) if i == ROOT else 0 * np.stack(x)),
    "all_reduce": ("the sums go to all", lambda i: sum(x)),
    "all_gather": ("every x goes to all", lambda i: np.stack(x)),
    "reduce_scatter": ("the sum of all chunks i goes to device i", lambda i: sum(x)[i]),
    "all_to_all": ("chunk j goes to device j", lambda i: np.stack([x[j][i] for j in range(n)])),
    "permute": ("every x goes to the next device, in a ring", lambda i: x[(i - 1) % n]),
}
WITH_ROOT = ("broadcast", "scatter", "reduce", "gather")
extra = {name: {"root": ROOT} for name in WITH_ROOT} | {"permute": {"shift": 1}}
per_shard = {
    name: partial(getattr(collectives, name), axis="tp", **extra.get(name, {})) for name in LOOPS
}
panels = {}
for name, (meaning, loop) in LOOPS.items():
    held = np.asarray(on_devices(per_shard[name], n)(x))
    np.testing.assert_array_equal(held, np.stack([loop(i) for i in range(n)]))
    panels[name] = panel(f"after {name}: {meaning}", held, map(whose, held))
del panels["all_reduce"]  # above
draw("02_root", "With a root: device 1", before, *(panels.pop(name) for name in WITH_ROOT))
draw("02_no_root", "Without a root", before, *panels.values())

# %% [markdown]
# A *reduction* combines numbers. A sum is one of seven. The *locations* say besides which device
# holds the largest or smallest number; of several that hold it, the one with the lowest index.

# %%
numbers = np.array([[6, 3], [5, 9], [7, 9], [6, 2]])
fold = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
fold |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
rows = []
for op, ufunc in fold.items():
    result = on_devices(partial(collectives.all_reduce, axis="tp", op=op), n)(numbers)[0]
    np.testing.assert_array_equal(result, ufunc.reduce(numbers))
    rows.append((op, result.tolist()))
for name, best in (("min", np.argmin), ("max", np.argmax)):
    function = partial(getattr(collectives, f"reduce_{name}_location"), axis="tp")
    value, holder = (part[0].tolist() for part in on_devices(function, n)(numbers))
    assert holder == best(numbers, axis=0).tolist()
    rows.append((f"{name} and its location", f"{value} on devices {holder}"))
table(f"Reductions of {numbers.tolist()}, a pair for each device", ("reduction", "result"), rows)

# %% [markdown]
# ## Predict
#
# Now n = 8 devices. x is float32 and has 8 chunks of 32 numbers on each device: 1024 bytes. What
# goes into a collective on one device are its *operand bytes*. What this device then sends are its
# *wire bytes*. They differ. In a reduce-scatter, a device keeps one chunk of its own and sends
# seven, or sums in their place: (n-1)/n of x. In an all-gather it sends x to seven others: (n-1) x.
# An all-reduce can be built as a reduce-scatter of x, then an all-gather of chunks of x/n. That is
# (n-1)/n and again (n-1)/n: 2(n-1)/n of x. No algorithm sends less, if devices only send and add.
#
# **Your turn, before you read on:** how many bytes does a device send in each of these? JAX has no
# broadcast and no reduce. The library makes a broadcast from an all-reduce in which all but the
# root give zeros, and a reduce from a reduce-scatter and an all-gather.

# %%
n, x_bytes = 8, 1024
PLAN = {
    "permute": (("permute", x_bytes),),
    "all_to_all": (("all_to_all", x_bytes),),
    "reduce_scatter": (("reduce_scatter", x_bytes),),
    "all_gather": (("all_gather", x_bytes),),
    "all_reduce": (("all_reduce", x_bytes),),
    "broadcast": (("all_reduce", x_bytes),),
    "reduce": (("reduce_scatter", x_bytes), ("all_gather", x_bytes / n)),
}
predicted = {
    name: [(kind, operand, wire_bytes(kind, operand, n)) for kind, operand in parts]
    for name, parts in PLAN.items()
}
rows = [(name, *part) for name, parts in predicted.items() for part in parts]
table("Predicted", ("function", "sends", "operand bytes", "wire bytes"), rows)
assert wire_bytes("all_reduce", x_bytes, n) == sum(wire for *_, wire in predicted["reduce"])

# %% [markdown]
# ## Implement
#
# The loops above are the slow version. This is the library. Read the docstrings: *Math* says what
# comes out, *Comm* what is sent (x is the number of elements of x), *Memory* what the result takes.

# %%
show(*(getattr(collectives, name) for name in PLAN))

# %% [markdown]
# ## Measure
#
# The inspector reads the compiled programs. Nothing is run.

# %%
shape = jax.ShapeDtypeStruct((n, n, 32), jnp.float32)  # [device, chunk, ...]: no numbers needed
reports = {name: inspect(on_devices(per_shard[name], n), shape) for name in PLAN}
measured = {
    name: [(one.kind, one.operand_bytes, one.wire_bytes) for one in report.collectives]
    for name, report in reports.items()
}

# %% [markdown]
# ## Compare

# %%
rows = [
    (
        name,
        " + ".join(kind for kind, *_ in parts),
        *(sum(part[2] for part in both[name]) for both in (predicted, measured)),
    )
    for name, parts in measured.items()
]
table("Wire bytes on one device", ("function", "sends", "predicted", "measured"), rows)
assert measured == predicted

# %% [markdown]
# Two differences to what is possible. A broadcast could send about half as much: nobody but the
# root has anything to add. And a reduce leaves the sums on all devices before all but the root
# drop them: one program runs on all devices, so in JAX they all take part. Lesson 03 builds both
# from permutes.
#
# **The master as bottleneck.** The first idea of many is a *master*: all devices send x to device
# 0, which adds, and sends the sums back. Count the bytes that pass through device 0.


# %%
def sum_at_master(x):
    total = x
    for j in range(1, lax.axis_size("tp")):
        total = total + lax.ppermute(x, "tp", [(j, 0)])  # everyone else receives zeros
    result = total
    for j in range(1, lax.axis_size("tp")):
        received = lax.ppermute(total, "tp", [(0, j)])
        result = jnp.where(lax.axis_index("tp") == j, received, result)
    return result


np.testing.assert_array_equal(on_devices(sum_at_master, 4)(x), sums)
rows = []
for n in (2, 4, 8):
    shape = jax.ShapeDtypeStruct((n, 256), jnp.float32)  # 1024 bytes on each device
    messages = inspect(on_devices(sum_at_master, n), shape).collectives
    through_master = sum(one.wire_bytes for one in messages if 0 in one.pairs[0])
    (ring,) = inspect(on_devices(per_shard["all_reduce"], n), shape).collectives
    assert through_master == 2 * (n - 1) * x_bytes and ring.wire_bytes == 2 * (n - 1) / n * x_bytes
    rows.append((n, through_master, 2 * ring.wire_bytes))
headers = ("devices", "through the master", "through each device of an all-reduce")
table("Bytes sent and received, to sum 1024 bytes", headers, rows)

# %% [markdown]
# The master's bytes grow with n, and all the others wait for it. In an all-reduce no device ever
# passes more than 4 times x, sent and received, however many devices there are.
#
# ## Types that vary, and gradients
#
# Inside `shard_map`, JAX knows of each array whether it may differ between the devices of an axis.
# If so, its type is *varying* over the axis, otherwise *invariant*. `psum` makes an invariant array
# from a varying one. `lax.pcast(y, "tp", to="varying")` does the opposite: it changes the type and
# sends nothing. A result that leaves through `out_specs` without the axis must be invariant.


# %%
def types(x):
    total = lax.psum(x, "tp")
    for what, y in {
        "x": x,
        "psum(x)": total,
        "pcast": lax.pcast(total, "tp", to="varying"),
    }.items():
        print(f"{what:8} varies over {set(varying_axes(y)) or 'nothing'}")
    return x


mesh = make_mesh("tp=4")
try:
    jax.shard_map(types, mesh=mesh, in_specs=spec("n_tp"), out_specs=spec("n"))(x)
except ValueError as error:
    print(f"returning x as if it were equal everywhere: {type(error).__name__}\n")
    assert "possibly varying over {tp}" in str(error)

# %% [markdown]
# The backward pass of a collective is another collective. If forward copies a number to many
# devices, backward must sum their gradients, and the other way round. Megatron-LM calls `pcast` f
# and `psum` g: f sends nothing forward and an all-reduce backward, g the reverse.


# %%
def kinds(function, layout):
    """The collectives of the forward pass, and those that the backward pass adds."""

    def both(x):
        y, pull_back = jax.vjp(function, x)
        return y, pull_back(y)

    shape = jax.ShapeDtypeStruct((8 if layout == "n_tp" else 1, 8, 4), jnp.float32)
    one_way, both_ways = (
        [one.kind for one in inspect(on_devices(f, 8, layout), shape).collectives]
        for f in (function, both)
    )
    assert both_ways[: len(one_way)] == one_way
    return one_way, both_ways[len(one_way) :]


rows = [("pcast (f)", *kinds(lambda x: lax.pcast(x, "tp", to="varying"), "n"))]
rows += [("psum (g)", *kinds(lambda x: lax.psum(x, "tp"), "n_tp"))]
for name in ("all_gather", "reduce_scatter", "all_to_all", "permute"):
    rows.append((name, *kinds(per_shard[name], "n_tp")))
rows = [(name, *(" ".join(kinds) or "nothing" for kinds in both)) for name, *both in rows]
table("What is sent", ("function", "forward", "backward"), rows)
