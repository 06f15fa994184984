# %% [markdown]
# # Lesson 13: tensor parallelism in two and three dimensions
#
# In lesson 11 every device holds 1/n of each matrix, and all of x. So does every device send all
# of x, however many there are. This lesson splits x, too: all three matrices of y = x @ w lie in
# blocks, on a square or a cube of devices, and no device ever holds one of them whole.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxpar import nn
from jaxpar.cost.tensor import (
    Product,
    split_2_5d,
    split_2d,
    split_3d,
    split_cannon,
    split_columns,
    split_rows,
)
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import NOBODY, draw, draw_curves, panel
from jaxpar.inspector import compiled, program
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import parse_mesh, spec
from jaxpar.parallel import tensor, tensor_nd

# %% [markdown]
# ## The idea in one picture
#
# Nine devices, a to i, lie in a square, and each holds one block of x, one of w, one of y. Block
# f of y is a sum of three products: of the blocks of x in f's row, and of w in f's column. All
# other blocks (white) have nothing to do with it.

# %%
letters = np.array(list("abcdefghi")).reshape(3, 3)
owners = np.arange(9).reshape(3, 3)
in_row, in_column = np.indices((3, 3))[0] == 1, np.indices((3, 3))[1] == 2
needed = [np.where(mask, owners, NOBODY) for mask in (in_row, in_column, in_row & in_column)]
moment = panel("What device f needs, and makes", [letters] * 3, needed, names=["x", "w", "y"])
draw("13_blocks", "A product in blocks", moment)

# %% [markdown]
# A row and a column of q blocks each, on q*q devices: that is little. This is the 2D split.
#
# **2.5D** is several such squares, `depth` of them: each has its own rows of x, and all of w.
#
# **3D**: on a cube of q*q*q devices, device (i, j, l) computes the one product x_il @ w_lj, and
# the devices along l add theirs up.
#
# ## Predict
#
# Your turn, before you read on. X, W and Y are the bytes of the whole matrices.
#
# 1. On a square of q*q devices, what must a device receive for its block of y?
# 2. The gradient is two more products: of x, dy @ w.T, of w, x.T @ dy. What do these take?
# 3. On a cube, what does a device gather, and what does it add up with others?
#
# An MLP is two such products. Below are what `jaxpar.cost` says of one with 64 tokens, in fp32.

# %%
m, d, f = 64, 32, 128
AXES_2D = {"rows": "tpx", "cols": "tpy"}
AXES_2_5D = {**AXES_2D, "depth": "tpz"}
AXES_3D = {"x_axis": "tpx", "y_axis": "tpy", "z_axis": "tpz"}


def products(m, d, f, item_bytes):
    x, w, h = (item_bytes * size for size in (m * d, d * f, m * f))
    return Product(x, w, h), Product(h, w, x)


def predict(splits, m, d, f, item_bytes):
    """Devices, bytes of weights, of x, h and y, sent forward, and backward."""
    up, down = (split(whole) for split, whole in zip(splits, products(m, d, f, item_bytes)))
    held = up.w + down.w, up.x + down.x + down.y
    return up.devices, *held, up.forward + down.forward, up.backward + down.backward


def all_splits(n, q, deep, depth, cube):
    twice = {
        "2D": partial(split_2d, q=q),
        "2D, Cannon": partial(split_cannon, q=q),
        "2.5D": partial(split_2_5d, q=deep, depth=depth),
        "3D": partial(split_3d, q=cube),
    }
    one = partial(split_columns, n=n), partial(split_rows, n=n)
    return {"1D": one} | {name: (split, split) for name, split in twice.items()}


costs = all_splits(n=8, q=2, deep=2, depth=2, cube=2)
predicted = {name: predict(splits, m, d, f, 4) for name, splits in costs.items()}
columns = "", "devices", "weights", "x, h, y", "sent forward", "backward"
table("Predicted", columns, [(name, *row) for name, row in predicted.items()])

