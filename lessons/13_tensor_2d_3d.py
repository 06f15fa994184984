# %% [markdown]
# # Lesson 13: tensor parallelism in two and three dimensions
#
# The tensor parallelism of lessons 11 and 12 splits each matrix of weights over n devices. In
# attention and in the MLP every device needs all of x: lesson 11 sums the result by an all-reduce,
# and lesson 12 gathers x first, and scatters the sum at the end. Either way a device sends nearly
# 2X bytes forward, where X is the bytes of x. With more devices each multiplies less, but sends no
# less.
#
# This lesson splits x there as well. All three matrices of a product y = x @ w are cut into
# *blocks*, and the devices form a square or a cube. No device ever holds all of a matrix, and the
# more devices there are, the less each sends. At the end we ask whether that pays on a real
# machine.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxpar import nn
from jaxpar.cost import tensor as cost
from jaxpar.cost.hardware import find_cluster
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import spec
from jaxpar.parallel import tensor, tensor_nd

rng = np.random.default_rng(0)

# %% [markdown]
# ## The idea in one picture
#
# Nine devices, a to i, form a square. Each holds one block of x, one block of w, and one block of
# y. Block f of y is a sum of three products: the blocks of x in f's row times the blocks of w in
# f's column. These cells are coloured, and have two letters in a terminal.

# %% tags=["fold"]
letters, owners = np.array(list("abcdefghi")).reshape(3, 3), np.arange(9).reshape(3, 3)
in_row, in_column = owners // 3 == 1, owners % 3 == 2
needed = [np.where(mask, owners, NOBODY) for mask in (in_row, in_column, in_row & in_column)]
moment = panel("What device f needs, and makes", [letters] * 3, needed, names=["x", "w", "y"])
draw("13_blocks", Panels("A product in blocks", [moment]))

# %% [markdown]
# Write q for the side of a square or a cube, and x_il for the block of x in row i and column l.
# Three ideas go by the names of their dimensions:
#
# - **2D**: `q*q` devices, with a block of each matrix, as above. Device (i, j) needs the q blocks
#   x_il of its row and the q blocks w_lj of its column.
# - **2.5D**: several such squares, `depth` of them. Each has its own rows of x, and all of w.
# - **3D**: a cube of `q*q*q` devices, each of which holds `1/q^3` of every matrix. Device (i, j, l)
#   gathers x_il and w_lj, each from the q devices that hold parts of it, and computes a single
#   product. The devices along l then add up their products, and each keeps `1/q` of the sum.
#
# | | for matrices | for transformers |
# |---|---|---|
# | 2D | Cannon 1969; SUMMA: van de Geijn and Watts 1997 | Optimus: Xu et al. 2021 |
# | 2.5D | Solomonik and Demmel 2011 | Tesseract: Wang et al. 2022 |
# | 3D | Agarwal et al. 1995 | Bian et al. 2021 |
#
# Our 2.5D is Tesseract's. In the original of Solomonik and Demmel each square holds copies of both
# matrices and computes a part of each sum, and the parts are added up over the squares: it spends
# memory to avoid communication. Tesseract splits x over the squares, and only w is copied.
#
# The next picture shows a cube of 8 devices, a to h. A cell is a device with the product that it
# computes.

# %% tags=["fold"]
layers = []
numbers = np.arange(8).reshape(2, 2, 2)  # of device (i, j, l)
for number in range(2):
    layers.append([[f"x{i}{number} w{number}{j}" for j in range(2)] for i in range(2)])
sums = [[f"y{i}{j}" for j in range(2)] for i in range(2)]
names = ["devices with l = 0", "devices with l = 1", "their sum"]
whose = [numbers[:, :, 0], numbers[:, :, 1], NOBODY]
moment = panel("Device (i, j, l) multiplies x_il and w_lj", [*layers, sums], whose, names=names)
draw("13_cube", Panels("A product on a cube of 2 x 2 x 2 devices", [moment]))

# %% [markdown]
# ## Predict
#
# An MLP is two products, `gelu(x @ w_up) @ w_down`. Take 128 tokens, d = 32 and f = 4d = 128, in
# float32. So x is `[128, 32]`, w_up is `[32, 128]`, and the hidden h is `[128, 128]`. We run it on
# 8 devices: in 1D as in lesson 11, with tp=8; in 2.5D as two squares of 2 x 2; and in 3D as a cube
# of 2 x 2 x 2. A device does not send its own block to itself.

