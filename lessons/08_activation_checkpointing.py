# %% [markdown]
# # Lesson 08: activation checkpointing
#
# The backward pass needs numbers from the forward pass: the gradient of `x @ w` with respect to w
# needs x. The numbers that are kept for it are the *activations*. They grow with batch, sequence
# and layers, and soon take more memory than the model. *Activation checkpointing* (*remat*, for
# rematerialization) keeps a few, and computes the others again. Which few, and what does it cost?

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name as keep

from jaxpar import nn
from jaxpar.cost.activations import activation_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect
from jaxpar.inspector.residuals import saved_residuals
from jaxpar.parallel import remat

# %% [markdown]
# ## The idea in one picture
#
# Nine layers after the forward pass, in three ways: x is the input of a layer, and o stands for the
# other arrays that its gradient needs. What is missing can be computed from the last x before it.

# %%
every, x_only, no = (np.array([list(word)]).T for word in ("xooo", "x...", "...."))
of_nine = partial(panel, owners=[NOBODY] * 9, names=[f"layer {i}" for i in range(9)])
panels = [
    of_nine("none: everything is kept", [every] * 9),
    of_nine("full: the input of each layer is kept", [x_only] * 9),
    of_nine("segments: every third input is kept", [x_only, no, no] * 3),
]
draw("08_kept", Panels("What nine layers keep", panels))

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. The input of a layer of GPT is b sequences of s tokens of h
# numbers; the layer has a heads. Everything is in 16 bits, so x takes 2sbh bytes.
#
# 1. How many bytes do the arrays take that the backward pass of attention and MLP needs? Do the
#    masks of dropout count? Which part grows with the square of s?
# 2. If nothing but the inputs of layers is kept, how often is each layer computed?
# 3. If only k of l inputs are kept, which k takes the least memory?
#
# Korthikanti et al. (2022) answer the first: `sbh(34 + 5as/h)`. *Selective* recomputes attention
# from queries, keys and values: the term 5as/h is that of softmax and dropout, which take much of
# the memory and little of the arithmetic. For their 22 billion parameters, on 8 devices that split
# the layers as in lessons 11 and 12:

# %%
model = 4, 2048, 6144, 64, 48  # b, s, h, a, layers
states = 18 * 12 * 48 * 6144**2 / 8 / 2**30  # 18 bytes for each parameter
shown = []
for way in ("none", "selective", "full"):
    price = partial(activation_bytes, *model, remat=way)
    three = (price(tp=n, sequence_parallel=sp) for n, sp in ((1, 0), (8, 0), (8, 1)))
    shown.append((way, *(round(size / 2**30, 2) for size in three)))
headers = "remat", "tp = 1", "tp = 8", "tp = 8, sequence parallel"
table("GiB of activations on each device", headers, shown)
print(f"Parameters, gradients, optimizer states: {states:.2f} GiB.\n")
assert [row[2] for row in shown] == [59.25, 29.25, 4.5] and shown[0][2] > states

# %% [markdown]
# ## Implement
#
# **By hand.** The backward pass goes from the last layer to the first. With the input of a layer,
# one can call the layer again, and then differentiate it. So keep the inputs, and nothing else:


# %%
def gradient_by_hand(layer_fn, layers, x):
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer_fn(layer, x)
    gradient, of_layers = jnp.ones_like(x), []  # of x.sum()
    for layer in reversed(layers):
        _, pull = jax.vjp(layer_fn, layer, inputs.pop())  # forward again
        of_layer, gradient = pull(gradient)
        of_layers.insert(0, of_layer)
    return of_layers, gradient


# %% [markdown]
# **In JAX**, `jax.checkpoint(f)` computes f, but for its gradient it keeps only the arguments of f,
# and calls f again. A *policy* may keep more: products, say, or arrays that `checkpoint_name` has
# named. `lax.scan` goes through stacked layers, and its backward pass is a second loop. That
# matters: without loops, XLA's CPU compiler merges what is computed twice.

# %%
show(remat.checkpointed, remat.scan_layers)


def wide(w, x):  # keeps x and two more arrays of its size
    return x + jnp.tanh(x @ w) / 8


def of_sum(function):  # its gradient with respect to both arguments
    return jax.grad(lambda w, x: function(w, x).sum(), (0, 1))


w = np.random.default_rng(0).normal(size=(9, 16, 16)).astype(np.float32)
x = w[0] / 2
got = jax.jit(of_sum(partial(remat.scan_layers, wide, remat="full")))(w, x)
for one, other in zip(got, jax.jit(partial(gradient_by_hand, wide))(list(w), x), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)

# %% [markdown]
# **The list of the paper.** In our decoder the same arrays have names, and `jaxpar train --remat
# selective` keeps them. But it has no dropout. So here is a layer of GPT with dropout, and with a
# name for each array of the list. Softmax is written out: its gradient needs its result, not its
# input.


