# %% [markdown]
# # Lesson 13: tensor parallelism in two and three dimensions
#
# In lesson 11 a device holds 1/n of the weights, but all of x; so it sends all of x, however many
# devices there are. This lesson also splits x: all three matrices of y = x @ w are split into
# blocks over a square or a cube of devices, and no device ever holds all of one of them.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxpar import nn
from jaxpar.cost import tensor as cost
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import spec
from jaxpar.parallel import tensor, tensor_nd

# %% [markdown]
# ## The idea in one picture
#
# Nine devices, a to i, form a square, and each holds one block of x, one of w, and one of y. Block
# f of y is a sum of three products: those of the blocks of x in f's row with the blocks of w in f's
# column. The other blocks (white, or with one letter) are not needed for it.

# %%
letters, owners = np.array(list("abcdefghi")).reshape(3, 3), np.arange(9).reshape(3, 3)
in_row, in_column = owners // 3 == 1, owners % 3 == 2
needed = [np.where(mask, owners, NOBODY) for mask in (in_row, in_column, in_row & in_column)]
moment = panel("What device f needs, and makes", [letters] * 3, needed, names=["x", "w", "y"])
draw("13_blocks", Panels("A product in blocks", [moment]))

# %% [markdown]
# On q*q devices, a device needs q of the q*q blocks of x, and q of those of w: this is the **2D**
# split. **2.5D** is several such squares, `depth` of them: each has its own rows of x, and all of
# w. This is the form of Tesseract (Wang et al. 2022). The name is from Solomonik and Demmel (2011),
# whose squares all hold both matrices; each square computes a part of the sum of every block of y,
# and the parts are then added up over the squares. **3D** is a cube of q*q*q devices: device
# (i, j, l) computes one product, x_il @ w_lj, and the products are summed along l.
#
# ## Predict
#
# Your turn, before you read on. X, W and Y are the bytes of the full matrices.
#
# 1. On a square of q*q devices, what must a device receive for its block of y?
# 2. The backward pass has two more products: dy @ w.T for the gradient with respect to x, and x.T @
#    dy for that with respect to w. What must be sent for these?
# 3. On a cube, what does a device gather, and what does it sum with others?
#
# An MLP is two such products. This is what `jaxpar.cost` says of one, in fp32.


# %%
def all_splits(n, q, deep, depth, cube):
    """The costs of the first and of the second matrix of an MLP."""
    return {
        "1D": (partial(cost.split_columns, n=n), partial(cost.split_rows, n=n)),
        "2D": [partial(cost.split_2d, q=q)] * 2,
        "2.5D": [partial(cost.split_2_5d, q=deep, depth=depth)] * 2,
        "3D": [partial(cost.split_3d, q=cube)] * 2,
    }


def predict(splits, tokens, d, item_bytes):
    """Devices; bytes of weights, of x and y; bytes sent forward, and backward."""
    x, w, h = (item_bytes * size for size in (tokens * d, 4 * d * d, tokens * 4 * d))
    up, down = splits[0](cost.Product(x, w, h)), splits[1](cost.Product(h, w, x))
    both = up.forward + down.forward, up.backward + down.backward
    return up.devices, up.w + down.w, up.x + down.y, *both


tokens, d = 128, 32
small = all_splits(n=8, q=2, deep=2, depth=2, cube=2)
predicted = {name: predict(splits, tokens, d, 4) for name, splits in small.items()}
columns = "", "devices", "weights", "x and y", "sent forward", "backward"
table("Predicted", columns, [(name, *row) for name, row in predicted.items()])

# %% [markdown]
# Answers: (q-1)/q^2 of X and of W. In the backward pass, each of the two products gathers one
# matrix, as in the forward pass, and sums another, which takes as many bytes: twice the bytes of
# the forward pass in all. On a cube it is (q-1)/q^3 of X, of W, and of Y, and the same in the
# backward pass, because what was gathered is kept.
#
# ## Implement
#
# First in numpy, with loops over devices: what is the sum that device (i, j) computes?

# %%
q, rng = 3, np.random.default_rng(0)
a, b = rng.standard_normal((2, 6, 6)).astype("float32")


def block(matrix, i, j):
    return np.split(np.split(matrix, q)[i], q, axis=1)[j]


for i, j in np.ndindex(q, q):
    in_order = sum(block(a, i, k) @ block(b, k, j) for k in range(q))
    turned = sum(block(a, i, k % q) @ block(b, k % q, j) for k in range(i + j, i + j + q))
    np.testing.assert_allclose(in_order, block(a @ b, i, j), rtol=1e-4)
    np.testing.assert_allclose(turned, block(a @ b, i, j), rtol=1e-4)

# %% [markdown]
# The sum may begin anywhere. In **SUMMA** all devices take the inner number k at the same time: the
# owners of these blocks send them to all devices of their row or column. That is yours to write. In
# **Cannon's algorithm** device (i, j) begins with number i + j. Then all devices of a row need
# different blocks, and pass them on to a neighbour, as in a ring.

# %%
show(tensor_nd.cannon_matmul)

