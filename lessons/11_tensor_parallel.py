# %% [markdown]
# # Lesson 11: tensor parallelism
#
# Data parallelism and FSDP split the batch, and each device computes entire layers for its
# examples. *Tensor parallelism* splits the layers: a device holds 1/n of every matrix, and
# multiplies by that. So n devices work on the same example at once, and no weight is ever gathered.
# Instead they send activations, in every layer. Megatron-LM found a split that sends few of them.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, varying_axes

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax
from jax.sharding import NamedSharding

from jaxpar import nn
from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, program, stablehlo
from jaxpar.layout import Layout
from jaxpar.model import Settings, Split, init, loss_fn, split_specs
from jaxpar.parallel import tensor
from jaxpar.parallel.data import data_parallel_gradients

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
replicated, columns, rows = P(), P(None, "tp"), P("tp")
rng, mesh = np.random.default_rng(0), make_mesh("tp=8")
random = partial(rng.standard_normal, dtype=np.float32)


def on_devices(f, takes, gives, on=mesh):
    return jax.jit(jax.shard_map(f, mesh=on, in_specs=takes, out_specs=gives))


# %% [markdown]
# ## The idea in one picture
#
# An MLP, `gelu(x @ w_up) @ w_down`, on four devices; x has two positions. The letter says which
# device has a shard. x and y have no letter, because they are replicated.

# %%
x = np.float32([[1, 2], [-1, 1]])
w_up = np.float32([[1, -1, 2, 0], [1, 1, -1, 2]])
w_down = np.float32([[1, 0], [0, 1], [1, 1], [-1, 1]])
hidden = np.asarray(nn.gelu(x @ w_up))
parts = [hidden[:, [i]] @ w_down[[i]] for i in range(4)]
four, names = np.arange(4)[None], ["x", "w_up", "hidden", "w_down"]
arrays = [np.round(a, 1) + 0.0 for a in (x, w_up, hidden, w_down)]
whose = [NOBODY, four, four, four.T]
panels = (
    panel("Columns, then rows", arrays, whose, names=names, columns=2),
    panel("Each device's part of y, a sum", np.round(parts, 1) + 0.0),
    panel("y: one all-reduce", [np.round(sum(parts), 1)], [NOBODY], names="y"),
)
draw("11_mlp", Panels("An MLP by columns and rows", panels))

# %% [markdown]
# Column j of `hidden` depends only on column j of `w_up`, and is multiplied only by row j of
# `w_down`. So a device with both needs nothing from the others until its result is added to theirs.
#
# ## Predict
#
# Your turn, before you read on. Our decoder has layers of attention and MLP, and gets b examples of
# s tokens; an activation has d numbers. Between two layers there are b*s*d numbers: X bytes. One
# device would hold P bytes of parameters.
#
# 1. Which part of the parameters does each of n devices hold? Are any of them replicated?
# 2. How many all-reduces of X does a layer send forward, and how many backward?
# 3. Data parallelism sends 2P(n-1)/n. When does tensor parallelism send less?

# %%
settings = Settings(layers=4, d_model=64, heads=8)
layers, d, b, s = settings.layers, settings.d_model, 8, 32
X, size = 4 * b * s * d, 4 * settings.parameters
norms = 4 * (2 * layers + 1) * d
reduced = partial(wire_bytes, "all_reduce")