# %%
def softmax_and_kept(scores):
    y = keep(jax.nn.softmax(scores), "softmax")
    return y, y


def softmax_backward(y, g):
    return (y * (g - (y * g).sum(axis=-1, keepdims=True)),)


softmax = jax.custom_vjp(lambda scores: jax.nn.softmax(scores))
softmax.defvjp(softmax_and_kept, softmax_backward)


def dropout(x, seed, name):
    mask = jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape)
    return jnp.where(keep(mask, name), x / 0.9, 0.0)


def gpt_layer(layer, x):
    (w_qkv, w_out, w_up, w_down), seed = layer
    norm = partial(nn.layer_norm, scale=jnp.ones(H), bias=jnp.zeros(H))
    qkv = (keep(norm(x), "attention in") @ w_qkv).reshape(B, S, 3, A, H // A)
    q, k, v = map(keep, qkv.transpose(2, 0, 3, 1, 4), ("q", "k", "v"))
    past = jnp.tril(jnp.ones((S, S), bool))[None, None]
    scores = jnp.where(past, q @ k.mT / (H // A) ** 0.5, -1e9)
    weights = keep(dropout(softmax(scores), seed, "softmax mask"), "dropped")
    y = keep((weights @ v).swapaxes(1, 2).reshape(B, S, H), "attended")
    x = keep(x + dropout(y @ w_out, seed + 1, "attention mask"), "stream")
    y = nn.gelu(keep(keep(norm(x), "mlp in") @ w_up, "up"))
    return x + dropout(keep(y, "hidden") @ w_down, seed + 2, "mlp mask")


B, S, H, A = 2, 128, 64, 4
few = "attention in", "q", "k", "v", "attended", "attention mask", "stream"
few = *few, "mlp in", "up", "hidden", "mlp mask"
all_named = *few, "softmax", "softmax mask", "dropped"
ways = {"the paper's none": all_named, "the paper's selective": few}
ways |= {"full": "full", "none, as JAX has it": "none"}

# %% [markdown]
# ## Measure
#
# `saved_residuals` lists what a layer keeps. The inspector says what a program holds in between,
# its *temp*, in float32. One more layer adds half of the difference between 4 layers and 2.

# %%
shape = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
activation = shape((B, S, H))


def gpt_layers(*n):
    sizes = (H, 3 * H), (H, H), (H, 4 * H), (4 * H, H)
    return [shape((*n, *size)) for size in sizes], shape(n, dtype=jnp.int32)


def report(way, n):
    w, seeds = gpt_layers(n)

    def stack(w, x, seeds):
        return remat.scan_layers(gpt_layer, (w, seeds), x, remat=way).sum()

    return inspect(jax.grad(stack, (0, 1)), w, activation, seeds)


kept, added, flops = {}, {}, {}
for name, way in ways.items():
    kept[name] = saved_residuals(gpt_layer, gpt_layers(), activation, remat=way)
    two, four = report(way, 2), report(way, 4)
    added[name] = (four.memory.temp_bytes - two.memory.temp_bytes) / 2
    flops[name] = (four.flops - two.flops) / 2
rows = [(one.what.split(" from /")[0], *one[1:]) for one in kept["the paper's none"]]
table("The paper's list, kept by name", ("array", "dtype", "shape"), rows)

# %% [markdown]
# ## Compare
#
# In 16 bits, with masks in 8 bits, the lists are those of table 2 of the paper. In 32 bits they are
# as measured.

# %%
forward, rows = flops["none, as JAX has it"] / 3, []
for name in ways:
    own = [one for one in kept[name] if "_where" not in one.what]
    listed = sum(one.bytes for one in own)
    again = flops[name] / forward - 3
    sizes = (round(size / (B * S * H), 1) for size in (listed, added[name]))
    rows.append((name, *sizes, again))
    assert abs(added[name] / listed - 1) < 0.01
headers = "kept", "bytes listed", "bytes measured", "forward passes again"
table("One more layer, for each element of x", headers, rows)
for name, way in zip(ways, ("none", "selective", "full"), strict=False):
    in_16_bits = sum(prod(one.shape) * (2 - (one.dtype == "bool")) for one in kept[name])
    how = {"tp": 1, "sequence_parallel": False, "remat": way}
    assert in_16_bits == activation_bytes(B, S, H, A, 1, **how)
assert [row[3] for row in rows] == [0, 0.125, 0.75, 0]
assert S == 2 * H and 1 - 8 / (24 + 4 * S / H) == 0.75 and 0.75 / 3 == 1 / 4
assert 0.125 * forward == 2 * B * S * S * H

# %% [markdown]
# - **JAX alone keeps more** than the paper's list. Each operation keeps what its own derivative
#   needs, and GELU is a dozen operations. The constants of `jnp.where` (the causal mask, zeros)
#   are equal in every layer and held once, so we left them out.
# - **Selective** recomputes one product, queries times keys: the output of attention is kept.
# - **Full** recomputes 3/4 of a forward pass here. Only the next layer needs the last product of a
#   layer, and its input is kept. In a layer with s positions of width h, that product is 8h^2 of
#   24h^2 + 4sh FLOPs for each position. So 1 - 8/(24 + 4s/h) of the forward pass is recomputed,
#   which is 3/4 because s = 2h here; it is 2/3 for short sequences and nearly 1 for long ones.
# - **The rule to remember.** A step without recomputation takes three forward passes' FLOPs: one
#   forward, two backward. Full recomputation adds up to one, so a step takes a quarter to a third
#   more FLOPs: a quarter here, a third where whole layers are recomputed, as Megatron-LM does.
#
# **Fewer inputs.** Chen et al. (2016) keep k of l inputs. The backward pass takes the last segment
# of l/k layers, recomputes it from its input, and holds all that its layers need, i times the size
# of x each. Then it takes the segment before. At most `k + i l/k` times x is held, which is least
# for `k = sqrt(i l)`. Here l = 16 and i = 4, so k = 8:


# %%
def over_time(k, layers=16, i=4):  # in x; backward takes twice as long as forward
    times = [-(-j * k // layers) for j in range(1, layers + 1)]
    for inputs in range(k, 0, -1):
        segment = [inputs + i * j for j in range(1, layers // k + 1)]
        times += segment + [t for t in reversed(segment) for _ in range(2)]
    return times


none = [4 * j for j in (*range(1, 17), *np.arange(32, 0, -1) / 2, *[0] * 16)]
curves = {"none": none, "full": over_time(16), "8 segments": over_time(8)}
axes = "time, in forward passes of a layer", "arrays held, each as large as x"
draw("08_over_time", Curves("What is held during a step", *axes, range(64), curves))
assert [max(curve) for curve in curves.values()] == [64, 20, 16]

# %% [markdown]
# If the layers inside a segment are checkpointed too, everything is recomputed twice, and only `k +
# l/k + i` times x is held, which is least for `k = sqrt(l)`. That is `--remat segments`. We measure
# both with 64 of the layers `wide`, which keep 3 times x each. `remat_layers` is for you to write.

# %%
rows = []
for k in (8, 16, 32):
    once, twice = ("once", wide, k + 3 * 64 // k), ("twice", None, k + 64 // k + 3)
    for again, layer_fn, formula in (once, twice):
        layer_fn = layer_fn or remat.checkpointed(wide, "full")
        function = of_sum(partial(remat.remat_layers, layer_fn, segments=k))
        found = inspect(function, shape((64, 16, 16)), shape((512, 16)))
        held = round(found.memory.temp_bytes / (4 * 512 * 16), 1)
        rows.append((again, k, formula, held, found.flops / (2 * 512 * 16**2 * 64)))
        assert 0.8 * formula < held < formula + 5  # XLA saves a little, the layer at work adds
headers = "computed again", "segments", "formula", "measured", "products"
table("x held by 64 layers, products of each", headers, sorted(rows))
assert [min(rows[j::2], key=lambda row: row[2])[1] for j in (0, 1)] == [16, 8]

# %% [markdown]
# Full holds `l + i` times x, and segments hold at best `2 sqrt(i l)` times x. A layer of GPT
# without softmax keeps 17 times x (34 bytes for 2), so with tens of layers there is little to gain
# over full or selective.
#
# ## On real hardware
#
# - **Time.** A CPU cannot show what it costs on a GPU. In the paper a step of the 22B model takes
#   1.42 s with full, 1.10 s with selective and sequence parallelism.
# - **FlashAttention** (lesson 14) never stores the scores: it is selective by itself.
# - **Dropout** must draw the same mask again. A JAX key does. PyTorch keeps its generator's state.
# - **Residual states** is ZeRO's word for activations, buffers and the gaps between them. ZeRO also
#   splits the kept inputs over tensor-parallel devices, for one more all-gather in each layer.
# - **bf16** halves everything except masks. A CPU computes bf16 in float32, so we measured float32.
#
# ## Exercises

# %%
exercises("08")

# %% [markdown]
# ## Sources
#
# Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*. Rajbhandari et al. 2020,
# *ZeRO*. Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*.
#
# | here | PyTorch | DeepSpeed, Megatron |
# |---|---|---|
# | `jax.checkpoint` | `torch.utils.checkpoint` | activation checkpointing |
# | policy | `create_selective_checkpoint_contexts` | `--recompute-modules` |
# | full, selective | - | `--recompute-granularity` |
# | segments | `checkpoint_sequential` | `number_checkpoints` |