# %% [markdown]
# Two permutes bring the blocks to their first places; after that they move by one place at a time.
# A device holds one block of each matrix at a time, but sends q of each: one more than for a
# gather.


# %%
def on_mesh(function, mesh, takes, gives):
    takes, gives = tuple(map(spec, takes)), jax.tree.map(spec, gives)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


def sent(lowered):
    return sum(c.total_wire_bytes for c in read_module(lowered.compiler_ir("stablehlo")))


x, w, y = "m_tpx k_tpy", "k_tpx n_tpy", "m_tpx n_tpy"
cannon = partial(tensor_nd.cannon_matmul, rows="tpx", cols="tpy")
lowered = on_mesh(cannon, make_mesh("tpx=2,tpy=2"), (x, w), y).lower(a, b)
np.testing.assert_allclose(lowered.compile()(a, b), a @ b, rtol=1e-4)
assert sent(lowered) == (4 * a.size + 4 * b.size) / 2  # X/q and W/q

# %% [markdown]
# In 3D the rows of x are split over axes x and y, and those of the result over x and z. The second
# product of an MLP exchanges y and z, so its result has the layout of x again. The product is yours
# to write.

# %%
show(tensor_nd.mlp_3d)

# %% [markdown]
# ## Measure
#
# The MLP and its gradient on up to 8 devices, in all four ways. The results equal those of one
# device.

# %%
on_cube = "tpx=2,tpy=2,tpz=2"
square = {"rows": "tpx", "cols": "tpy"}
deep = {**square, "depth": "tpz"}
cube = {"x_axis": "tpx", "y_axis": "tpy", "z_axis": "tpz"}
blocks = "d_tpx f_tpy", "f_tpx d_tpy"
flat = "m_tpx_tpy d_tpz", "d_tpz f_tpy_tpx", "f_tpy d_tpz_tpx"


def one_dim(x, w_up, w_down):
    return tensor.parallel_mlp(x[None], w_up, w_down, axis="tp")[0]


ways = {  # the MLP, its mesh, layouts of x (and of the result), of w_up, of w_down
    "1D": (one_dim, "tp=8", "m d", "d f_tp", "f_tp d"),
    "2D": (partial(tensor_nd.mlp_2d, **square), "tpx=2,tpy=2", "m_tpx d_tpy", *blocks),
    "2.5D": (partial(tensor_nd.mlp_2_5d, **deep), on_cube, "m_tpz_tpx d_tpy", *blocks),
    "3D": (partial(tensor_nd.mlp_3d, **cube), on_cube, *flat),
}


def with_gradient(function):
    def both(*args):  # the last one is the gradient of the result
        y, pull = jax.vjp(function, *args[:-1])
        return y, *pull(args[-1])

    return both


def on_one(*arrays):
    return sum(array.addressable_shards[0].data.nbytes for array in arrays)


shapes = (tokens, d), (d, 4 * d), (4 * d, d), (tokens, d)
full = [jnp.asarray(rng.standard_normal(shape) / 4, "float32") for shape in shapes]
expected = jax.jit(with_gradient(lambda x, up, down: nn.gelu(x @ up) @ down))(*full)
measured = {}
for name, (mlp, sizes, x, *weights) in ways.items():
    mesh, takes = make_mesh(sizes), (x, *weights, x)
    args = jax.device_put(full, [NamedSharding(mesh, spec(layout)) for layout in takes])
    forward = sent(on_mesh(mlp, mesh, takes[:3], x).lower(*args[:3]))
    lowered = on_mesh(with_gradient(mlp), mesh, takes, (x, x, *weights)).lower(*args)
    results = lowered.compile()(*args)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    held = on_one(*args[1:3]), on_one(args[0], results[0])
    measured[name] = mesh.size, *held, forward, sent(lowered) - forward
table("Measured", columns, [(name, *row) for name, row in measured.items()])

# %% [markdown]
# ## Compare
#
# What a device holds, and what it sends, is as predicted, to the byte. In 2.5D and 3D a device
# holds 1/8 of x and y, and in 1D all of them. That is the point; fewer bytes are sent only in some
# cases.

# %%
assert measured == predicted

# %% [markdown]
# **64 devices and a real MLP**, d = 8192 and f = 4d, in bf16. Counting needs no such mesh: a
# program is traced for shapes, and for an abstract mesh without devices.

# %%
d = 8192
shapes = (16384, d), (d, 4 * d), (4 * d, d), (16384, d)
args = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes]
large = all_splits(n=64, q=8, deep=4, depth=4, cube=4)
sizes = {"1D": {"tp": 64}, "2D": dict.fromkeys(("tpx", "tpy"), 8)}
sizes["2.5D"] = sizes["3D"] = dict.fromkeys(("tpx", "tpy", "tpz"), 4)
for name, (mlp, _, x, *weights) in ways.items():
    names, numbers = zip(*sizes[name].items(), strict=True)
    mesh = AbstractMesh(numbers, names, axis_types=(AxisType.Auto,) * len(names))
    run = on_mesh(with_gradient(mlp), mesh, (x, *weights, x), (x, x, *weights))
    lowered = run.trace(*args).lower(lowering_platforms=("cpu",))
    assert sent(lowered) == sum(predict(large[name], 16384, d, 2)[3:])