# %%
held_deep = ask("Bytes that a device holds of the two matrices of weights, in 2.5D")
sent_1d = ask("Bytes that a device sends in the forward pass, in 1D")
sent_deep = ask("Bytes that a device sends in the forward pass, in 2.5D")
sent_cube = ask("Bytes that a device sends in the forward pass, in 3D")

# %% [markdown]
# One more, for the MLP of a real model with d = 8192 and f = 4d, on 64 devices, forward and
# backward together. 1D sends only x, and its gradient. 3D sends blocks of weights too. So with few
# tokens 1D sends less.

# %%
crossing = ask("Tokens up to which tp=64 sends no more than a cube of 4 x 4 x 4 devices", "count")

# %% [markdown]
# ## Implement
#
# ### A square, with loops
#
# What is the sum that device (i, j) computes? Here it is in numpy, for 3 x 3 devices. (The code
# writes k for l.)

# %%
q = 3
a, b = rng.standard_normal((2, 6, 6)).astype("float32")


def block(matrix, i, j):
    size = len(matrix) // q
    return matrix[i * size : (i + 1) * size, j * size : (j + 1) * size]


for i in range(q):
    for j in range(q):
        in_order = sum(block(a, i, k) @ block(b, k, j) for k in range(q))
        turned = 0
        for k in range(i + j, i + j + q):
            turned = turned + block(a, i, k % q) @ block(b, k % q, j)
        np.testing.assert_allclose(in_order, block(a @ b, i, j), rtol=1e-4)
        np.testing.assert_allclose(turned, block(a @ b, i, j), rtol=1e-4)

# %% [markdown]
# The sum may begin anywhere. In **SUMMA** all devices take the same k at the same time: the owners
# of the blocks x_ik send them to all devices of their row, and the owners of w_kj to all of their
# column. That is yours to write. In **Cannon's algorithm** device (i, j) begins with k = i + j.
# Then the devices of a row need different blocks at any time, and pass them on to a neighbour, as
# in a ring.
#
# ### Cannon's algorithm
#
# Below, a cell is a device, with the block that it holds. The letter stands for the block's k. Row
# i of x first moves i places to the left, and column j of w moves j places up. From then on each
# device has the same letter twice, and can multiply. In each round all blocks move by one place.

# %% tags=["fold"]
moments = []
places = [(i, j) for i in range(q) for j in range(q)]
titles = ["at the start", "in the first places: the first product"]
titles += ["moved by one: the second product", "moved by one again: the third product"]
for number, title in enumerate(titles):
    held_x, held_w = np.empty((2, q, q), object)
    whose_x, whose_w = np.empty((2, q, q), int)
    for i, j in places:
        k_x = k_w = (i + j + number - 1) % q
        if number == 0:
            k_x, k_w = j, i
        held_x[i, j], whose_x[i, j] = f"x{i}{k_x}", k_x
        held_w[i, j], whose_w[i, j] = f"w{k_w}{j}", k_w
    moments.append(panel(title, [held_x, held_w], [whose_x, whose_w], names=["x", "w"]))
draw("13_cannon", Panels("Cannon's algorithm on 3 x 3 devices", moments))

# %%
show(tensor_nd.cannon_matmul)

# %% [markdown]
# A device holds one block of each matrix at a time, and sends at most q of each: one more than by a
# gather, because of the move to the first places. A layout such as `"m_tpx k_tpy"` says that rows m
# are split over axis `tpx` and columns k over `tpy`.


# %%
def on_mesh(function, mesh, takes, gives):
    in_specs = tuple(spec(layout) for layout in takes)
    out_specs = jax.tree.map(spec, gives)  # of one layout, or of several
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


x, w, y = "m_tpx k_tpy", "k_tpx n_tpy", "m_tpx n_tpy"
cannon = partial(tensor_nd.cannon_matmul, rows="tpx", cols="tpy")
run = on_mesh(cannon, make_mesh("tpx=2,tpy=2"), (x, w), y)
np.testing.assert_allclose(jax.device_get(run(a, b)), a @ b, rtol=1e-4)
for kind, one in sent_by(inspect(run, a, b)).items():
    print(f"Matrices of {a.nbytes} bytes on 2 x 2 devices, {kind}: {one:.0f} bytes sent")