# %% [markdown]
# Answers: (q-1)/q^2 of X and of W. Backward, of each product one matrix is gathered, as forward,
# and one is summed, which is as many bytes: twice the bytes of forward. On a cube (q-1)/q^3 of X,
# of W, and of Y; and the same backward, as what was gathered is kept.
#
# ## Implement
#
# First in numpy, with loops over devices: what is the sum that device (i, j) computes?

# %%
q = 3
rng = np.random.default_rng(0)
a, b = rng.standard_normal((2, 6, 6))


def block(matrix, i, j):
    return np.split(np.split(matrix, q)[i], q, axis=1)[j]


for i, j in np.ndindex(q, q):
    in_order = sum(block(a, i, k) @ block(b, k, j) for k in range(q))
    turned = sum(block(a, i, k % q) @ block(b, k % q, j) for k in range(i + j, i + j + q))
    np.testing.assert_allclose(in_order, block(a @ b, i, j))
    np.testing.assert_allclose(turned, block(a @ b, i, j))

# %% [markdown]
# The sum may begin anywhere. In **SUMMA** (van de Geijn and Watts) all devices take inner number
# k at the same time: their owners send these blocks to all of their row, and of their column.
# That is yours to write. In **Cannon's** way device (i, j) begins with number i + j. Then all
# devices of a row need different blocks, and pass them on to a neighbour, as in a ring.

# %%
show(tensor_nd.cannon_matmul)

# %% [markdown]
# Two ppermutes bring blocks to their first places, and after that they move by one. Each device
# holds two blocks at a time, but sends q of each matrix: one more than a gather.
#
# In 3D a result lies otherwise than x: rows of x are split over x and y, of the result over x
# and z. The second product of an MLP has y and z changed, and all is as it was. The product
# itself is yours to write.

# %%
show(tensor_nd.mlp_3d)

# %% [markdown]
# ## Measure
#
# The MLP and its gradient on up to 8 devices, in all five ways. The results of each are those of
# one device.


# %%
def one_dim(x, w_up, w_down):
    return tensor.parallel_mlp(x[None], w_up, w_down, axis="tp")[0]


def by_cannon(x, w_up, w_down):
    product = partial(tensor_nd.cannon_matmul, **AXES_2D)
    return product(nn.gelu(product(x, w_up)), w_down)


square = "m_tpx d_tpy", "d_tpx f_tpy", "f_tpx d_tpy"
layouts = {  # of x and of the result, of w_up, of w_down
    "1D": ("m d", "d f_tp", "f_tp d"),
    "2D": square,
    "2D, Cannon": square,
    "2.5D": ("m_tpz_tpx d_tpy", *square[1:]),
    "3D": ("m_tpx_tpy d_tpz", "d_tpz f_tpy_tpx", "f_tpy d_tpz_tpx"),
}
mlps = {
    "1D": one_dim,
    "2D": partial(tensor_nd.mlp_2d, **AXES_2D),
    "2D, Cannon": by_cannon,
    "2.5D": partial(tensor_nd.mlp_2_5d, **AXES_2_5D),
    "3D": partial(tensor_nd.mlp_3d, **AXES_3D),
}
meshes = {
    "1D": "tp=8",
    "2D": "tpx=2,tpy=2",
    "2D, Cannon": "tpx=2,tpy=2",
    "2.5D": "tpx=2,tpy=2,tpz=2",
    "3D": "tpx=2,tpy=2,tpz=2",
}


def with_gradient(function):
    def both(*args):  # the last one is the gradient of the result
        y, pull = jax.vjp(function, *args[:-1])
        return y, *pull(args[-1])

    return both


def programs(name, mesh):
    x, *weights = map(spec, layouts[name])
    share = partial(jax.shard_map, mesh=mesh)
    forward = share(mlps[name], in_specs=(x, *weights), out_specs=x)
    both = with_gradient(mlps[name])
    both = share(both, in_specs=(x, *weights, x), out_specs=(x, x, *weights))
    return jax.jit(forward), jax.jit(both)