gigabytes = {name: [] for name in large}
for (name, splits), k in itertools.product(large.items(), range(33)):
    gigabytes[name].append(sum(predict(splits, 1024 * k, d, 2)[3:]) / 1e9)
token_counts = range(0, 33 * 1024, 1024)
curves = Curves("What a device sends in all", "tokens", "GB", token_counts, gigabytes)
draw("13_bytes", curves)
for k, (in_1d, in_3d) in enumerate(zip(gigabytes["1D"], gigabytes["3D"], strict=True)):
    assert np.sign(in_1d - in_3d) == np.sign(1024 * k - d // 4)

# %% [markdown]
# 1D sends only x, and with few tokens x is small. All others also send weights. Here 3D sends less
# than 1D if there are more than d/4 tokens.
#
# **Published figures.** Colossal-AI gives these for one product and its gradient, with matrices of
# size 1. For 2D and 2.5D they are what the q devices of a row send together, without the all-reduce
# over depth. For 3D it counts one kept block of x and of w; but what is sent only once has to be
# kept, and that is q blocks of each, as in Cannon's algorithm. Our SUMMA keeps only its own blocks,
# and gathers the others again. With `jax.checkpoint`, 3D can do so too, and then sends more.

# %%
unit = cost.Product(1, 1, 1)
costs = {name: splits[0](unit) for name, splits in large.items()}
costs["2D, Cannon"] = cost.split_cannon(unit, 8)
figures = {"1D": 2 * 63 / 64, "2D": 6 * 7 / 8, "2.5D": 3 * 3 * 5 / (4 * 4), "3D": 6 * 3 / 4**3}
rows = [(k, each.kept, each.sent, figures.get(k, "")) for k, each in costs.items()]
table("One product on 64 devices", ("", "kept of x and w", "sent", "published"), rows)
over_depth = 2 * 3 / 4 / 4**2  # of a block of w, on 4 devices
assert (costs["1D"].sent, costs["3D"].sent) == (figures["1D"], figures["3D"])
assert 8 * costs["2D"].sent == figures["2D"]
assert 4 * (costs["2.5D"].sent - over_depth) == figures["2.5D"]

# %% [markdown]
# **You have met most of this.** 2.5D is 2D with data parallelism: depth is dp. And 3D with z of
# size 1 is FSDP (lesson 10) with sequence parallelism (lesson 12): the weights are gathered over x;
# x is gathered over y before the first product, and the result is scattered over y at the end.

# %%
run = on_mesh(ways["3D"][0], make_mesh("tpx=2,tpy=4,tpz=1"), flat, flat[0])
found = read_module(run.lower(*full[:3]).compiler_ir("stablehlo"))
rows = [(c.kind, *c.axes, c.total_wire_bytes) for c in found]
table("3D on tpx=2,tpy=4,tpz=1, forward", ("", "axis", "bytes"), rows)
of_x, of_w = 3 * full[0].nbytes // 8, full[1].nbytes // 8
assert [row[2] for row in rows] == [of_x, of_w, of_w, of_x]

# %% [markdown]
# ## On real hardware
#
# - **Links.** All this must go over fast links. A torus of TPUs has two or three directions for
#   it; a node of GPUs has one fast level, and few devices on it.
# - **Messages** are more numerous and smaller: SUMMA waits in 2q rounds for each product. A CPU
#   cannot show that, nor that Cannon's permutes continue while blocks are multiplied.
# - **Products** become small in all three dims, and small products use a chip badly.
#
# So 1D with sequence parallelism inside a node is common, with FSDP or data parallelism between
# nodes. To serve models on many TPUs, weights are split in 2D (Pope et al.).
#
# ## Exercises

# %%
exercises("13")

# %% [markdown]
# ## Sources
#
# Cannon 1969, *A cellular computer to implement the Kalman filter algorithm*. Agarwal et al. 1995,
# *A three-dimensional approach to parallel matrix multiplication*. van de Geijn and Watts 1997,
# *SUMMA*. Solomonik and Demmel 2011, *Communication-optimal parallel 2.5D matrix multiplication
# and LU factorization algorithms*. Xu et al. 2021, *An efficient 2D method for training super-large
# deep learning models*. Wang et al. 2022, *Tesseract*. Bian et al. 2021, *Maximizing parallelism in
# distributed training for huge neural networks*. Pope et al. 2022, *Efficiently scaling transformer
# inference*.
#
# | here | Colossal-AI | others |
# |---|---|---|
# | 1D | `mode="1d"` | Megatron: `--tensor-model-parallel-size`; PyTorch: `parallelize_module` |
# | 2D, SUMMA | `mode="2d"`, `Linear2D` | Optimus |
# | 2.5D | `mode="2.5d"`, `Linear2p5D` | Tesseract |
# | 3D | `mode="3d"`, `Linear3D` | |