print()

# %% [markdown]
# ### A cube
#
# The axes of a cube are tpx, tpy and tpz: device (i, j, l) has the indices i, j and l on them. The
# matrix x has the layout `"m_tpx_tpy k_tpz"`, so its rows are split over two axes, first tpx, then
# tpy. A device gathers rows of x over tpy, and columns of w over tpx. It multiplies once, and the
# products are summed and scattered over tpz. So the rows of the result are split over tpx and tpz,
# where those of x were split over tpx and tpy. The second product of an MLP exchanges the roles of
# tpy and tpz, and its result has the layout of x again. (The docstring below writes x, y and z for
# the three axes.) The product itself, `matmul_3d`, is yours to write.

# %%
show(tensor_nd.mlp_3d)

# %% [markdown]
# ## Measure
#
# ### The MLP on 8 devices
#
# Here is the MLP in four ways: its function, its mesh, and the layouts of x (and of the result), of
# w_up and of w_down. The square of 2D has only four devices.

# %%
on_cube = "tpx=2,tpy=2,tpz=2"
blocks = ("d_tpx f_tpy", "f_tpx d_tpy")
cube_layouts = ("m_tpx_tpy d_tpz", "d_tpz f_tpy_tpx", "f_tpy d_tpz_tpx")


def one_dim(x, w_up, w_down):
    return tensor.parallel_mlp(x[None], w_up, w_down, axis="tp")[0]  # it wants a batch


two_dims = partial(tensor_nd.mlp_2d, rows="tpx", cols="tpy")
two_and_a_half = partial(tensor_nd.mlp_2_5d, rows="tpx", cols="tpy", depth="tpz")
three_dims = partial(tensor_nd.mlp_3d, x_axis="tpx", y_axis="tpy", z_axis="tpz")
ways = {
    "1D": (one_dim, "tp=8", "m d", "d f_tp", "f_tp d"),
    "2D": (two_dims, "tpx=2,tpy=2", "m_tpx d_tpy", *blocks),
    "2.5D": (two_and_a_half, on_cube, "m_tpz_tpx d_tpy", *blocks),
    "3D": (three_dims, on_cube, *cube_layouts),
}

# %% [markdown]
# For each we run the MLP together with its gradient, compare it with one device, and ask the
# inspector what the forward pass sends, and what both send.


# %%
def with_gradient(function):
    def both(x, w_up, w_down, gradient_of_y):
        y, pull = jax.vjp(function, x, w_up, w_down)
        return y, *pull(gradient_of_y)

    return both


def bytes_on_one(*arrays):
    return sum(array.addressable_shards[0].data.nbytes for array in arrays)


tokens, d = 128, 32
shapes = ((tokens, d), (d, 4 * d), (4 * d, d), (tokens, d))
full = [jnp.asarray(rng.standard_normal(shape) / 4, "float32") for shape in shapes]
on_one_device = jax.jit(with_gradient(lambda x, up, down: nn.gelu(x @ up) @ down))
expected = jax.device_get(on_one_device(*full))

# %%
measured, forward_of = {}, {}
for name, (mlp, sizes, x, *weights) in ways.items():
    mesh, takes = make_mesh(sizes), (x, *weights, x)
    args = jax.device_put(full, [NamedSharding(mesh, spec(layout)) for layout in takes])
    forward_of[name] = sent_by(inspect(on_mesh(mlp, mesh, takes[:3], x), *args[:3]))
    run = on_mesh(with_gradient(mlp), mesh, takes, (x, x, *weights))
    in_all = sum(sent_by(inspect(run, *args)).values())
    results = run(*args)
    for one, other in zip(jax.device_get(results), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    held = bytes_on_one(*args[1:3]), bytes_on_one(args[0], results[0])
    forward = sum(forward_of[name].values())
    measured[name] = (mesh.size, *held, forward, in_all - forward)

# %% tags=["fold"]
columns = ("", "devices", "weights", "x and y", "sent forward", "backward")
table("Bytes of a device", columns, [(name, *row) for name, row in measured.items()])

# %% [markdown]
# ### A real MLP on 64 devices
#
# Counting bytes needs no devices: JAX traces a program for shapes, and for an *abstract mesh*,
# which has sizes only. `read_module` finds the collectives in what was traced. Here is the MLP of d
# = 8192 in bf16, for 16,384 tokens.


# %%
def sent_on(sizes, way, tokens, d):
    """Bytes sent forward and backward, on an abstract mesh of these sizes."""
    mlp, _, x, *weights = ways[way]
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), (AxisType.Auto,) * len(sizes))
    shapes = ((tokens, d), (d, 4 * d), (4 * d, d), (tokens, d))
    args = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes]
    run = on_mesh(with_gradient(mlp), mesh, (x, *weights, x), (x, x, *weights))
    lowered = run.trace(*args).lower(lowering_platforms=("cpu",))
    return sum(c.total_wire_bytes for c in read_module(lowered.compiler_ir("stablehlo")))


