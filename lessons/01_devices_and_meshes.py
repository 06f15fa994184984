# %% [markdown]
# # Lesson 01: devices and meshes
#
# A large model does not fit on one device. So its arrays are split into shards, and each device
# holds one shard. This lesson shows how JAX names the devices, splits the arrays, and runs one
# program on all devices. At the end you can say, before you run a program, what each device holds
# and sends. You need Python and numpy, but no JAX: it is explained below. The first code cell makes
# the CPU look like 8 devices; what it imports is explained later.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, reshard

from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, show_report, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.layout import array_panels
from jaxpar.inspector import inspect

print(f"{jax.device_count()} devices: {jax.devices()[0].platform}\n")

# %% [markdown]
# ## The idea in one picture
#
# A *device* is a chip with its own memory: a GPU, a TPU, or here a part of the CPU that plays one.
# A *mesh* gives every device a place in a grid. The directions of the grid are the *axes* of the
# mesh, and they have names. Here axis `dp` has size 2 and axis `tp` has size 4.
#
# An array has *dims* (dimensions). A *layout* says which axis of the mesh splits which dim. It has
# one word for each dim: `"b_dp d_tp"` names the dims b and d, splits b over axis `dp`, and splits d
# over axis `tp`. A dim without an axis is not split. The part of an array that a device holds is a
# *shard*. Two axes may split one dim: on a mesh of dp=2, tp=3, `"b_dp_tp d"` splits b into 2 * 3 =
# 6 parts. `spec` turns a layout into a `PartitionSpec` of JAX: for each dim, the axes that split
# it, or None. A `NamedSharding` is a mesh and a `PartitionSpec`: its `shard_shape` is the shape of
# a shard, and `jax.device_put` sends each device its shard. In the picture, the small letter (in
# the SVG file also a colour) says which device holds a number.

# %%
mesh = make_mesh("dp=2,tp=4")
x = np.arange(4 * 8, dtype="float32").reshape(4, 8)
x_sharded = jax.device_put(x, NamedSharding(mesh, spec("b_dp d_tp")))
draw("01_layout", array_panels("x with layout b_dp d_tp on dp=2, tp=4", x_sharded))
by_both = NamedSharding(make_mesh("dp=2,tp=3"), spec("b_dp_tp d"))
print(f"b_dp_tp d on dp=2, tp=3: {by_both.shard_shape((12, 3))} of (12, 3)\n")

# %% [markdown]
# All devices run the same program, each on its own shards. This is *SPMD*: single program, multiple
# data. Words that you will meet:
#
# - *world size*: how many devices there are, `jax.device_count()`. *Rank*: the number of one of
#   them, from 0. In a mesh the last axis counts fastest.
# - *node*: one machine with several devices. *Local rank*: the number of a device in its node.
# - *process group*: devices that exchange data with one another. In JAX you name an axis of the
#   mesh instead: a group is the devices that differ only along that axis.
#
# Axes are named after kinds of parallelism. The devices along an axis have:
#
# - `dp`, data parallel: other examples, the same parameters.
# - `fsdp`, fully sharded data parallel: other examples, and other parts of the parameters.
# - `tp`, tensor parallel: other parts of each matrix product.
# - `pp`, pipeline parallel: other layers.
# - `cp`, context parallel: other positions of each sequence.
# - `ep`, expert parallel: other experts, networks of which each token goes through a few.

# %%
rank = np.arange(8).reshape(2, 4)  # of the device at (dp, tp)
rows = [("tp", rank.tolist()), ("dp", rank.T.tolist()), ("all", [[*range(8)]])]
table("World size 8: dp=2, tp=4", ("axis", "process groups, by rank"), rows)

