# %% [markdown]
# # Lesson 01: devices and meshes
#
# The parameters of Llama 3 70B take 141 GB in 16 bits, and an H100 has a memory of 80 GB. So the
# arrays of the model must be split over several devices, and these must exchange numbers. This
# lesson shows how JAX names devices, splits arrays, and runs one program on all devices, and how to
# say in advance what each device holds and sends.
#
# You need Python and numpy, but no JAX. The first cell makes the CPU look like 8 devices; what it
# imports is explained where it is used.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, reshard

from jaxpar.course.lesson import exercises, show, show_report, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.layout import array_panels
from jaxpar.inspector import inspect

print(f"{jax.device_count()} devices: {jax.devices()[0].platform}\n")

# %% [markdown]
# ## The idea in one picture
#
# ### A mesh and a layout
#
# A *device* is a chip with its own memory: a GPU, a TPU, or here a part of the CPU that plays one.
# A *mesh* arranges devices in a grid. Its directions are its *axes*, and have names. In our mesh,
# axis `dp` has size 2 and axis `tp` has size 4.
#
# An array has *dims* (dimensions). Our x has the shape [4, 8]: dim b of size 4, and dim d of size
# 8. A *layout* has one word for each dim, and says which axis of the mesh splits it: `"b_dp d_tp"`
# splits dim b over axis `dp`, and dim d over axis `tp`. The part of an array that a device holds is
# a *shard*.

# %%
mesh = make_mesh("dp=2,tp=4")
x = np.arange(4 * 8, dtype="float32").reshape(4, 8)
x_sharded = jax.device_put(x, NamedSharding(mesh, spec("b_dp d_tp")))

# %% tags=["fold"]
draw("01_layout", array_panels("x with layout b_dp d_tp on dp=2, tp=4", x_sharded))

# %% [markdown]
# The small letter says which device holds a number, and so does the colour where there is one. Dim
# b is split into 2 parts and dim d into 4, so each of the 8 devices holds one of 8 blocks.
#
# ### From a layout to JAX
#
# Layouts are strings of this course. `spec` turns one into a `PartitionSpec` of JAX: for each dim,
# the axes that split it, or None. A `NamedSharding` is a mesh and a `PartitionSpec`, and knows the
# shape of a shard. `jax.device_put`, called above, sends each device its shard.
#
# Over an axis that its layout does not name, an array is *replicated*: all devices along that axis
# hold the same shard. With `"b d"`, each device holds the whole array. Two axes may split one dim:
# with `"b d_dp_tp"`, d is split into 8 parts.

# %%
for layout in ("b_dp d_tp", "b_dp d", "b d", "b d_dp_tp"):
    sharding = NamedSharding(mesh, spec(layout))
    print(f"{layout:10} {sharding.spec!s:36} shards of shape {sharding.shard_shape((4, 8))}")
print()

# %% [markdown]
# ### One program, and the words for its devices
#
# All devices run the same program, each on its own shards. This is *SPMD*: single program, multiple
# data. The words of the field:
#
# - *World size*: how many devices there are, `jax.device_count()`. *Rank*: the number of one of
#   them, from 0. In a mesh, the last axis counts fastest (on TPUs `jax.make_mesh` may choose
#   another order, to suit the links).
# - *Node*: one machine with several devices. *Local rank*: the number of a device in its node.
# - *Process group*: devices that exchange numbers with one another. In JAX you name an axis of the
#   mesh instead. Devices that differ only in their place on this axis are a group.

# %% tags=["fold"]
rank = np.arange(8).reshape(2, 4)  # of the device at (dp, tp)
rows = [("tp", rank.tolist()), ("dp", rank.T.tolist()), ("both", [[*range(8)]])]
table("World size 8: dp=2, tp=4", ("axis", "process groups, by rank"), rows)

# %% [markdown]
# Axes are named after kinds of parallelism. The devices along an axis have:
#
# - `dp`, data parallel: different examples, and the same parameters.
# - `fsdp`, fully sharded data parallel: different examples, and different parts of the parameters.
# - `tp`, tensor parallel: different parts of each matrix product.
# - `pp`, pipeline parallel: different layers.
# - `cp`, context parallel: different positions of each sequence.
# - `ep`, expert parallel: different *experts*, which are networks that only some tokens go through.

# %% [markdown]
# ## The JAX that you need
#
# ### Arrays never change
#
# `jax.numpy`, for short `jnp`, has the functions of numpy. But an array of JAX never changes:
# `x[0] = 9` is an error. `x.at[0].set(9)` returns a new array.