def total(collectives):
    return sum(c.total_wire_bytes for c in collectives)


def on_one(*arrays):
    return sum(array.addressable_shards[0].data.nbytes for array in arrays)


whole = [jnp.asarray(rng.standard_normal(s), "float32") for s in ((m, d), (d, f), (f, d), (m, d))]
expected = jax.jit(with_gradient(lambda x, up, down: nn.gelu(x @ up) @ down))(*whole)
measured = {}
for name, sizes in meshes.items():
    mesh = make_mesh(sizes)
    forward, both = programs(name, mesh)
    lie = [NamedSharding(mesh, spec(layout)) for layout in (*layouts[name], layouts[name][0])]
    args = jax.device_put(whole, lie)
    lowered = both.lower(*args)
    ready = compiled.compile_program(lowered)
    report = program.inspect_compiled(lowered, ready)
    results = ready.executable(*args)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    once = total(read_module(forward.lower(*args[:3]).compiler_ir("stablehlo")))
    backward = total(report.collectives) - once
    measured[name] = mesh.size, on_one(*args[1:3]), on_one(args[0], results[0]), once, backward
columns = "", "devices", "weights", "x and y", "sent forward", "backward"
table("Measured", columns, [(name, *row) for name, row in measured.items()])

# %% [markdown]
# ## Compare
#
# What is sent is as predicted, to the byte, and so is what lies on a device. (h is an
# intermediate result: it has no layout to ask for.)

# %%
for name, (up, down) in costs.items():
    first, second = (split(whole) for split, whole in zip((up, down), products(m, d, f, 4)))
    devices, weights, _, *sent = predicted[name]
    assert measured[name] == (devices, weights, first.x + second.y, *sent)

# %% [markdown]
# **What is kept.** A product keeps x and w for its gradient. `summa_matmul` keeps its own blocks,
# and gathers again. Cannon and 3D keep all q blocks that came. 3D may gather again, too, for 8
# instead of 6 times (q-1)/q^3: blocks of 1/q^3 and the least bytes do not come together.

# %%
unit = Product(1, 1, 1)
keeps = {"2D": split_2d(unit, 8), "2D, Cannon": split_cannon(unit, 8), "3D": split_3d(unit, 4)}
rows = [(name, share.kept / 2, share.sent) for name, share in keeps.items()]
table("64 devices, matrices of size 1", ("", "kept of each", "sent in all"), rows)

# %% [markdown]
# **Beside published figures.** Colossal-AI, which has all four, gives these for a product and
# its gradient, with matrices of size 1. 1D and 3D are ours. For 2D and 2.5D it counts what the
# q devices of a row send together; and it leaves the all-reduce over depth out.

# %%
n, q, deep, depth, cube = 64, 8, 4, 4, 4
ours = {name: splits[0](unit).sent for name, splits in all_splits(n, q, deep, depth, cube).items()}
published = {
    "1D": 2 * (n - 1) / n,
    "2D": 6 * (q - 1) / q,
    "2.5D": 3 * (deep - 1) * (depth + 1) / (depth * deep),
    "3D": 6 * (cube - 1) / cube**3,
}
over_depth = 2 * (depth - 1) / depth / deep**2
rows = [(name, round(ours[name], 3), round(figure, 3)) for name, figure in published.items()]
table("64 devices: bytes sent", ("", "a device, here", "published"), rows)
assert (ours["1D"], ours["3D"]) == (published["1D"], published["3D"])
assert q * ours["2D"] == published["2D"]
assert np.isclose(deep * (ours["2.5D"] - over_depth), published["2.5D"])

# %% [markdown]
# **At the size of a real model**, d = 8192, f = 4d, in bf16 on 64 devices. No such mesh is
# needed to count: a program is written down for shapes and an abstract mesh.