# %% [markdown]
# If you know PyTorch, this is what its words become:
#
# | torch.distributed | JAX |
# |---|---|
# | `torchrun`: one process for each GPU | a process drives one device or several; see below |
# | `init_process_group` | `jax.distributed.initialize` (not needed for one process) |
# | `get_world_size`, `get_rank` | in `shard_map`: `lax.axis_size(axis)`, `lax.axis_index(axis)` |
# | `new_group(ranks)`, `init_device_mesh` | name an axis of the mesh, `jax.make_mesh` |
# | DTensor: `Shard(0)`, `Replicate()` | `PartitionSpec("dp")`, `PartitionSpec()` |
# | `distribute_tensor`, `redistribute` | `jax.device_put`, `jax.sharding.reshard` |
# | `all_reduce`, `all_gather` and the others | `lax.psum`, `lax.all_gather`: lesson 02 |

# %% [markdown]
# ## The JAX that you need
#
# **Arrays never change.** `x[0] = 9` is an error; `x.at[0].set(9)` returns a new array.
#
# **`jax.jit` traces, then compiles.** It calls your function once with *tracers*: stand-ins that
# have a shape and a dtype but no values. JAX records the operations and compiles them. A later
# call with the same shapes runs the compiled program, and not your Python. So shapes are *static*:
# another shape is another program. And Python's `if` cannot look at a value, because there is none
# yet. Use `jnp.where` (both sides are computed, one is chosen) or `lax.cond`.

# %%
old = jnp.arange(4.0)
print(f"set returns {old.at[0].set(9.0)}; the old array is still {old}")
traced = []
absolute = jax.jit(lambda x: traced.append(x.shape) or jnp.where(x < 0, -x, x))
results = [absolute(jnp.ones(size)) for size in (3, 3, 3, 5)]
print(f"{len(results)} calls, {len(traced)} traces, with shapes {traced}")
assert traced == [(3,), (5,)]
try:
    jax.jit(lambda x: -x if x < 0 else x)(1.0)
except jax.errors.TracerBoolConversionError as error:
    print(f"`if` on a traced value raises {type(error).__name__}\n")

# %% [markdown]
# **Pytrees.** Dictionaries, lists and tuples of arrays, in any nesting, are *pytrees*. JAX takes
# them wherever it takes an array. `jax.tree.map` calls a function on each array in them.
# **`jax.grad`** makes, from a function that returns one number, the function that returns its
# gradient with respect to the first argument: a pytree of the same form.
#
# **`lax.scan`** is a loop inside the program. A Python loop is unrolled when it is traced: 100
# steps, 100 operations or more (`jax.make_jaxpr` lists them). `lax.scan(step, carry, xs)` keeps
# one copy. `step(carry, x)` returns the next carry and an output. The carry keeps shape and dtype.
#
# **Random numbers come from keys.** The same key gives the same numbers, on every device and at
# every call. `jax.random.split` makes new keys from one.

# %%
params = {"w": jnp.array([1.0, 2.0]), "bias": jnp.array(0.5)}
loss_gradient = jax.grad(lambda p, x: jnp.sum((p["w"] * x + p["bias"]) ** 2))
gradient = loss_gradient(params, jnp.array([3.0, 4.0]))
print(f"gradient: w {gradient['w']}, bias {gradient['bias']}")
stepped = jax.tree.map(lambda p, g: p - g / 4, params, gradient)
print(f"one step downhill: w {stepped['w']}, bias {stepped['bias']}")
xs = jnp.ones(100)
loop = jax.make_jaxpr(lambda a: sum(x for x in a))(xs)
scan = jax.make_jaxpr(lambda a: lax.scan(lambda c, x: (c + x, c), 0.0, a))(xs)
print(f"operations: Python loop {len(loop.eqns)}, scan {len(scan.eqns)}")
assert len(loop.eqns) >= 100 and len(scan.eqns) == 1
keys = jax.random.split(jax.random.key(0))
print("two keys:", *(jax.random.normal(key, 3) for key in keys), "\n")