on_64 = {
    "1D": {"tp": 64},
    "2D": {"tpx": 8, "tpy": 8},
    "2.5D": {"tpx": 4, "tpy": 4, "tpz": 4},
    "3D": {"tpx": 4, "tpy": 4, "tpz": 4},
}
counted = {way: sent_on(sizes, way, 16_384, 8192) for way, sizes in on_64.items()}
table("Sent in all, MB", ("", "MB"), [(way, round(n / 1e6)) for way, n in counted.items()])

# %% [markdown]
# ### You have met most of this
#
# 2.5D is 2D with data parallelism: depth is dp. And a "cube" whose axis tpz has size 1 is FSDP
# (lesson 10) with sequence parallelism (lesson 12): the weights are gathered over tpx, as in FSDP;
# x is gathered over tpy before the first product, and the result is scattered over tpy at the end.

# %%
run = on_mesh(three_dims, make_mesh("tpx=2,tpy=4,tpz=1"), cube_layouts, cube_layouts[0])
found = inspect(run, *full[:3]).collectives
rows = [(one.kind, *one.axes, one.total_wire_bytes) for one in found]
table("3D on tpx=2,tpy=4,tpz=1, forward", ("", "axis", "bytes sent"), rows)

# %% [markdown]
# ## Compare
#
# The cost model has a formula for each split. With it we search for the number of tokens up to
# which 1D sends no more than 3D.


# %%
def splits_of(way, n, q, depth):
    """The formulas for the first and for the second matrix of an MLP."""
    if way == "1D":
        return partial(cost.split_columns, n=n), partial(cost.split_rows, n=n)
    both = {
        "2D": partial(cost.split_2d, q=q),
        "2.5D": partial(cost.split_2_5d, q=q, depth=depth),
        "3D": partial(cost.split_3d, q=q),
    }
    return both[way], both[way]


def predict(way, tokens, d, item_bytes, *, n, q, depth):
    """Devices; bytes of weights, of x and y; bytes sent forward, and backward."""
    x, w, h = (item_bytes * size for size in (tokens * d, 4 * d * d, tokens * 4 * d))
    first, second = splits_of(way, n, q, depth)
    up, down = first(cost.Product(x, w, h)), second(cost.Product(h, w, x))
    both = up.forward + down.forward, up.backward + down.backward
    return up.devices, up.w + down.w, up.x + down.y, *both


# %%
def on_64_devices(way, tokens):
    q = 8 if way == "2D" else 4
    return sum(predict(way, tokens, 8192, 2, n=64, q=q, depth=4)[3:])


few_enough = []
for count in range(16, 32_769, 16):
    if on_64_devices("1D", count) <= on_64_devices("3D", count):
        few_enough.append(count)

# %%
held_deep.compare(measured["2.5D"][1], {"1/4 of w_up": 4096, "1/4 of w_down": 4096})
sent_1d.compare(measured["1D"][3], forward_of["1D"])
sent_deep.compare(measured["2.5D"][3], forward_of["2.5D"])
sent_cube.compare(measured["3D"][3], forward_of["3D"])
crossing.compare(few_enough[-1])

# %% tags=["fold"]
names = ("1D: tp=64", "2D: 8 x 8", "2.5D: 4 x 4, depth 4", "3D: 4 x 4 x 4")
counts = range(0, 33 * 1024, 1024)
gigabytes = {}
for name, way in zip(names, ways, strict=True):
    gigabytes[name] = [on_64_devices(way, t) / 1e9 for t in counts]