# %%
old = jnp.arange(4.0)
new = old.at[0].set(9.0)
print(f"set returns {new}; the old array is still {old}\n")

# %% [markdown]
# ### `jax.jit` traces, then compiles
#
# `jax.jit` makes a compiled program of a function. At the first call it *traces* the function: it
# runs the Python code once with *tracers*, which stand in for the arguments and have a shape and a
# dtype, but no values. JAX records the operations, and compiles them. A later call with the same
# shapes and dtypes runs the compiled program, and no Python. So the list `traced` below shows how
# often JAX has traced the function.

# %%
traced = []


@jax.jit
def absolute(x):
    traced.append(x.shape)
    return jnp.where(x < 0, -x, x)


for size in (3, 3, 3, 5):
    absolute(jnp.ones(size))
print(f"4 calls, {len(traced)} traces, with shapes {traced}\n")

# %% [markdown]
# Shapes are *static*: another shape is another program. And Python's `if` cannot look at the value
# of an argument, because a tracer has none. Use `jnp.where`, which computes both sides and chooses,
# or `lax.cond`.


# %%
@jax.jit
def with_if(x):
    return -x if x < 0 else x


try:
    with_if(1.0)
except jax.errors.TracerBoolConversionError as error:
    print(f"`if` on a tracer raises {type(error).__name__}\n")

# %% [markdown]
# ### Pytrees and gradients
#
# Dictionaries, lists and tuples of arrays, in any nesting, are *pytrees*. `jax.jit`, `jax.grad`,
# `lax.scan` and their like take a pytree wherever they take an array, so the parameters of a model
# may be a dictionary. `jax.tree.map` calls a function on each array of a pytree, or on the arrays
# at the same place of several pytrees.
#
# There is no `backward()`, and no `.grad`. From a function that returns one number, `jax.grad`
# makes the function that returns its gradient with respect to the first argument: a pytree of the
# same form. Here is one step of gradient descent, with a learning rate of 0.01.

# %%
params = {"w": jnp.array([1.0, 2.0]), "bias": jnp.array(0.5)}
data = jnp.array([3.0, 4.0])


def loss(params, data):
    return jnp.sum((params["w"] * data + params["bias"]) ** 2)


gradient = jax.grad(loss)(params, data)
print(f"gradient: w {gradient['w']}, bias {gradient['bias']}")
stepped = jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient)
print(f"loss: {loss(params, data)}, after one step {loss(stepped, data):.1f}\n")

# %% [markdown]
# ### Loops
#
# A Python loop is unrolled when it is traced: the operations of its step (here 3: slice, squeeze,
# add) are recorded 100 times. `lax.scan(step, carry, xs)` is recorded as one operation. It calls
# `step(carry, x)` for each x of xs; the step returns the next *carry*, of the same type, and an
# output. The scan returns the last carry, and all outputs as one array with a new first dim.
# `jax.make_jaxpr` gives the operations that JAX recorded, and we count them.


# %%
def python_loop(xs):
    total = 0.0
    for i in range(100):
        total = total + xs[i]
    return total


def with_scan(xs):
    def step(total, x):
        return total + x, None  # the next carry, and no output

    return lax.scan(step, 0.0, xs)[0]


xs = jnp.ones(100)
in_python = len(jax.make_jaxpr(python_loop)(xs).eqns)
in_scan = len(jax.make_jaxpr(with_scan)(xs).eqns)
print(f"operations: {in_python} with the Python loop, {in_scan} with scan\n")

# %% [markdown]
# ### Random numbers
#
# JAX has no global generator, and no `torch.manual_seed`. Random numbers come from *keys*. The same
# key gives the same numbers, on every device and at every call, and `jax.random.split` makes new
# keys from one.

# %%
first, second = jax.random.split(jax.random.key(0))
for key in (first, second, second):
    print(jax.random.normal(key, 3))
print()

# %% tags=["fold"]
assert traced == [(3,), (5,)]
assert in_python == 300 and in_scan == 1
assert loss(params, data) == 84.5 and loss(stepped, data) < 40