# %% [markdown]
# ## Predict
#
# One matrix product, y = x @ w. The dim d, over which the product sums, is split over `tp`: x [4,
# 8] has layout `"b_dp d_tp"` as in the picture, w [8, 12] has `"d_tp f"`, and y must come out as
# `"b_dp f"`. All numbers are float32, 4 bytes each.
#
# A device has a quarter of d, so it computes a quarter of each sum: a *partial sum*. The 4 devices
# of a tp group must add their partial sums, and each of them needs the result. This is an
# *all-reduce*. Lesson 02 says why an all-reduce over n devices sends 2(n-1)/n times its array.
#
# **Your turn, for one device, before you read on:** which shapes have its shards of x, w and y? How
# many bytes do they hold? Which array goes into the all-reduce, and how many bytes are then sent?

# %%
shapes = {"x": (4, 8), "w": (8, 12), "y": (4, 12)}
layouts = {"x": "b_dp d_tp", "w": "d_tp f", "y": "b_dp f"}
shardings = {name: NamedSharding(mesh, spec(layouts[name])) for name in layouts}
parts = {name: shardings[name].shard_shape(shapes[name]) for name in shapes}
held = {name: 4 * rows * columns for name, (rows, columns) in parts.items()}
rows = [(a, shapes[a], layouts[a], parts[a], held[a]) for a in shapes]
headers = ("array", "shape", "layout", "shard", "bytes")
table("Predicted, for one device", headers, rows)
wire = wire_bytes("all_reduce", held["y"], mesh.shape["tp"])
predicted = ("all_reduce", "tp", held["y"], wire, held["x"] + held["w"])
print(f"All-reduce of y over tp: {held['y']} bytes in, {wire} bytes sent.\n")

# %% [markdown]
# ## Implement
#
# First, two functions of the library that this lesson has used so far.

# %%
show(make_mesh, spec)

# %% [markdown]
# A mesh is an array of devices with a name for each dim. `jax.P` is short for `PartitionSpec`. Our
# `make_mesh` makes axes of type `Auto`, `jax.make_mesh` of type `Explicit`. Both come up below.
#
# **The explicit version** of the product is a loop over devices. Each iteration does the work of
# one device. At the `+=`, the devices must communicate.

# %%
assert spec("b_dp t f_tp") == jax.P("dp", None, "tp")
w = np.random.default_rng(0).normal(size=(8, 12)).astype("float32")
y = np.zeros((4, 12), "float32")
for i, j in np.ndindex(2, 4):
    b, d = slice(2 * i, 2 * i + 2), slice(2 * j, 2 * j + 2)
    y[b] += x[b, d] @ w[d]
np.testing.assert_allclose(y, x @ w, rtol=1e-5)

# %% [markdown]
# **`jax.shard_map`: you write what one device does.** The function sees shards, not full arrays.
# `in_specs` say how the arguments are split, and `out_specs` how the results are assembled. All
# communication is a call that you can see: `lax.psum(y, "tp")` sums y over the devices of axis
# `tp`. `lax.axis_index("tp")` is the place of this device on that axis, `lax.axis_size("tp")` the
# number of devices on it. Most of this course is written with `shard_map`.

# %%
in_specs, out_specs = (shardings["x"].spec, shardings["w"].spec), shardings["y"].spec


@jax.shard_map(mesh=mesh, in_specs=in_specs, out_specs=out_specs)
def mapped(x_shard, w_shard):
    y_partial = x_shard @ w_shard  # [b/dp, d/tp] @ [d/tp, f]: a quarter of d
    return lax.psum(y_partial, "tp")


w_sharded = jax.device_put(w, shardings["w"])
np.testing.assert_allclose(mapped(x_sharded, w_sharded), y, rtol=1e-5)

# %% [markdown]
# **`jax.jit` with shardings: the compiler decides.** You write the program for full arrays, and say
# how arguments and results are sharded. XLA, the compiler under JAX, splits the work and adds the
# communication; axes of type `Auto` allow this. It is short, but what it sends is not in your code:
# you must look at what was compiled.

# %%
automatic = jax.jit(lambda x, w: x @ w, out_shardings=shardings["y"])
np.testing.assert_allclose(automatic(x_sharded, w_sharded), y, rtol=1e-5)
reports = {"jit": inspect(automatic, x_sharded, w_sharded)}