title = "What each of 64 devices sends for an MLP"
draw("13_bytes", Curves(title, "tokens", "GB, forward and backward", counts, gigabytes))

# %% [markdown]
# For each product, a device of 2D and 2.5D sends `(q-1)/q^2` of its square's x and w forward. The
# backward pass has two products, for the two gradients, and each gathers one matrix again and sums
# another: twice the bytes. In 2.5D there is also an all-reduce of the gradients of the weights over
# depth, as in data parallelism. 3D sends `(q-1)/q^3` of x, of w and of y forward, and the same
# backward: since the gathered blocks are kept, none is gathered again.
#
# In the picture 1D begins at 0, since it sends no weights, and rises most steeply. It crosses 3D at
# `4d/(q*q + q - 4)` tokens: d/4 for q = 4, but 2d for q = 2.

# %% tags=["fold"]
for name, row in measured.items():
    assert row == predict(name, tokens, d, 4, n=8, q=2, depth=2)
for way in ways:
    assert counted[way] == on_64_devices(way, 16_384)
assert few_enough == list(range(16, 2049, 16)) and 2048 == 8192 / 4 == 4 * 8192 / (16 + 4 - 4)
for t in (63, 64, 65):  # q = 2, d = 32
    sums = [sum(predict(way, t, d, 4, n=8, q=2, depth=2)[3:]) for way in ("3D", "1D")]
    assert np.sign(sums[0] - sums[1]) == np.sign(4 * d / (4 + 2 - 4) - t)
of_x, of_w = 3 * full[0].nbytes // 8, full[1].nbytes // 8
assert [row[2] for row in rows] == [of_x, of_w, of_w, of_x]

# %% [markdown]
# ### Published figures
#
# Colossal-AI's documentation has these for one product and its gradient, with matrices of size 1.

# %% tags=["fold"]
unit = cost.Product(1, 1, 1)
costs = {way: splits_of(way, 64, 8 if way == "2D" else 4, 4)[0](unit) for way in ways}
costs["2D, Cannon"] = cost.split_cannon(unit, 8)
figures = {"1D": 2 * 63 / 64, "2D": 6 * 7 / 8, "2.5D": 3 * 3 * 5 / (4 * 4), "3D": 6 * 3 / 4**3}
rows = [(k, each.kept, each.sent, figures.get(k, "-")) for k, each in costs.items()]
table("One product on 64 devices", ("", "kept of x and w", "sent", "published"), rows)
over_depth = 2 * 3 / 4 / 4**2  # of a block of w, on 4 devices
assert (costs["1D"].sent, costs["3D"].sent) == (figures["1D"], figures["3D"])
assert 8 * costs["2D"].sent == figures["2D"]
assert 4 * (costs["2.5D"].sent - over_depth) == figures["2.5D"]

# %% [markdown]
# Its figures for 2D and 2.5D are what the q devices of a row send together, without the all-reduce
# of w's gradient over depth. Less sent can mean more kept: 3D and Cannon keep q blocks of each
# matrix from the forward pass, so that they need not send them again. Our SUMMA keeps only its own
# blocks, and gathers again.
#
# ## On real hardware
#
# ### Is the third axis worth it?
#
# In the forward pass of an MLP a cube of sizes n_x, n_y, n_z sends
# `2*((n_y-1)*X + (n_z-1)*H + (n_x-1)*W)/n` bytes, where H is the bytes of h, and W those of one
# matrix. Without the third axis, FSDP over n_x and tensor parallelism over `n_y*n_z` devices send
# `2*((n_y*n_z-1)*X + (n_x-1)*W)/n`. With n_y = n_z = q the cube sends less if
# `(q-1)*(X+H) < (q*q-1)*X`. Divided by (q-1)X, and with H/X = f/d, that is **q > f/d**. GPT-3 has
# f/d = 4. (A gated MLP sums two products over tpz before the gate, so it sends 3H in place of 2H,
# and the condition is q > 1.5 f/d: for Llama 3 8B q > 5.25.) So with f/d = 4 a cube of 64 devices
# is no better than FSDP 4 with tp=16, and a cube of 8 is worse:

# %%
third = []
for side in (2, 4, 8):
    with_third = sent_on({"tpx": side, "tpy": side, "tpz": side}, "3D", 16_384, 8192)
    without = sent_on({"tpx": side, "tpy": side**2, "tpz": 1}, "3D", 16_384, 8192)
    third.append((side**3, round(with_third / 1e6), round(without / 1e6)))

# %% tags=["fold"]
headers = ("devices", "cube", "FSDP q, tensor q*q")
table("Sent forward and backward for 16,384 tokens, MB", headers, third)
assert third[0][1] > third[0][2] and third[1][1] == third[1][2] and third[2][1] < third[2][2]

# %% [markdown]
# Pope et al. (2022, section 3.2.2) find the same for inference: over n chips, weights that are
# split in two dims send less than weights split in one if the square root of n is larger than f/d.
# Here n is the `q*q` chips of tpy and tpz.
#
# ### A node of GPUs, and a torus of TPUs
#
# In a node of 8 GPUs all links are equal, through a switch, so only the bytes count. There q is 2,
# and a cube sends more. Nor is there much to gain: an MLP in 1D takes `(n-1)*F/(f*W)` as long to
# send as to multiply, at F FLOP/s and W bytes/s. With n = 8, f = 32,768 and an H100's 400 TFLOP/s
# (lesson 11) and 450 GB/s that is 19%.
#
# In a torus of TPUs each axis has links of its own. Here is the forward pass of the MLP with d =
# 8192 on 4 x 4 x 4 chips of a TPU v5p: 459 TFLOP/s, and 200 GB/s for each axis, since a chip sends
# 100 GB/s to each of its two neighbours there. How many tokens must a chip have, so that sending
# takes no longer than multiplying? That depends on whether the axes send one after the other or all
# at once.

# %%
v5p = find_cluster("tpu-v5p")
C, W = v5p.device.peak_flops["bf16"], 2 * v5p.inside.bytes_per_second
d, f, n = 8192, 4 * 8192, 64
layouts = {  # sizes of x, y and z; how many axes of the torus each has
    "1D: tensor 64": ((1, 64, 1), (0, 3, 0)),
    "FSDP 64": ((64, 1, 1), (3, 0, 0)),
    "FSDP 16, tensor 4": ((16, 4, 1), (2, 1, 0)),
    "cube 4 x 4 x 4": ((4, 4, 4), (1, 1, 1)),
}


def seconds(sizes, axes, tokens):
    """Seconds that each of x, y and z sends; and seconds of products."""
    n_x, n_y, n_z = sizes
    elements = ((n_x - 1) * d * f, (n_y - 1) * tokens * d, (n_z - 1) * tokens * f)
    pairs = zip(elements, axes, strict=True)
    sends = [4 * size / n / (count * W) for size, count in pairs if count]
    return sends, 4 * tokens * d * f / (n * C)


# %% tags=["fold"]
needed = []
for name, (sizes, axes) in layouts.items():
    row = [name]
    for combine in (sum, max):
        enough = 0
        for each in range(1, 10_001):
            sends, multiplies = seconds(sizes, axes, n * each)
            if combine(sends) <= multiplies:
                enough = each
                break
        row.append(f"{enough:,}" if enough else "never")
    needed.append(tuple(row))
headers = ("", "one axis after the other", "all axes at once")
table("Tokens of a chip from which on sending does not limit it", headers, needed)
assert [row[1:] for row in needed] == [
    ("never", "never"), ("754", "754"), ("341", "269"), ("never", "108")
]  # fmt: skip
in_node = 7 * 400e12 / (f * find_cluster("h100").inside.bytes_per_second)
assert round(100 * in_node) == 19
a = C / W
assert [round(each) for each in (a, a / 3, 4 * a * a / (2 * f))] == [2295, 765, 321]

# %% [markdown]
# With 754 tokens on each chip FSDP alone is enough, and with about 300 FSDP with tensor parallelism
# on one axis. 1D over 64 chips is limited by its links whatever the tokens. The cube goes down to
# 108, but only if all three axes are busy while the chip multiplies. Large runs have more: Llama 3
# 405B had 16 million tokens in a batch on 16,384 GPUs (table 4 of its paper), about 1,000 each.
#
# - **In training it is rare** for that reason: FSDP or data parallelism between nodes, with tensor
#   and sequence parallelism inside, uses two of the three axes, and is simpler.
# - **Inference** has few tokens at a time. Pope et al. split the weights of PaLM 540B in two dims
#   on 64 TPU v4.
# - **Messages** are more and smaller: SUMMA has 2q broadcasts for each product, and each waits for
#   its latency.
# - **Blocks** are small in all three dims, and small products use a chip badly.
#
# ## Exercises