# %%
def count(name, sizes, m, d, f):
    sizes = parse_mesh(sizes)
    auto = (AxisType.Auto,) * len(sizes)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=auto)
    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((m, d), (d, f), (f, d), (m, d))]
    traced = programs(name, mesh)[1].trace(*shapes)
    return read_module(traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo"))


large = {
    "1D": "tp=64",
    "2D": "tpx=8,tpy=8",
    "2.5D": "tpx=4,tpy=4,tpz=4",
    "3D": "tpx=4,tpy=4,tpz=4",
}
d = 8192
costs = all_splits(n, q, deep, depth, cube)
for name, sizes in large.items():
    sent = predict(costs[name], 16384, d, 4 * d, 2)[3:]
    assert total(count(name, sizes, 16384, d, 4 * d)) == sum(sent)
tokens = [1024 * k for k in range(33)]
gigabytes = {
    name: [sum(predict(costs[name], m, d, 4 * d, 2)[3:]) / 1e9 for m in tokens] for name in large
}
draw_curves("13_bytes", "GB that a device sends", "thousands of tokens", gigabytes)

# %% [markdown]
# 1D sends x only, and with few tokens x is small. All others send weights, too. 3D sends less
# than 1D from d/4 tokens on; here these are 2048.

# %%
assert gigabytes["1D"][2] == gigabytes["3D"][2] and tokens[2] == d // 4
for k, m in enumerate(tokens):
    assert (gigabytes["3D"][k] < gigabytes["1D"][k]) == (m > d // 4)

# %% [markdown]
# **You have met most of this.** 2.5D is 2D with data parallelism: depth is dp. And 3D with z of
# size 1 is FSDP (lesson 10) with sequence parallelism (lesson 12): weights are gathered over x,
# x over y before the first product, and the result is scattered over y after the second.

# %%
sizes = {"tpx": 2, "tpy": 4, "tpz": 1}
mesh = make_mesh(sizes)
shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in whole]
forward = read_module(programs("3D", mesh)[0].lower(*shapes[:3]).compiler_ir("stablehlo"))
rows = [(c.kind, *c.axes, c.total_wire_bytes) for c in forward]
table("3D on tpx=2,tpy=4,tpz=1, forward", ("", "axis", "bytes"), rows)
x, w = whole[0].nbytes, whole[1].nbytes
assert [row[2] for row in rows] == [3 * x // 8, w // 8, w // 8, 3 * x // 8]

# %% [markdown]
# ## On real hardware
#
# - **Links.** All of this must go over fast links. 2D and 3D fit the torus of TPUs: rows,
#   columns and depth are its own axes. Nodes of GPUs have one fast level, and few devices on it.
# - **Messages** are more and smaller: SUMMA in rounds waits 2q times for each product. A CPU
#   cannot show that, nor that Cannon's permutes go on while blocks are multiplied.
# - **Products** get small on all three sides, and small products use a chip badly.
#
# So what is common is 1D inside a node, and FSDP or data parallelism between nodes. For inference
# on many TPUs, 2D layouts of weights are in use (Pope et al.).
#
# ## Exercises

# %%
exercises("13")

# %% [markdown]
# ## Sources
#
# Cannon 1969, *A cellular computer to implement the Kalman filter algorithm*. Agarwal et al. 1995,
# *A three-dimensional approach to parallel matrix multiplication*. van de Geijn and Watts 1997,
# *SUMMA*. Xu et al. 2021, *An efficient 2D method for training super-large deep learning models*
# (Optimus). Wang et al. 2022, *Tesseract*. Bian et al. 2021, *Maximizing parallelism in
# distributed training for huge neural networks*. Pope et al. 2022, *Efficiently scaling
# transformer inference*.
#
# | here | Colossal-AI | others |
# |---|---|---|
# | 1D | `mode="1d"` | Megatron: `tensor-model-parallel-size`; PyTorch: `parallelize_module` |
# | 2D, SUMMA | `mode="2d"`, `Linear2D` | Optimus |
# | 2.5D | `mode="2.5d"`, `Linear2p5D` | Tesseract |
# | 3D | `mode="3d"`, `Linear3D` | - |