# %% [markdown]
# **Explicit mode: layouts are part of the type.** With axes of type `Explicit`, the type of each
# array says how it is sharded. `jax.set_mesh` sets the mesh for the lines under it, and `reshard`
# changes the sharding of an array. If several results are possible, you must choose.

# %%
with jax.set_mesh(jax.make_mesh((2, 4), ("dp", "tp"))):
    x_typed, w_typed = reshard((x, w), in_specs)
    print(f"the types are {jax.typeof(x_typed)} and {jax.typeof(w_typed)}")
    try:
        x_typed @ w_typed
    except Exception as error:
        print(f"x @ w raises {type(error).__name__}: how is y sharded?\n")
    explicit = jax.jit(lambda x, w: jnp.matmul(x, w, out_sharding=out_specs))
    np.testing.assert_allclose(explicit(x_typed, w_typed), y, rtol=1e-5)
    reports["Explicit"] = inspect(explicit, x_typed, w_typed)

# %% [markdown]
# **`jax.pmap`: the way before `shard_map`.** You will meet it in old code. It has one axis only
# (here it splits d), and dim 0 of every array counts the local devices, those of its own process.
# With several processes each of them calls it, and its collectives go over the devices of all. Do
# not write it any more.

# %%
mapped_before = jax.pmap(lambda x, w: lax.psum(x @ w, "all"), axis_name="all")
y_by_device = mapped_before(x.T.reshape(8, 4, 1), w.reshape(8, 1, 12))
np.testing.assert_allclose(y_by_device[0], y, rtol=1e-5)

# %% [markdown]
# ## Measure
#
# The *inspector* compiles a program, reads what the compiler was given and what it made, and lists
# what one device sends and holds. Here it reads the `shard_map` program.

# %%
reports["shard_map"] = inspect(mapped, x_sharded, w_sharded)
show_report(reports["shard_map"])

# %% [markdown]
# ## Compare
#
# Three ways to write it, one prediction. If a row differed, the lesson would stop.

# %%
rows = [("predicted", *predicted)]
for way, report in reports.items():
    (sent,) = report.collectives
    measured = (sent.kind, *sent.axes, sent.operand_bytes, sent.wire_bytes)
    rows.append((way, *measured, report.memory.arguments_bytes))
headers = ("way", "sends", "over", "operand bytes", "wire bytes", "arguments")
table("The same product, for one device", headers, rows)
assert all(row[1:] == predicted for row in rows)

# %% [markdown]
# ## On real hardware
#
# - **Time.** Simulated devices share one CPU and one memory. Sending costs next to nothing, so on
#   the CPU this course counts bytes, and never seconds.
# - **Links.** Links inside a node are fast, links between nodes are slow. The order of axes in this
#   course, `pp, dp, fsdp, ep, cp, tp`, puts last the axis that sends most: its groups are
#   neighbours in rank, which mostly share a node. `jax.make_mesh` orders TPUs by their links.
# - **Processes.** Several processes run the same program, and each first calls
#   `jax.distributed.initialize()`. How many there are on a node is a choice: one that drives all
#   its devices, as on hosts of TPUs, or one for each GPU, which is what JAX expects under Slurm.
#   `jax.devices()` are then all devices, `jax.local_devices()` those of this process, which can
#   only read the shards on its own devices.
# - **The compiler** differs between platforms. Ask for y as `"b_dp f_tp"`: a GPU or TPU can sum and
#   split in one step (a *reduce-scatter*), which sends half as much. The CPU makes an all-reduce,
#   and slices its result.

# %% [markdown]
# ## Exercises

# %%
exercises("01")

# %% [markdown]
# ## Sources
#
# Megatron-LM keeps its groups in `parallel_state.py`, DeepSpeed in `utils/groups.py`; MPI and NCCL
# say communicator. To read: docs.jax.dev, "Distributed arrays and automatic parallelization" and
# "Manual parallelism with shard_map"; Darema and others 1988 (SPMD); arXiv 2105.04663 (GSPMD).