# %%
exercises("13")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B has 70.6 billion parameters, and with gradients and Adam each takes 16 bytes. What
#    does each of 64 devices hold in 1D, in 2D (8 x 8), in 2.5D (4 x 4, depth 4) and in 3D? Which of
#    these leave room on a GPU of 80 GB?
#
# <details><summary>Answer</summary>
#
# In all they take 1,130 GB. 1D, 2D and 3D hold 1/64: 17.6 GB. 2.5D replicates the weights over
# depth, so it holds 1/16: 70.6 GB, which leaves 9 GB for activations. ZeRO over depth would mend
# that, as it does for data parallelism (lesson 09).
#
# </details>
#
# 2. GPT-3 has d = 12,288 and f = 49,152. On 512 devices, with 65,536 tokens in 16 bits, what does a
#    device send for an MLP's forward pass on a cube of 8 x 8 x 8? And with FSDP 8 and tp=64?
#
# <details><summary>Answer</summary>
#
# X is 2 * 65,536 * 12,288 bytes = 1.61 GB, H is 6.44 GB, and W is 1.21 GB. Cube: 2 * 7 * (1.61 +
# 6.44 + 1.21) / 512 = 0.25 GB. FSDP with tensor parallelism: 2 * (63 * 1.61 + 7 * 1.21) / 512 =
# 0.43 GB. q = 8 is larger than f/d = 4, so the cube sends less.
#
# </details>
#
# 3. A run has a batch of 1 million tokens, on 16 x 16 x 16 chips of a TPU v5p, for a model with f =
#    32,768. FSDP over three axes needs a/3 tokens on each chip, where a is FLOP/s / bandwidth of an
#    axis. FSDP on two axes with tensor parallelism on one needs at best `4*a*a/(2*f)`. Do the chips
#    have enough tokens for either? If not, what would you change?
#
# <details><summary>Answer</summary>
#
# a = 459e12 / 200e9 = 2,295. The run has 1e6 / 4,096 = 244 tokens on each chip. FSDP needs 765, and
# the mix needs 321: both are limited by sending. Take at most 3,110 chips for the mix, or 1,307 for
# FSDP alone, or a larger batch. A cube might hide what it sends, but its program is much harder.
#
# </details>
#
# ## Sources
#
# Cannon 1969, *A Cellular Computer to Implement the Kalman Filter Algorithm*. Agarwal et al. 1995,
# *A Three-Dimensional Approach to Parallel Matrix Multiplication*. van de Geijn and Watts 1997,
# *SUMMA: Scalable Universal Matrix Multiplication Algorithm*. Solomonik and Demmel 2011,
# *Communication-Optimal Parallel 2.5D Matrix Multiplication and LU Factorization Algorithms*. Xu et
# al. 2021, *An Efficient 2D Method for Training Super-Large Deep Learning Models* (Optimus). Wang
# et al. 2022, *Tesseract: Parallelize the Tensor Parallelism Efficiently*. Bian et al.
# 2021, *Maximizing Parallelism in Distributed Training for Huge Neural Networks*. Pope et al. 2022,
# *Efficiently Scaling Transformer Inference*. Austin et al. 2025, *How to Scale Your Model*
# (jax-ml.github.io/scaling-book), "Training": tokens for each chip, and the mix of FSDP and tensor
# parallelism. Grattafiori et al. 2024, *The Llama 3 Herd of Models*, table 4. Published figures:
# hpcaitech/ColossalAI, `docs/source/en/features`. TPU v5p: docs.cloud.google.com/tpu/docs/v5p.
#
# | here | Colossal-AI | others |
# |---|---|---|
# | 1D | `mode="1d"` | Megatron: `--tensor-model-parallel-size`; PyTorch: `parallelize_module` |
# | 2D, SUMMA | `mode="2d"`, `Linear2D` | Optimus |
# | 2.5D | `mode="2.5d"`, `Linear2p5D` | Tesseract |
# | 3D | `mode="3d"`, `Linear3D` | - |
