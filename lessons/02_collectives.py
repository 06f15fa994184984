# %% [markdown]
# # Lesson 02: collectives
#
# Devices that work on shards of one array must exchange numbers. They do so in a few fixed
# patterns, the *collectives*: operations in which all devices of a group take part. Every technique
# of this course consists of arithmetic and collectives. If you know what each collective leaves on
# a device, and what the device sends, you can compute in advance what a technique costs.
#
# This lesson shows each of them before and after, and counts its bytes. A last section is on JAX's
# types, which say which arrays are equal on all devices, and so decide which collectives a gradient
# has.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

import textwrap
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar import collectives
from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect

# %% [markdown]
# ## The idea in one picture
#
# Four devices, and on each an array of four numbers: `x[j]` is the array of device j. After an
# *all-reduce*, every device has the sums.

# %%
x = 10 * np.arange(1, 5)[:, None] + np.arange(4)  # [device, 4]

# %% tags=["fold"]
everyone = np.tile(x.sum(axis=0), (4, 1))
before, summed = panel("before", x), panel("after", everyone, [NOBODY] * 4)
draw("02_all_reduce", Panels("All-reduce: every device gets the sums", [before, summed]))

# %% [markdown]
# A small letter says which device a number comes from. A sum comes from all, and has no letter.
#
# ### All of them, in a loop over devices
#
# `after` returns what each collective leaves on device i. A *root* is the one device that sends or
# receives everything. A *chunk* is one of n equal parts of an array, for n devices: here chunk i is
# number i. All devices run one program, so each returns an array of the same shape, and where the
# result is for the root only, the others return zeros.

# %%
ROOT, sums = 1, x.sum(axis=0)


def after(name, i):
    match name:
        case "broadcast":  # the root's x goes to all
            return x[ROOT]
        case "scatter":  # chunk i of the root goes to device i
            return x[ROOT][i]
        case "reduce":  # the sums go to the root
            return sums if i == ROOT else 0 * sums
        case "gather":  # every x goes to the root
            return x if i == ROOT else 0 * x
        case "all_reduce":  # the sums go to all
            return sums
        case "all_gather":  # every x goes to all
            return x
        case "reduce_scatter":  # sum i goes to device i
            return sums[i]
        case "all_to_all":  # chunk i of every x goes to device i
            return x[:, i]
        case "permute":  # x goes to the next device, in a ring
            return x[i - 1]
    raise ValueError(name)


# %% [markdown]
# ### The same, by the library
#
# Now 4 devices, on an axis `tp`, run the collectives of the library. `on_devices` makes a program
# for n devices from the function of one device. The function gets one row of an array with n rows,
# and what it returns becomes one row of the result.


# %%
def on_devices(function, n, layout="n_tp"):
    def one_device(shard):  # [1, ...]: the row of this device
        return jax.tree.map(lambda y: y[None], function(shard[0]))

    mesh = make_mesh({"tp": n})
    mapped = jax.shard_map(one_device, mesh=mesh, in_specs=spec(layout), out_specs=P("tp"))
    return jax.jit(mapped)


library = {  # each collective, as the function of one device
    "broadcast": partial(collectives.broadcast, axis="tp", root=ROOT),
    "scatter": partial(collectives.scatter, axis="tp", root=ROOT),
    "reduce": partial(collectives.reduce, axis="tp", root=ROOT),
    "gather": partial(collectives.gather, axis="tp", root=ROOT),
    "all_reduce": partial(collectives.all_reduce, axis="tp"),
    "all_gather": partial(collectives.all_gather, axis="tp"),
    "reduce_scatter": partial(collectives.reduce_scatter, axis="tp"),
    "all_to_all": partial(collectives.all_to_all, axis="tp"),
    "permute": partial(collectives.permute, axis="tp", shift=1),
}