# %% [markdown]
# ## Predict
#
# One matrix product, y = x @ w, on the mesh dp=2, tp=4. All numbers are float32, 4 bytes each.
#
# - x has the shape [4, 8] and the layout `"b_dp d_tp"`, as in the picture.
# - w has the shape [8, 12] and the layout `"d_tp f"`.
# - y has the shape [4, 12], and must come out with the layout `"b_dp f"`.
#
# The product sums over d, and d is split over `tp`. So a device can compute only a quarter of each
# sum, a *partial sum*. The 4 devices of a tp group must add up their partial sums, and each of them
# needs the result. This is an *all-reduce*. Each of n devices sends 2(n-1)/n times the bytes that
# it puts in; lesson 02 says why.
#
# Type a number for each question, or skip it.

# %%
held = ask("Bytes of x and w together that one device holds")
summed = ask("Bytes that one device puts into the all-reduce")
sent = ask("Bytes that one device sends in the all-reduce")
copies = ask("Number of devices with the same shard of w as device 0, device 0 included", "count")

# %% [markdown]
# ## Implement
#
# ### A loop over devices
#
# First without JAX: each iteration does the work of one device. At the `+=`, devices would have to
# communicate.

# %%
w = np.random.default_rng(0).normal(size=(8, 12)).astype("float32")
y = np.zeros((4, 12), "float32")
for i in range(2):  # the place on axis dp
    for j in range(4):  # the place on axis tp
        b = slice(2 * i, 2 * i + 2)
        d = slice(2 * j, 2 * j + 2)
        y[b] += x[b, d] @ w[d]
np.testing.assert_allclose(y, x @ w, rtol=1e-5)

# %% [markdown]
# ### `jax.shard_map`: you write what one device does
#
# The function below is the program of one device. It gets shards, and not full arrays. `in_specs`
# say how the arguments are split, and `out_specs` how the results are assembled (`jax.P` is short
# for `PartitionSpec`). All communication is a call that you can see: `lax.psum(y, "tp")` adds up y
# over the devices of axis `tp`.

# %%
w_sharded = jax.device_put(w, NamedSharding(mesh, spec("d_tp f")))
in_specs = (jax.P("dp", "tp"), jax.P("tp", None))  # of x and of w
out_specs = jax.P("dp", None)  # of y


@jax.shard_map(mesh=mesh, in_specs=in_specs, out_specs=out_specs)
def by_hand(x_shard, w_shard):
    y_partial = x_shard @ w_shard  # [b/dp, d/tp] @ [d/tp, f]: a quarter of d
    return lax.psum(y_partial, "tp")


np.testing.assert_allclose(by_hand(x_sharded, w_sharded), y, rtol=1e-5)

# %% [markdown]
# In such a function, `lax.axis_index("tp")` is the place of the device on that axis, and
# `lax.axis_size("tp")` the number of places. Most of this course is written with `shard_map`.
#
# ### `jax.jit` with shardings: the compiler decides
#
# Here you write the program for full arrays, and say only how arguments and results are sharded.
# XLA, the compiler under JAX, splits the work and adds the communication. The code is short, but
# does not show what is sent: you must look at what was compiled. Our `inspect` does that, and we
# keep its reports for later.

# %%
automatic = jax.jit(lambda x, w: x @ w, out_shardings=NamedSharding(mesh, out_specs))
np.testing.assert_allclose(automatic(x_sharded, w_sharded), y, rtol=1e-5)
reports = {"shard_map": inspect(by_hand, x_sharded, w_sharded)}
reports["jit"] = inspect(automatic, x_sharded, w_sharded)

# %% [markdown]
# ### Explicit mode: the layout is part of the type
#
# A mesh also says who decides on the sharding of a result. Our `make_mesh` makes axes of type
# `Auto`, where the compiler decides. `jax.make_mesh` makes axes of type `Explicit`: there JAX keeps
# the sharding in the type of each array, beside its shape and dtype. `with jax.set_mesh(...)` sets
# the mesh for the lines inside, and `reshard` changes the sharding of an array.

# %%
with jax.set_mesh(jax.make_mesh((2, 4), ("dp", "tp"))):
    x_typed, w_typed = reshard((x, w), in_specs)
    print(f"the types are {jax.typeof(x_typed)} and {jax.typeof(w_typed)}")
    try:
        print(x_typed @ w_typed)
    except Exception as error:
        print(f"x @ w raises {type(error).__name__}: how is y sharded?\n")
    explicit = jax.jit(lambda x, w: jnp.matmul(x, w, out_sharding=out_specs))
    np.testing.assert_allclose(explicit(x_typed, w_typed), y, rtol=1e-5)
    reports["Explicit"] = inspect(explicit, x_typed, w_typed)