def predict(dp, tp):
    held = norms + (size - norms) // tp
    sums = (4 * layers + 2) * reduced(X // dp, tp)  # 2 for the vocabulary
    sums += 3 * reduced(4 * b * s // dp, tp)  # in the loss
    return held, sums, reduced(held + 4, dp)  # of gradients and loss


MESHES = {"dp=8": (8, 1), "tp=8": (1, 8), "dp=2,tp=4": (2, 4)}
predicted = {name: predict(*sizes) for name, sizes in MESHES.items()}
shown = [(name, *numbers) for name, numbers in predicted.items()]
headers = "", "parameters", "sent over tp", "sent over dp"
table(f"Bytes of a device, X = {X:,}, P = {size:,}", headers, shown)

# %% [markdown]
# Each device holds 1/n of every matrix. The scales of norms are replicated, because a norm needs
# all of an activation. A layer sends two all-reduces forward, after attention and after the MLP,
# and two backward. Embedding, head and loss are split over the vocabulary: lesson 12. Answer 3 is
# below.
#
# ## Implement
#
# **Why not rows first?** A device would then have a partial sum of `x @ w_up`. The gelu of a sum is
# not the sum of gelus, so an all-reduce would have to come before it, of 4 times as many numbers.
# Columns twice would need an all-gather of `hidden`. Here is Megatron's MLP: columns, then rows.
# Its last bias is added after the sum.

# %%
of_rows = [x[:, [i]] @ w_up[[i]] for i in range(2)]
error = np.abs(sum(map(nn.gelu, of_rows)) - nn.gelu(sum(of_rows))).max()
print(f"Rows first, without a sum before gelu: wrong by up to {error:.2f}\n")
show(tensor.enter, tensor.column_linear, tensor.row_linear)
show(tensor.parallel_mlp)
x, w_up, w_down = map(random, ((2, 5, 16), (16, 64), (64, 16)))
mlp, takes = partial(tensor.parallel_mlp, axis="tp"), (replicated, columns, rows)
y = on_devices(mlp, takes, replicated)(x, w_up, w_down)
np.testing.assert_allclose(y, nn.gelu(x @ w_up) @ w_down, atol=1e-4)

# %% [markdown]
# **f and g.** The paper has two functions. g, at the end, is an all-reduce forward and nothing
# backward. f, at the start, is nothing forward and an all-reduce backward, because each device
# computes only a partial sum of the gradient with respect to x. JAX has them in its types: `pcast`
# to varying is f, and `psum` is g.
#
# If you leave f out, JAX inserts it at each use of x. The gradient is the same, but each f sends an
# all-reduce of its own. Queries, keys and values are three uses:


# %%
def three_uses(f, x, *weights):
    inside = f(x)
    part = sum((inside @ w).sum() for w in weights)
    y = lax.psum(part, "tp")
    typed[:] = [*map(varying_axes, (x, inside, part, y))]
    return y


def backward(f):  # all-reduces of x's size
    gradient = jax.grad(partial(three_uses, f), argnums=range(4))
    specs = replicated, *[columns] * 3
    lowered = on_devices(gradient, specs, specs).lower(x, *[w_up] * 3)
    sent = stablehlo.read_module(lowered.compiler_ir("stablehlo"))
    count = sum(one.operand_bytes == x.nbytes for one in sent)
    return count, *(", ".join(axes) or "-" for axes in typed)


typed, f = [], partial(tensor.enter, axis="tp")
shown = ("f once", *backward(f)), ("no f", *backward(lambda x: x))
what = "all-reduces backward", "x varies over", "f(x)", "part", "g(part)"
table("Three uses of x", ("", *what), shown)
assert [row[1] for row in shown] == [1, 3]

# %% [markdown]
# **Attention** is split by heads. A head has its own columns of the matrices of queries, keys and
# values, and its own rows of the output matrix, and between these the heads are independent. So it
# is columns, then rows, once more. Many models have fewer heads of keys and values than of queries:
# in *multi-query attention* (MQA) all query heads use the same one, and in *grouped-query
# attention* (GQA) neighbouring query heads use the same one; in *multi-head attention* (MHA) each
# has its own. With fewer kv heads than devices, there is not one for each device: then these two
# matrices are replicated, and a device uses the columns of one head. Below are 8 heads q on 4
# devices, each above the kv head that it uses.

# %%
q, k, v = random((3, 2, 8, 5, 4))  # of each [b, heads, t, h]
alone = [nn.attention(*(y[:, [a]] for y in (q, k, v))) for a in range(8)]
np.testing.assert_allclose(np.hstack(alone), nn.attention(q, k, v), rtol=1e-5)
panels = []
for kind, kv in (("MHA", 8), ("GQA", 4), ("GQA", 2), ("MQA", 1)):
    kv_heads = np.arange(8) * kv // 8  # of each query head
    cells = [f"q{a}" for a in range(8)], [f"k{a}" for a in kv_heads]
    both = np.array(cells), np.stack([np.full(8, NOBODY), kv_heads])
    held = "split" if kv >= 4 else "replicated"
    title = f"{kind}, kv heads: {kv}; their matrices are {held}"
    panels.append(panel(title, *(np.split(a, 4, axis=1) for a in both)))
draw("11_heads", Panels("Who uses which kv head", panels))

# %% [markdown]
# For a replicated matrix, each device computes only a partial sum of the gradient, so these have to
# be summed. JAX does this by itself, as with x; in plain PyTorch you write it. `parallel_swiglu`
# and `parallel_attention` are yours to write.
#
# **Dropout.** Where x is equal on all devices, its mask must also be equal, or the replicas
# diverge. Inside a block, where each device has its own heads or columns, the masks must differ.

# %%
show(tensor.dropout)


def masks(x):
    half = partial(tensor.dropout, x, 0.5, key=jax.random.key(0))
    same = lax.pcast(half(axis=None), "tp", to="varying")
    return jnp.stack([same, half(axis="tp")])[None] > 0


kept = np.asarray(on_devices(masks, replicated, rows)(jnp.ones(1000)))
alike = 100 * np.mean(kept == kept[0], axis=2).T  # [way, device]
same, own = np.round(alike).astype(int).tolist()
shown = ("axis=None, for x", *same), ("axis='tp', inside", *own)
table("Percent of the mask as on device 0", ("", *"01234567"), shown)
assert set(same) == {100} and min(own) > 40 and max(own[1:]) < 60

# %% [markdown]
# ## Measure
#
# The decoder takes `Split("tp")`. `split_specs` returns the partition specs of its parameters;
# those of the layers come from `megatron_specs`, which is for you to write. We compute loss and
# gradient with data parallelism, with tensor parallelism, with both, and with **the compiler**: the
# program of one device, with these specs as shardings, and nothing else.

# %%
like = jax.eval_shape(partial(init, settings), jax.random.key(0))
params = jax.tree.map(lambda leaf: random(leaf.shape) / 8, like)
tokens = rng.integers(0, 256, (b, s + 1), dtype=np.int32)
for_one, split_loss = loss_fn(settings), loss_fn(settings, split=Split("tp"))
THEIRS, losses, shown, reports, measured = "tp=8, compiler", [], [], {}, {}
for name, (dp, tp) in (MESHES | {THEIRS: (1, 8)}).items():
    over = make_mesh({"dp": dp, "tp": tp})
    specs = split_specs(settings, like, axis="tp", n=tp)
    takes, gives = (specs, P("dp")), (replicated, specs)
    sharded = partial(jax.tree.map, partial(NamedSharding, over))
    shardings = {"in_shardings": sharded(takes), "out_shardings": sharded(gives)}
    if name == THEIRS:
        run = jax.jit(jax.value_and_grad(for_one), **shardings)
    else:
        found = partial(data_parallel_gradients, split_loss, axis="dp")
        run = on_devices(found, takes, gives, over)
    given = jax.device_put((params, tokens), sharded(takes))
    lowered = run.lower(*given)
    ready = compiled.compile_program(lowered)
    reports[name] = program.inspect_compiled(lowered, ready)
    losses.append(float(ready.executable(*given)[0]))
    sent, memory = reports[name].wire_bytes_by_axis(), reports[name].memory
    held = memory.arguments_bytes - tokens.nbytes // dp
    measured[name] = held, sent.get(("tp",), 0), sent.get(("dp",), 0)
    shown.append((name, *measured[name], memory.temp_bytes))
table("Measured: bytes of a device", (*headers, "temp"), shown)

# %% [markdown]
# ## Compare
#
# Ours are as predicted, to the byte, and all losses are equal except for rounding. In each layer a
# device sends 8bsd(n-1)/n numbers (Narayanan et al. 2021).


# %%
def in_a_layer(name):  # all-reduces of activations, and what they send
    sent = [c for c in reports[name].collectives if c.times == layers]
    assert {(c.kind, *c.axes) for c in sent} == {("all_reduce", "tp")}
    return len(sent), sum(c.wire_bytes for c in sent)


assert shown[0][-1] < shown[1][-1] and b * s > 3 * d  # temp; answer 3
shown = [(name, *in_a_layer(name)) for name in ("tp=8", THEIRS)]
table("In each layer", ("", "all-reduces", "bytes sent"), shown)
assert shown[0][1:] == (4, 4 * 8 * b * s * d * 7 / 8) and shown[1][1] == 2 + 5
assert measured.pop(THEIRS)[0] == measured["tp=8"][0] and measured == predicted
np.testing.assert_allclose(losses, losses[0], rtol=1e-5)

# %% [markdown]
# The compiler splits as we do, and holds as little. But it leaves f out: queries, keys, values,
# gate and up each send their part of the gradient with respect to x. That makes 5 all-reduces,
# where 2 are enough. This is the compiler for CPUs. XLA for GPUs has a pass that may merge them,
# `AllReduceReassociate`: it replaces a sum of two all-reduces by an all-reduce of the sum.
#
# **Memory.** Tensor parallelism takes more temp here: between attention and MLP, a device has the
# full activations of all b examples. Lesson 12 splits these as well.
#
# **Or data parallelism?** For a layer of 12d^2 parameters it sends 24d^2 (n-1)/n numbers. That is
# more than tensor parallelism sends if a step has fewer than 3d tokens; ours has more. Gradients
# can be sent while others are computed, but the next product in a layer must wait for its sum. So
# tensor parallelism gets the fastest links, and data parallelism the others: `jaxpar train --mesh
# dp=2,tp=4`.
#
# ## On real hardware
#
# Below, the forward pass of a layer of Llama 3 8B (218 M parameters), with 4096 tokens in bf16, on
# H100 in nodes of 8. Products run at 400 TFLOP/s, as Llama 3's did (lesson 19). The sums are two
# all-reduces, at what the links are built for: 450 GB/s for each GPU inside a node, and 8 network
# cards of 50 GB/s for each node. The function is that of lesson 19's table.

# %%
h100, x_bytes = find_cluster("h100"), 2 * 4096 * 4096


def sums_ms(layout, axis):
    return 2e3 * float(collective_seconds("all_reduce", x_bytes, layout, axis, h100))


shown = []
for k in (2, 4, 8, 16, 32):
    products = 2e3 * 218e6 * 4096 / k / 400e12
    shown.append((f"tp={k}", round(products, 2), round(sums_ms(Layout(tp=k), "tp"), 2)))
table("One layer, forward", ("mesh", "ms of products", "ms of sums"), shown)
apart = sums_ms(Layout(dp=8, tp=8), "dp")
print(f"Sums of 8 GPUs, each on another node: {apart:.2f} ms\n")
in_node, two_nodes = shown[2:4]
assert in_node[1] > in_node[2] and two_nodes[1] < two_nodes[2] < 1.1 * in_node[2]
assert apart > 7 * in_node[2]

# %% [markdown]
# Over two nodes the sums take hardly longer than in one: each GPU exchanges 1/8 of the array with
# the other node, by a network card of its own, beside what is sent inside the node, which takes
# longer. But the products take half as long, and the next product has to wait for its sum, so that
# more time is now spent on sums than on products. So tp is at most the number of GPUs that NVLink
# joins, often 8. If 8 GPUs were on 8 nodes, each with one card of 50 GB/s for itself, the sums
# would take over four times as long as the products; for that reason tp is the innermost axis of a
# mesh, and its groups fill nodes. The products also become narrow: with tp=8 a GPU has 4 heads, 1
# kv head, and 1792 of 14336 columns, and small products use a GPU badly.

# %% [markdown]
# ## Exercises

# %%
exercises("11")

# %% [markdown]
# ## Sources
#
# Shoeybi et al. 2019, *Megatron-LM*. Narayanan et al. 2021, *Efficient Large-Scale Language Model
# Training*. Shazeer 2019, *Fast Transformer Decoding*. Ainslie et al. 2023, *GQA*. GSPMD: Xu 2021.
# openxla/xla: `all_reduce_reassociate.h`, and `gpu_compiler.cc`, which runs it.
#
# | here | PyTorch | others |
# |---|---|---|
# | `column_linear` | `ColwiseParallel` | Megatron-LM: `ColumnParallelLinear` |
# | `row_linear` | `RowwiseParallel` | Megatron-LM: `RowParallelLinear` |
# | `megatron_specs` | a plan for `parallelize_module` | MaxText: rules for logical axes |
# | tp | a dim of `init_device_mesh` | Megatron-LM: `--tensor-model-parallel-size` |