# %% tags=["fold"]
WITH_ROOT = ("broadcast", "scatter", "reduce", "gather")
WITHOUT_ROOT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")
panels = {}
for name, function in library.items():
    held = np.asarray(on_devices(function, 4)(x))
    np.testing.assert_array_equal(held, np.stack([after(name, i) for i in range(4)]))
    whose = np.where(held < 50, held // 10 - 1, NOBODY)  # a sum is nobody's
    whose = np.where(held == 0, NOBODY, whose)
    panels[name] = panel(f"after {name.replace('_', '-')}", held, whose)
shown = [panels[name] for name in WITH_ROOT]
draw("02_root", Panels("With a root: device 1", [before, *shown]))
shown = [panels[name] for name in WITHOUT_ROOT[1:]]
draw("02_no_root", Panels("Without a root", [before, *shown]))

# %% [markdown]
# The pictures show what the library leaves on each device; the folded code checks that it is what
# `after` says. An all-to-all turns rows into columns, as a transpose does.
#
# ### Not only sums
#
# A *reduction* combines the numbers of all devices into one. The library has seven, the sum among
# them. A reduction with a *location* also says which device holds the smallest (or largest) number,
# the first if several do. Here each device has two integers.

# %%
numbers = np.array([[6, 3], [5, 9], [7, 9], [6, 2]])  # [device, 2]
reduced = {}
for op in ("sum", "prod", "min", "max", "and", "or", "xor"):
    on_four_devices = on_devices(partial(collectives.all_reduce, axis="tp", op=op), 4)
    reduced[op] = on_four_devices(numbers)[0]  # of device 0; the others have the same
with_location = on_devices(partial(collectives.reduce_min_location, axis="tp"), 4)
smallest, holder = (y[0].tolist() for y in with_location(numbers))

# %% tags=["fold"]
fold = {"sum": np.add, "prod": np.multiply, "min": np.fmin, "max": np.fmax}
fold |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
for op, result in reduced.items():
    np.testing.assert_array_equal(result, fold[op].reduce(numbers))
assert holder == np.argmin(numbers, axis=0).tolist()
rows = [(op, result.tolist()) for op, result in reduced.items()]
rows.append(("min and its location", f"{smallest} on devices {holder}"))
table(f"Reductions of {numbers.tolist()}", ("reduction", "result"), rows)

# %% [markdown]
# ## Predict
#
# Four words for bytes. Each keeps its meaning in all lessons.
#
# - *Operand bytes*: the size of what one device puts into a collective.
# - *Sent bytes*: what one device sends.
# - *Wire bytes* of a collective: what its busiest device sends or what it receives, whichever is
#   more. If all devices send and receive equally much, it is what each of them sends.
# - *Traffic*: what one device sends plus what it receives.
#
# Now there are 8 devices. On each, x is 8 chunks of 32 numbers in float32: 1,024 bytes. In the
# collectives of the first three questions, no device is busier than another, and none sends more
# than it must. Sums are made on the way: a device may add its own chunk to one that it received,
# and send the partial sum on.

# %%
scattered = ask("Bytes that each device sends in a reduce-scatter of x")
gathered = ask("Bytes that each device sends in an all-gather of x")
everywhere = ask("Bytes that each device sends in an all-reduce of x")

# %% [markdown]
# A first idea of an all-reduce is a *master*: the seven others send x to device 0, which adds all
# up, and sends the sums back to each of them.

# %%
of_master = ask("Traffic of this master, in bytes")

# %% [markdown]
# ## Implement
#
# ### An all-reduce in two halves
#
# An all-reduce can be made of two others. First each device gets the sums of one chunk, by a
# reduce-scatter. Then all devices get the sums of all chunks, by an all-gather. This is the whole
# program of one device, in plain JAX, where a reduce-scatter is called `lax.psum_scatter`.

# %%
eight = make_mesh("tp=8")


@jax.jit
@jax.shard_map(mesh=eight, in_specs=P("tp"), out_specs=P("tp"))
def two_halves(x_shard):  # [1, 8, 32]: the 8 chunks of this device
    chunk = lax.psum_scatter(x_shard[0], "tp")  # [32]: the sums of one chunk
    return lax.all_gather(chunk, "tp")[None]  # [1, 8, 32]: the sums of all chunks


random = np.random.default_rng(0).integers(0, 9, (8, 8, 32)).astype("float32")
np.testing.assert_array_equal(two_halves(random)[5], random.sum(axis=0))  # on device 5

# %% [markdown]
# ### A master
#
# A message from one device to another is `lax.ppermute` with one pair (sender, receiver). All other
# devices get zeros from it. All devices run this one program, and `jnp.where` chooses what a device
# keeps.


# %%
def sum_at_master(x):
    n = lax.axis_size("tp")
    total = x
    for j in range(1, n):
        total = total + lax.ppermute(x, "tp", [(j, 0)])  # on device 0: plus the x of device j
    result = total
    for j in range(1, n):
        received = lax.ppermute(total, "tp", [(0, j)])
        result = jnp.where(lax.axis_index("tp") == j, received, result)
    return result


np.testing.assert_array_equal(on_devices(sum_at_master, 4)(x), [sums] * 4)

# %% [markdown]
# ### The library's form: moving numbers
#
# In each docstring, *Math* is the result, *Memory* its size, and *Comm* what is sent, forward and
# backward, with its operand; in both, x is the number of elements of x. An `axis` of None means one
# device alone. The broadcast is an all-reduce of the root's x and zeros, because JAX's
# `lax.pbroadcast` does not run on a CPU.

# %%
show(
    collectives.broadcast,
    collectives.all_gather,
    collectives.all_to_all,
    collectives.permute,
)

# %% [markdown]
# ### The library's form: combining numbers
#
# A `forward` line without `if` applies to every `op` that the lines before it do not name. `split`
# makes n chunks of `ceil(x/n)` elements, which is x/n rounded up, and `join` undoes that.
# `_OVER_CHUNKS` has an operation of JAX for each `op`, and `_OVER_DEVICES` a collective, where JAX
# has one. What `to="invarying"` means comes later in this lesson.

# %%
show(collectives.reduce_scatter, collectives.all_reduce, collectives.reduce)

# %% [markdown]
# ## Measure
#
# ### What each collective sends
#
# The inspector reads each program as it is compiled for 8 devices. It needs only the shape of x, so
# nothing is run.

# %%
shape = jax.ShapeDtypeStruct((8, 8, 32), jnp.float32)  # [device, chunk, number]
reports = {"two halves": inspect(two_halves, shape)}
for name in ("broadcast", "reduce", *WITHOUT_ROOT):
    reports[name] = inspect(on_devices(library[name], 8), shape)

# %% tags=["fold"]
rows = []
for name, report in reports.items():
    result = report.memory.outputs_bytes
    for one in report.collectives:
        rows.append((name, one.kind, one.operand_bytes, one.wire_bytes, result))
headers = ("program", "sends", "operand bytes", "wire bytes", "result bytes")
table("For one of 8 devices", headers, rows)

# %% [markdown]
# The operand of an all-gather is the part that the device has; the result is 8 times as large. The
# broadcast sends more than it must: if devices passed the root's x on along a line, each would send
# it at most once. The reduce brings the sums to all devices, although only the root keeps them.
# Lesson 03 has better ways for both.
#
# ### What the master does
#
# Here are the bytes that device 0 sends and receives, for 2, 4 and 8 devices, beside those of an
# all-reduce.

# %%
traffic = {}
for n in (2, 4, 8):
    rows_of_x = jax.ShapeDtypeStruct((n, 256), jnp.float32)  # 1,024 bytes each
    master = {"sent": 0, "received": 0}
    for permute in inspect(on_devices(sum_at_master, n), rows_of_x).collectives:
        ((sender, receiver),) = permute.pairs
        master["sent"] += permute.wire_bytes if sender == 0 else 0
        master["received"] += permute.wire_bytes if receiver == 0 else 0
    (all_reduce,) = inspect(on_devices(library["all_reduce"], n), rows_of_x).collectives
    sent_and_received = 2 * all_reduce.wire_bytes  # as much of each
    traffic[n] = (*master.values(), sum(master.values()), sent_and_received)

# %% tags=["fold"]
headers = ("devices", "master sends", "receives", "traffic", "traffic in an all-reduce")
rows_of_traffic = [(n, *counted) for n, counted in traffic.items()]
table("Bytes of device 0, to sum 1,024 bytes", headers, rows_of_traffic)

# %% [markdown]
# ## Compare

# %%
scattered.compare(sum(sent_by(reports["reduce_scatter"]).values()), {"7 of 8 chunks": 896})
gathered.compare(sum(sent_by(reports["all_gather"]).values()), {"x to 7 devices": 7168})
everywhere.compare(sum(sent_by(reports["all_reduce"]).values()), sent_by(reports["two halves"]))
of_master.compare(traffic[8][2], {"7 times x, received": 7168, "7 times x, sent": 7168})

# %% [markdown]
# In a reduce-scatter, a device keeps one of its chunks, and sends the other seven, or partial sums
# in their place: (n-1)/n of x. In an all-gather, each of the seven others needs its x: n-1 times x.
# The second half of an all-reduce gathers chunks of size x/n, so it sends (n-1)/n of x again. Both
# halves together send 2(n-1)/n of x. No all-reduce gets by with less, unless the network itself
# adds (lesson 03). An all-to-all sends seven of eight chunks, and a permute all.
#
# The factor 2(n-1)/n is 1 for two devices, and never reaches 2. This is why an all-reduce scales:
# the traffic of a device is always less than 4 times x. That of the master grows with the number of
# devices, and all others wait for it: it is the *bottleneck*.

# %% tags=["fold"]
X, N = 1024, 8
halves = {"reduce_scatter": X, "all_gather": X // N}
sends = {name: {name: X} for name in WITHOUT_ROOT}
sends |= {"two halves": halves, "reduce": halves, "broadcast": {"all_reduce": X}}
expected = []
for name in reports:
    result = {"reduce_scatter": X // N, "all_gather": N * X}.get(name, X)
    for kind, operand in sends[name].items():
        expected.append((name, kind, operand, wire_bytes(kind, operand, N), result))
assert rows == expected
for n, (given, received, both, ring) in traffic.items():
    assert given == received == (n - 1) * X
    assert both == 2 * (n - 1) * X == n * ring / 2 and ring < 4 * X

# %% [markdown]
# ## Types that vary, and types that do not
#
# In `shard_map`, some values differ between devices, such as a shard. Others are equal on all
# devices, such as a sum over all of them. While JAX traces, it keeps track of this in the type of
# each value. That finds mistakes, and gradients depend on it.
#
# ### What the type says
#
# A value *varies* over an axis if it may differ between the devices along that axis. If not, JAX
# calls it *invarying* over that axis (many say *invariant*). Here `x_j` is a shard, and w is
# replicated: device j has `x_j = j + 1`, and w = 1.

# %%
four = make_mesh("tp=4")
xs, w = np.arange(1, 5, dtype="float32"), np.float32(1)  # xs[j] is for device j


def on_four(function, in_specs, out_specs, **options):
    mapped = jax.shard_map(function, mesh=four, in_specs=in_specs, out_specs=out_specs, **options)
    return jax.jit(mapped)


def print_types(x_j, w):
    total = lax.psum(x_j, "tp")
    print("x_j                         ", jax.typeof(x_j))
    print("w                           ", jax.typeof(w))
    print("w * x_j                     ", jax.typeof(w * x_j))
    print("psum(x_j)                   ", jax.typeof(total))
    print("pcast(psum(x_j))            ", jax.typeof(lax.pcast(total, "tp", to="varying")))
    print("all_gather(x_j)             ", jax.typeof(lax.all_gather(x_j, "tp")))
    print('all_gather, to="invarying"  ', jax.typeof(lax.all_gather(x_j, "tp", to="invarying")))
    print("zeros_like(x_j)             ", jax.typeof(jnp.zeros_like(x_j)))
    print("zeros(x_j.shape)            ", jax.typeof(jnp.zeros(x_j.shape)))
    return x_j


on_four(print_types, in_specs=(P("tp"), P()), out_specs=P("tp"))(xs, w)
print()

# %% [markdown]
# `{V:tp}` means: varies over `tp`. There are five rules.
#
# - An argument varies over the axes that its `in_specs` name, and `lax.axis_index` over its axis.
# - The result of arithmetic varies where one of its operands varies. Where a varying and an
#   invarying value meet, JAX first makes both varying.
# - `lax.psum` makes an invarying value from a varying one. `lax.pcast(y, "tp", to="varying")` makes
#   a varying value from an invarying one. It changes only the type, and sends nothing.
# - `lax.all_gather` returns the same on all devices, but by default its type says varying. With
#   `to="invarying"` its type is invarying.
# - `zeros_like` inherits from its argument that it varies, and `zeros` from a shape does not.
#
# A program can read the axes from `jax.typeof(y).manual_axis_type.varying`. Older versions of JAX
# call this `jax.typeof(y).vma`, for *varying manual axes*: hence the name `check_vma` below.
#
# ### Error 1: an output that is said to be replicated
#
# If `out_specs` do not name an axis, they promise that the result is equal on all devices along it.
# This function breaks the promise: each device returns its own number.


# %% tags=["fold"]
def message(error):
    lines = [f"{type(error).__name__}:"]
    for paragraph in str(error).split("\n"):
        lines += textwrap.wrap(paragraph, 96) if paragraph.strip() else []
    return "\n    ".join(lines) + "\n"


# %%
def doubled(x_j):
    return 2 * x_j


try:
    on_four(doubled, in_specs=P("tp"), out_specs=P())(xs)
except ValueError as error:
    print(message(error))

# %% [markdown]
# If the numbers should differ, `out_specs` must name the axis. If they should be equal, a
# collective is missing, for example a sum. And if they are equal, but their type says varying, use
# a collective whose result is invarying, such as `all_gather` with `to="invarying"`.


# %%
def doubled_sum(x_j):
    return lax.psum(2 * x_j, "tp")


def doubled_from_all(x_j):
    return lax.all_gather(2 * x_j, "tp", to="invarying")


print(on_four(doubled, in_specs=P("tp"), out_specs=P("tp"))(xs).tolist())
print(on_four(doubled_sum, in_specs=P("tp"), out_specs=P())(xs).tolist())
print(on_four(doubled_from_all, in_specs=P("tp"), out_specs=P())(xs).tolist(), "\n")

# %% [markdown]
# ### Error 2: a carry that begins to vary
#
# The carry of a `lax.scan` must keep its type (lesson 01), and the type says what varies. The same
# holds for `lax.fori_loop(start, stop, step, carry)`, a scan that only counts. This sum starts at
# an invarying zero, and varies after the first step.


# %%
def three_times(x_j, start):
    return lax.fori_loop(0, 3, lambda step, total: total + x_j, start)


def from_zero(x_j):
    return three_times(x_j, jnp.zeros(x_j.shape))


try:
    on_four(from_zero, in_specs=P("tp"), out_specs=P("tp"))(xs)
except TypeError as error:
    print(message(error))

# %% [markdown]
# The message says what to do: make the start varying. Zeros that inherit their type from `x_j` do
# as well.


# %%
def from_pcast(x_j):
    zeros = jnp.zeros(x_j.shape)
    return three_times(x_j, lax.pcast(zeros, "tp", to="varying"))


def from_zeros_like(x_j):
    return three_times(x_j, jnp.zeros_like(x_j))


for mended in (from_pcast, from_zeros_like):
    print(mended.__name__, on_four(mended, in_specs=P("tp"), out_specs=P("tp"))(xs))
print()

# %% [markdown]
# ### Error 3: a gradient that is summed twice, or not at all
#
# This one has no message. The loss of device j is `w * x_j`. The gradient of the sum of all losses
# with respect to w is `1 + 2 + 3 + 4 = 10`. Here are four ways to compute it; two are wrong.


# %%
def loss(w, x_j):
    return jnp.sum(w * x_j)


grad = jax.grad(loss)


def four_ways(w, x_j):
    own_w = lax.pcast(w, "tp", to="varying")
    gradients = [
        grad(w, x_j),
        lax.psum(grad(w, x_j), "tp"),
        grad(own_w, x_j),
        lax.psum(grad(own_w, x_j), "tp"),
    ]
    return jnp.stack(gradients)[None]  # a row of each device


got = on_four(four_ways, in_specs=(P(), P("tp")), out_specs=P("tp"))(w, xs)

# %% tags=["fold"]
written = ("grad(w)", "psum(grad(w))", "grad(own_w)", "psum(grad(own_w))")
rows = list(zip(written, got.T.tolist(), strict=True))
table("The gradient with respect to w", ("you write", "devices 0 to 3 get"), rows)
assert [row[1] for row in rows] == [[10] * 4, [40] * 4, [1, 2, 3, 4], [10] * 4]

# %% [markdown]
# The first is right, and surprises those who come from PyTorch. All devices use the same w, so the
# gradient with respect to w is a sum over all of them. Where the invarying w meets `x_j`, JAX
# inserts a `pcast`, and its backward pass is a `psum`. Whoever adds a second one gets four times
# the gradient, because a `psum` of what is equal on 4 devices multiplies it by 4. With Adam, a loss
# curve hardly shows this: Adam divides by the size of the gradient.
#
# After a `pcast`, each device has a w of its own, and the gradient is local, as in PyTorch. Now you
# must write the sum. If you forget it, the weights differ between devices after a step, and JAX
# notices that where they leave `shard_map` through `P()`: error 1. One habit prevents both
# mistakes: `pcast` the parameters first, then sum once, in a line that a reader can see. The
# lessons on data parallelism do so.
#
# ### The backward pass of a collective is a collective
#
# The same rule holds for all of them. If a number is copied to many devices in the forward pass,
# its gradients on these devices are summed in the backward pass, and the other way round. Here is
# what each function sends in both. `y, backward = jax.vjp(function, x)` gives y, and the backward
# pass as a function.


# %%
def there_and_back(forward):
    def both(x):
        y, backward = jax.vjp(forward, x)
        return y, backward(y)  # y in the place of the gradient with respect to y

    return both


def kinds(function, layout):
    report = inspect(on_devices(function, 8, layout), shape)
    return [one.kind for one in report.collectives]


functions = {
    "pcast (f)": lambda x: lax.pcast(x, "tp", to="varying"),
    "psum (g)": lambda x: lax.psum(x, "tp"),
    "all_gather, to invarying": lambda x: lax.all_gather(x, "tp", to="invarying"),
}
for name in WITHOUT_ROOT[1:]:
    functions[name] = library[name]
directions = {}
for name, function in functions.items():
    layout = "n" if name == "pcast (f)" else "n_tp"  # pcast takes what does not vary
    forward = kinds(function, layout)
    both = kinds(there_and_back(function), layout)
    directions[name] = (forward, both[len(forward) :])

# %% tags=["fold"]
rows = []
for name, sides in directions.items():
    rows.append((name, *(" ".join(side) or "nothing" for side in sides)))
table("What is sent", ("function", "forward", "backward"), rows)
assert rows[:2] == [("pcast (f)", "nothing", "all_reduce"), ("psum (g)", "all_reduce", "nothing")]
assert directions["all_gather, to invarying"] == (["all_gather"], [])
assert directions["all_gather"] == (["all_gather"], ["reduce_scatter"])
assert directions["reduce_scatter"] == (["reduce_scatter"], ["all_gather"])
assert directions["all_to_all"] == (["all_to_all"], ["all_to_all"])
assert directions["permute"] == (["permute"], ["permute"])

# %% [markdown]
# Megatron-LM calls the first two f and g, and makes its tensor parallelism of them (lesson 11).
# Gather with `to="invarying"` for results, and by default where a gradient must come back from all
# devices. `lax.pmax` has no derivative; where none is needed, write
# `lax.pmax(lax.stop_gradient(x), axis)`.
#
# ### `check_vma=False` and `check_rep=False`
#
# You will meet `shard_map(..., check_vma=False)` in other code, often to silence errors 1 and 2;
# the first message above proposes it. `check_rep` is the older name of this switch, in
# `jax.experimental.shard_map`, which is deprecated since jax 0.8. With the switch off, JAX does not
# track what varies. It checks no `out_specs`, and inserts no `pcast`, so no gradient is summed. And
# the backward pass of a `psum` becomes another `psum`, since JAX does not know that the result is
# equal on all devices.
#
# Here are five programs with the switch on and off. In the last one, the loss is computed from a
# sum over devices, as in tensor parallelism. Its gradient with respect to `x_j` is w, which is 1.


# %%
def copy_of(x_j, w):
    return 2 * x_j


def local(x_j, w):
    return grad(w, x_j)


def summed_twice(x_j, w):
    return lax.psum(grad(w, x_j), "tp")


def summed_once(x_j, w):
    own_w = lax.pcast(w, "tp", to="varying")
    return lax.psum(grad(own_w, x_j), "tp")


def loss_of_sum(x_j, w):
    return jnp.sum(lax.psum(w * x_j, "tp"))


# %%
def with_switch(function, out_specs, check_vma):
    program = on_four(function, (P("tp"), P()), out_specs, check_vma=check_vma)
    try:
        return program(xs, w).tolist()
    except ValueError:
        return "error 1"


programs = {
    "2 * x_j, through P()": (copy_of, P(), "error 1"),
    "grad(w)": (local, P(), 10),
    "psum(grad(w))": (summed_twice, P(), 10),
    "psum(grad(own_w))": (summed_once, P(), 10),
    "grad(x_j), psum inside": (jax.grad(loss_of_sum), P("tp"), [1, 1, 1, 1]),
}
found = {}
for name, (function, out_specs, right) in programs.items():
    found[name] = (
        right,
        with_switch(function, out_specs, check_vma=True),
        with_switch(function, out_specs, check_vma=False),
    )

# %% tags=["fold"]
headers = ("you write", "right is", "check_vma=True", "check_vma=False")
table("The switch on and off", headers, [(name, *row) for name, row in found.items()])
assert [row[1] for row in found.values()] == ["error 1", 10, 40, 10, [1] * 4]
assert [row[2] for row in found.values()] == [[2], 1, 10, 10, [4] * 4]
for check_vma in (True, False):
    sharded = on_four(loss_of_sum, (P("tp"), P()), P(), check_vma=check_vma)
    wrt_weights, wrt_w = jax.grad(sharded, (0, 1))(xs, w)
    assert wrt_weights.tolist() == [1] * 4 and wrt_w == 10

# %% [markdown]
# With the switch off, the first two lines print the number of device 0, without an error, although
# the other devices hold other numbers. The third line is right with the switch off, and four times
# too large with it on. `pmap` has the switch off, so code for `pmap` looks like that, and its
# gradients must be mended in `shard_map`. The habit from above, in the fourth line, is right in
# both. The last line is four times too large with the switch off, and the habit does not help: do
# not differentiate through a `psum` there.
#
# All of this is about `jax.grad` inside `shard_map`. Around it, `in_specs` and `out_specs` say what
# is equal, and both settings give the right gradient. Leave the check on. If someone's function
# needs it off, give that function a `shard_map` of its own, and test the gradient.

# %% [markdown]
# ## On real hardware
#
# - **Algorithms.** Wire bytes here are those of a ring; nccl-tests computes its *bus bandwidth*
#   (busbw) from the same bytes. NCCL, which JAX uses on NVIDIA GPUs, also has trees, and sums made
#   inside the network switch (`NCCL_ALGO`). With these a device sends about half as much in an
#   all-reduce; about 30% more bandwidth was measured (*How to Scale Your Model*, as below).
# - **Both directions.** A link sends and receives at once: NVLink of an H100, sold as 900 GB/s, has
#   450 GB/s each way. So time follows wire bytes, and not traffic.
# - **Time** is bytes over bandwidth for large arrays only. For small ones it is the latency of each
#   step (lesson 03). A CPU shows neither.
# - **Order.** All devices must run the same collectives in the same order, or they wait forever.
#   Within one program they do. Several processes must call the same programs in the same order.
# - **bfloat16.** The CPU sends it as float32. The inspector counts what you wrote, and notes it:

# %%
halved = jax.ShapeDtypeStruct((8, 4), jnp.bfloat16)  # 4 numbers on each device
report = inspect(on_devices(library["all_reduce"], 8), halved)
print(report.collectives[0].operand_bytes, "bytes in.", *report.notes, "\n")

# %% [markdown]
# ## Exercises
#
# `swap_layout` is an open challenge: every right answer earns its points, and the fewest bytes that
# your devices have sent are kept. The library's gathers the whole array.

# %%
exercises("02")

# %% [markdown]
# ## On paper
#
# 1. The gradients of Llama 3 8B take 16.06 GB in bfloat16: 8.03 billion numbers. How many bytes
#    does each device send to all-reduce them over 8 devices, and over 1,024?
#
# <details><summary>Answer</summary>
#
# `2*7/8` of them, 28.1 GB, and `2*1023/1024` of them, 32.1 GB. That is 14 percent more for 128
# times as many devices. What grows with n is the number of steps (lesson 03).
#
# </details>
#
# 2. The same gradients, on 64 devices, each of which sends and receives 50 GB/s. How long does the
#    all-reduce take? How long does a master take, if it first receives all, and then sends?
#
# <details><summary>Answer</summary>
#
# The wire bytes of the all-reduce are `2*63/64` of 16.06 GB, so it takes 0.63 s. The master
# receives 63 times 16.06 GB, which takes 20.2 s, and then sends as much: 40.5 s, 64 times as long.
#
# </details>
#
# 3. In Mixtral 8x7B, each token goes to 2 of 8 experts, as a vector of 4,096 numbers in bfloat16.
#    Each of 8 devices has one expert and 8,192 tokens, and the tokens are spread evenly over the
#    experts. How many bytes does a device send if the tokens go to their experts by an all-to-all?
#    How many if each device gathers all tokens instead, and takes those of its expert?
#
# <details><summary>Answer</summary>
#
# All-to-all: the operand is `8192 * 2 * 4096 * 2` bytes, 134 MB, and 7/8 of it are sent: 117 MB.
# All-gather: the operand is half as large, since each token is sent as one copy, but it is sent 7
# times: 470 MB, which is 4 times as much.
#
# </details>

# %% [markdown]
# ## Sources
#
# Patarasuk and Yuan 2009, *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*.
# Shoeybi et al. 2019, *Megatron-LM*, section 3 (f and g; in its code
# `copy_to_tensor_model_parallel_region` and `reduce_from_tensor_model_parallel_region`). Jiang et
# al. 2024, *Mixtral of Experts*, section 2. Austin et al. 2025, *How to Scale Your Model*, "How to
# Think About GPUs". NVIDIA/nccl-tests, doc/PERFORMANCE.md (wire bytes); NCCL's documentation,
# "Environment Variables". MPI 4.1, chapter 6. docs.jax.dev, "Manual parallelism with shard_map".
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
# | varying, invarying | DTensor: `Shard` or `Partial`, `Replicate` | - |
#
# NCCL writes `ncclBroadcast`, `ncclAllReduce` and so on; `deepspeed.comm` has the names of
# torch.distributed.