# %% [markdown]
# `4@dp` is a dim of size 4 that is split over `dp`. The plain product is refused: its partial sums
# over `tp` could be added up on every device, or each device could keep a part of the result. JAX
# does not choose. You do, with `out_sharding`.
#
# ### `jax.pmap`: the older way
#
# You will meet `pmap` in old code. It has one axis, and maps over dim 0 of its arguments: each
# index goes to a device of its own, so dim 0 must not be larger than the number of devices of this
# process. JAX keeps `pmap`, but asks for `shard_map` in new code (changelog of 0.8.0). Here it
# splits d into 8.

# %%
product = jax.pmap(lambda x, w: lax.psum(x @ w, "all"), axis_name="all")
x_by_device = x.T.reshape(8, 4, 1)  # [device, b, d/8]
w_by_device = w.reshape(8, 1, 12)  # [device, d/8, f]
y_by_device = product(x_by_device, w_by_device)  # [device, b, f]: the same y eight times
np.testing.assert_allclose(y_by_device[0], y, rtol=1e-5)


# %% [markdown]
# ### The library's form
#
# These are `make_mesh` and `spec`, used above. A mesh is an array of devices with a name for each
# of its dims.

# %%
show(make_mesh, spec)

# %% [markdown]
# ## Measure
#
# ### What the program by hand sends and holds
#
# The *inspector*, `inspect`, compiles a program, and reads both what JAX recorded and what the
# compiler made of it. All its numbers are for one device. An all-reduce is one of the
# *collectives*, the operations in which all devices of a group take part (lesson 02). *Operand* is
# what the device puts into a collective, and *wire* is what it sends.

# %%
show_report(reports["shard_map"])

# %% [markdown]
# ### The same product, three ways
#
# All three programs sum y over `tp`, and send the same.

# %% tags=["fold"]
rows = []
for way, report in reports.items():
    (one,) = report.collectives
    sends = (one.kind, *one.axes, one.operand_bytes, one.wire_bytes)
    rows.append((way, *sends, report.memory.arguments_bytes))
headers = ("way", "sends", "over", "operand bytes", "wire bytes", "bytes of x and w")
table("The same product, for one device", headers, rows)

# %% [markdown]
# ## Compare

# %%
placed = w_sharded.sharding.devices_indices_map(w.shape)  # for each device, its part of w
same = [device for device in placed if placed[device] == placed[mesh.devices[0, 0]]]
(all_reduce,) = reports["shard_map"].collectives
shards = {"shard of x": x_sharded, "shard of w": w_sharded}
bytes_of = {name: one.addressable_shards[0].data.nbytes for name, one in shards.items()}
held.compare(reports["shard_map"].memory.arguments_bytes, bytes_of)
summed.compare(all_reduce.operand_bytes)
sent.compare(all_reduce.wire_bytes)
copies.compare(len(same))

# %% [markdown]
# Both axes split x, so each device has an eighth of it: a shard of shape [2, 2], 16 bytes. Only
# `tp` splits w, so a device has a quarter, of shape [2, 12], 96 bytes, and the two devices of a dp
# group hold the same one. That is the cost of replication: all devices together hold w twice.
#
# The partial sums that a device puts into the all-reduce have the shape [2, 12], since b is split
# too. They take 96 bytes, so it sends `2 * 3/4 * 96 = 144` bytes.

# %% tags=["fold"]
expected = ("all_reduce", "tp", 96, 144, 112)
assert len(rows) == 3 and all(row[1:] == expected for row in rows)
assert bytes_of == {"shard of x": 16, "shard of w": 96}
assert {mesh.devices[0, 0], mesh.devices[1, 0]} == set(same)

# %% [markdown]
# ## On real hardware
#
# - **Time.** Simulated devices share one CPU and one memory, so their seconds say nothing about a
#   cluster. This course counts bytes, and computes seconds from the numbers of real machines.
# - **Calls return early**, before the devices are done. Printing a value waits for it
#   (docs.jax.dev, "Asynchronous dispatch").
# - **Links.** In a node of eight H100, a GPU sends 450 GB/s to the others, but 50 GB/s to other
#   nodes (*How to Scale Your Model*, "How to Think About GPUs"). So the axis that sends most should
#   stay inside a node. Put it last: then the devices of a group have neighbouring ranks. The order
#   of axes in this course is `pp, dp, fsdp, ep, cp, tp`. Megatron-LM's is the same, written with
#   the last axis first: `tp-cp-ep-dp-pp` (`parallel_state.py`).
# - **Processes.** On several nodes, each of several processes runs the program, and first calls
#   `jax.distributed.initialize()`. A process may drive several devices, but on GPUs under Slurm or
#   Open MPI it takes one by default (docs.jax.dev, `jax.distributed.initialize`).
#   `jax.local_devices()` are the devices of this process, and it can read only their shards.
# - **The compiler** differs between platforms. If you ask for y as `"b_dp f_tp"`, XLA for GPUs can
#   sum and split in one step, a *reduce-scatter*, which sends half as much (its pass
#   `ReduceScatterCreator`). On the CPU it slices the result of an all-reduce.

# %% [markdown]
# ## Exercises

# %%
exercises("01")

# %% [markdown]
# ## On paper
#
# 1. In Llama 3 70B, the up-projection of a layer is a matrix [8192, 28672] in bfloat16, 2 bytes for
#    each number. On a mesh of dp=4, tp=8 it has the layout `"d f_tp"`. What is the shape of a
#    shard, how many bytes does it take, and how many devices hold the same one?
#
# <details><summary>Answer</summary>
#
# [8192, 3584], which is 58.7 MB, an eighth of 470 MB. The 4 devices of a dp group hold the same
# shard. With `"d_dp f_tp"` each would hold 14.7 MB, but would have to gather the other parts before
# a product: that is FSDP (lesson 10).
#
# </details>
#
# 2. 256 H100, in nodes of 8, form a mesh of pp=4, dp=8, tp=8. At which place in the mesh is rank
#    100, and on which node, counted from 0? Which ranks are in its tp group, and in its dp group?
#
# <details><summary>Answer</summary>
#
# The last axis counts fastest: `100 = 1*64 + 4*8 + 4`, so it is at pp 1, dp 4, tp 4, and on node 12
# with local rank 4. Its tp group is ranks 96 to 103, all of node 12. Its dp group is ranks 68, 76,
# 84, 92, 100, 108, 116 and 124: one device on each of the nodes 8 to 15.
#
# </details>
#
# 3. The down-projection of Llama 3 70B sums over f of size 28672, which is split over tp=8. Its
#    result for 8,192 tokens is y [8192, 8192] in bfloat16. How many bytes does each device send in
#    the all-reduce of y? How long does that take if the 8 H100 are in one node, and how long if
#    each is in a node of its own? Use the speeds of "On real hardware".
#
# <details><summary>Answer</summary>
#
# y takes 134 MB, and `2*7/8` of that are 235 MB. At 450 GB/s this takes 0.52 ms, at 50 GB/s 4.7 ms.
# The product, on each device, is `2 * 8192 * 3584 * 8192` operations. At 989 TFLOP/s, the peak of
# an H100 in bfloat16, they take 0.49 ms: about as long as sending inside a node, and a tenth of
# the time of sending between nodes.
#
# </details>

# %% [markdown]
# ## Sources
#
# Darema et al. 1988, *A Single-Program-Multiple-Data Computational Model for EPEX/FORTRAN*. Xu et
# al. 2021, *GSPMD: General and Scalable Parallelization for ML Computation Graphs*. Austin et al.
# 2025, *How to Scale Your Model*. Grattafiori et al. 2024, *The Llama 3 Herd of Models*, table 3.
# docs.jax.dev: "Distributed arrays and automatic parallelization", "Explicit sharding", "Manual
# parallelism with shard_map", "Introduction to multi-controller JAX", `jax.pmap`, and "Change log".
#
# | torch.distributed | JAX |
# |---|---|
# | `torchrun`: one process for each GPU | a process for each GPU, or one for several |
# | `init_process_group` | `jax.distributed.initialize`; not needed for one process |
# | `get_world_size()` | `jax.device_count()` |
# | `get_world_size(group)` | `lax.axis_size(axis)` in `shard_map` |
# | `get_rank(group)` | `lax.axis_index(axis)` in `shard_map` |
# | `init_device_mesh`, `new_group(ranks)` | `jax.make_mesh`; name its axes |
# | DTensor: `[Shard(0), Replicate()]`, for each mesh axis | `P("dp", None)`, for each array dim |
# | `distribute_tensor` | `jax.device_put` |
# | `redistribute` | `jax.sharding.reshard` (Explicit), `lax.with_sharding_constraint` (Auto) |
# | `all_reduce`, `all_gather` and the others | `lax.psum`, `lax.all_gather`: lesson 02 |
# | `backward()`, `detach()` | `jax.grad`, `lax.stop_gradient` |
#
# DeepSpeed keeps its groups in `utils/groups.py`. MPI and NCCL call a group a *communicator*.
