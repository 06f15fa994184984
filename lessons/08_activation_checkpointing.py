# %% [markdown]
# # Lesson 08: activation checkpointing
#
# The backward pass needs numbers from the forward pass: the gradient of `x @ w` with respect to w
# needs x. The numbers that are kept for it are the *activations*. They grow with the batch, with
# the length of a sequence and with the number of layers. Soon they take more memory than the model.
#
# *Activation checkpointing* keeps a few of them, and computes the others again when the backward
# pass needs them. JAX calls it *remat*, for rematerialization; others say recomputation. It works
# on one device, and beside every kind of parallelism. Which arrays should be kept, and what does it
# cost to compute the others twice?

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name as keep

from jaxpar import nn
from jaxpar.cost.activations import activation_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect
from jaxpar.inspector.residuals import saved_residuals
from jaxpar.parallel import remat

# %% [markdown]
# ## The idea in one picture
#
# Nine layers after the forward pass, in three ways. x is the input of a layer, and each o is
# another array that its gradient needs. A dot is an array that has been dropped.

# %% tags=["fold"]
every, x_only, no = (np.array([list(word)]).T for word in ("xooo", "x...", "...."))
of_nine = partial(panel, owners=[NOBODY] * 9, names=[f"layer {i}" for i in range(9)])
panels = [
    of_nine("none: everything is kept, 36 arrays", [every] * 9),
    of_nine("full: the input of each layer is kept, 9 arrays", [x_only] * 9),
    of_nine("segments: every third input is kept, 3 arrays", [x_only, no, no] * 3),
]
draw("08_kept", Panels("What nine layers keep", panels))

# %% [markdown]
# What is missing can be computed again from the last x before it that was kept. Each way has a
# name, which says what is recomputed: "none", "full" for whole layers, and "segments" for several
# layers at once. A fourth one, "selective", drops a few arrays inside each layer: those that are
# large, but take little arithmetic to compute again.
#
# ## Predict
#
# Take a GPT of 22 billion parameters, which Korthikanti et al. (2022) trained. It has 48 layers and
# 64 heads. Between two layers an activation has b = 4 sequences of s = 2048 tokens, with h = 6144
# numbers for each token, in 16 bits. A layer computes, in this order:
#
# - norm, then queries, keys and values (three products), scores (queries times keys, `s*s`
#   numbers for each head), softmax, dropout, the product with the values, a product with a matrix
#   of [h, h], dropout, a sum with the input of the layer;
# - norm, a product to width 4h, GELU, a product back to width h, dropout, a sum.
#
# The backward pass needs both inputs of a product, the input of a norm and of GELU, the result of a
# softmax, and the mask of a dropout, which takes one byte for each number. Weights do not count
# here, and an array that is needed twice is kept once.

# %%
inputs = ask("Bytes of the inputs of all 48 layers")
everything = ask("Bytes of all that the backward pass needs of the 48 layers")

# %% [markdown]
# The next question is about FLOPs. The backward pass of a product is two products of the same size.

# %%
more = ask("Percent more FLOPs of a step, at most, if every layer is recomputed once", "count")

# %% [markdown]
# The last one is about segments. Each of 64 layers needs its input and two more arrays of the same
# size. Only the inputs of k segments of 64/k layers are kept. In the backward pass, one segment
# after the other is computed again, and then the three arrays of each of its layers are held.

# %%
fewest = ask("The number k of segments, a power of 2, with which least is held", "count")

# %% [markdown]
# ## Implement
#
# ### By hand
#
# The backward pass goes from the last layer to the first. With the input of a layer, one can call
# the layer again, and then differentiate it. So keep the inputs, and nothing else. `jax.vjp(f, *x)`
# computes f, and returns its result and a function, which takes the gradient with respect to the
# result and returns the gradients with respect to the arguments. Here the result of the last layer
# is summed, so the first gradient is 1 everywhere.


# %%
def gradient_by_hand(layer_fn, layers, x):
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer_fn(layer, x)
    gradient = jnp.ones_like(x)
    of_layers = []
    for layer in reversed(layers):
        x = inputs.pop()
        _, pull_back = jax.vjp(layer_fn, layer, x)  # computes the layer again
        of_layer, gradient = pull_back(gradient)
        of_layers.insert(0, of_layer)
    return of_layers, gradient


# %% [markdown]
# ### In JAX
#
# `jax.checkpoint(f)` computes what f computes. But for its gradient it keeps only the arguments of
# f, and then calls f again. A *policy* lets it keep more: the results of products, say, or arrays
# that `checkpoint_name` has given a name. The library wraps a layer in it, and calls it in a loop:

# %%
show(remat.checkpointed, remat.scan_layers)

# %% [markdown]
# `lax.scan` goes through layers whose parameters are stacked, each leaf [l, ...], and its backward
# pass is a second loop. Outside of loops, a compiler may see that the same thing is computed twice,
# and merge the two (*common subexpression elimination*, CSE); then nothing is saved. Between two
# loops it cannot, so the guard of `jax.checkpoint` against it is turned off: `prevent_cse=False`.
#
# The gradient by hand must be that of the library. The layer `wide` needs its input and two more
# arrays of the same size, for the derivative of tanh: its result y, and 1 - y, since the derivative
# is (1 + y)(1 - y).


# %%
def wide(w, x):
    return x + jnp.tanh(x @ w) / 8


def gradient_of_sum(function):
    def total(w, x):
        return function(w, x).sum()

    return jax.grad(total, (0, 1))


w = np.random.default_rng(0).normal(size=(9, 16, 16)).astype(np.float32)  # nine layers
x = w[0] / 2  # any 16 rows of width 16
by_scan = gradient_of_sum(partial(remat.scan_layers, wide, remat="full"))
got = jax.jit(by_scan)(w, x)
by_hand = jax.jit(partial(gradient_by_hand, wide))(list(w), x)
for one, other in zip(got, by_hand, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)

# %% [markdown]
# By hand there is no `scan`. How many arrays as large as x do the two compiled programs hold?

# %%
shape = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
ROWS, WIDTH = 512, 16
x_bytes = 4 * ROWS * WIDTH
stacked, one_by_one = shape((9, WIDTH, WIDTH)), [shape((WIDTH, WIDTH))] * 9
programs = {"by scan": (by_scan, stacked), "by hand": (partial(gradient_by_hand, wide), one_by_one)}
for name, (function, weights) in programs.items():
    temp = inspect(function, weights, shape((ROWS, WIDTH))).memory.temp_bytes
    print(f"{name}: {temp / x_bytes:.1f}")
print()

# %% [markdown]
# The scan holds nine inputs, and three arrays of the layer at work. By hand there are 17, because
# XLA has merged the two calls of each layer. On a CPU the guard would not help: there, use
# `jax.checkpoint` inside a `lax.scan`.
#
# ### A loop in a loop
#
# For segments, a loop over segments contains a loop over the layers of one. Here are the two forms
# on something else: numbers are added to an account one after the other, and each time a tenth of
# it is lost. The second form takes them in rows.


# %%
def in_one_loop(numbers, account):
    def body(account, number):
        return 0.9 * account + number, None  # the carry, and no output

    account, _ = lax.scan(body, account, numbers)
    return account


def in_rows(numbers, account, rows):
    def body(account, row):
        return in_one_loop(row, account), None

    account, _ = lax.scan(body, account, numbers.reshape(rows, -1))
    return account


numbers = jnp.arange(12.0)
print(in_one_loop(numbers, 100.0), in_rows(numbers, 100.0, rows=3), "\n")

# %% [markdown]
# Both add the same numbers in the same order. In the second form one row is one call of a function,
# and `jax.checkpoint` takes a function. `remat_layers` is for you to write: with layers in place of
# numbers, x in place of the account, and a gradient that keeps the input of each row and no more.
# Make both loops with `lax.scan`: a program with a loop of Python also grows with the number of
# segments, and so does the time to compile it.
#
# ### A layer that names its arrays
#
# To count what a GPT keeps, we write its layer down, and give a name to each array of the paper's
# list. Our decoder names its own in the same way (`jaxpar train --remat selective`), but it has no
# dropout.
#
# The gradient of softmax needs only its result, but JAX would keep more. So we write this gradient
# ourselves. `jax.custom_vjp` takes a function for the forward pass, which also returns what is
# kept, and one for the backward pass (in PyTorch, `autograd.Function`).


# %%
@jax.custom_vjp
def softmax(scores):
    return jax.nn.softmax(scores)


def softmax_and_kept(scores):
    y = keep(jax.nn.softmax(scores), "softmax")
    return y, y


def softmax_backward(y, g):
    return (y * (g - (y * g).sum(axis=-1, keepdims=True)),)


softmax.defvjp(softmax_and_kept, softmax_backward)


def dropout(x, seed, name):
    mask = jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape)
    return jnp.where(keep(mask, name), x / 0.9, 0.0)


# %% [markdown]
# The layer is small: B = 2 sequences of S = 128 tokens, with H = 64 numbers, and A = 4 heads.

# %%
B, S, H, A = 2, 128, 64, 4


def gpt_layer(layer, x):  # x is [B, S, H]
    (w_qkv, w_out, w_up, w_down), seed = layer
    norm = partial(nn.layer_norm, scale=jnp.ones(H), bias=jnp.zeros(H))
    qkv = (keep(norm(x), "attention in") @ w_qkv).reshape(B, S, 3, A, H // A)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    q, k, v = keep(q, "q"), keep(k, "k"), keep(v, "v")
    past = jnp.tril(jnp.ones((S, S), bool))[None, None]
    scores = jnp.where(past, q @ k.mT / (H // A) ** 0.5, -1e9)
    weights = keep(dropout(softmax(scores), seed, "softmax mask"), "dropped")
    y = keep((weights @ v).swapaxes(1, 2).reshape(B, S, H), "attended")
    x = keep(x + dropout(y @ w_out, seed + 1, "attention mask"), "stream")
    up = keep(keep(norm(x), "mlp in") @ w_up, "up")
    return x + dropout(keep(nn.gelu(up), "hidden") @ w_down, seed + 2, "mlp mask")


# %% [markdown]
# We try four ways. With a list of names, these arrays are kept and the others are recomputed.
# "Selective" leaves out the three names with `S*S` numbers for each head.

# %%
few = ["attention in", "q", "k", "v", "attended", "attention mask", "stream"]
few += ["mlp in", "up", "hidden", "mlp mask"]
ways = {
    "none, the paper's list": [*few, "softmax", "softmax mask", "dropped"],
    "selective, the paper's list": few,
    "full": "full",
    "none, as JAX has it": "none",
}

# %% [markdown]
# ## Measure
#
# ### What one layer keeps
#
# `saved_residuals` lists the arrays that a layer keeps for its gradient (JAX calls them
# *residuals*). Nothing is computed for that: it needs shapes only.

# %%
activation = shape((B, S, H))


def gpt_layers(*n):  # shapes of one layer, or of n stacked ones
    sizes = (H, 3 * H), (H, H), (H, 4 * H), (4 * H, H)
    return [shape((*n, *size)) for size in sizes], shape(n, dtype=jnp.int32)


kept = {
    name: saved_residuals(gpt_layer, gpt_layers(), activation, remat=way)
    for name, way in ways.items()
}

# %% tags=["fold"]
rows = [(one.what.split(" from /")[0], *one[1:]) for one in kept["none, the paper's list"]]
table("The paper's list, kept by name", ("array", "dtype", "shape"), rows)

# %% [markdown]
# ### What a program holds
#
# The inspector says what a program holds between its arguments and its results: its *temp*. We
# compile the gradient of 2 and of 4 layers. Half of the difference is what one more layer adds, to
# memory and to FLOPs. Everything is float32 here.


# %%
def report(way, n):
    weights, seeds = gpt_layers(n)

    def stack(weights, x, seeds):
        return remat.scan_layers(gpt_layer, (weights, seeds), x, remat=way).sum()

    return inspect(jax.grad(stack, (0, 1)), weights, activation, seeds)


added, flops = {}, {}
for name, way in ways.items():
    two, four = report(way, 2), report(way, 4)
    added[name] = (four.memory.temp_bytes - two.memory.temp_bytes) / 2
    flops[name] = (four.flops - two.flops) / 2

# %% [markdown]
# ### Segments
#
# Now 64 of the layers `wide`, with the library's `remat_layers`. "Once": inside a segment
# everything is kept while it is differentiated. "Twice": the layers of a segment are checkpointed
# as well, so that its inputs are computed first, and then each layer once more.

# %%
L = 64
product = 2 * ROWS * WIDTH**2 * L  # FLOPs of a product in each layer
layer_fns = {"once": wide, "twice": remat.checkpointed(wide, "full")}
formulas = {"once": lambda k: k + 3 * L // k, "twice": lambda k: k + L // k + 3}
segments = []
for again, layer_fn in layer_fns.items():
    for k in (4, 8, 16, 32):
        function = gradient_of_sum(partial(remat.remat_layers, layer_fn, segments=k))
        found = inspect(function, shape((L, WIDTH, WIDTH)), shape((ROWS, WIDTH)))
        held = round(found.memory.temp_bytes / x_bytes, 1)
        segments.append((again, k, formulas[again](k), held, found.flops / product))

# %% tags=["fold"]
headers = "recomputed", "segments k", "by formula", "measured", "products of a layer"
table("Arrays as large as x that 64 layers hold at most", headers, segments)
for _, _, formula, held, _ in segments:  # XLA saves some; the layer at work adds some
    assert 0.75 * formula < held < formula + 5
assert {(row[0], row[-1]) for row in segments} == {("once", 4), ("twice", 5)}

# %% [markdown]
# The last column counts products: one forward and two backward, and one or two more for what is
# computed again.
#
# ## Compare

# %%
b, s, h, a, layers = 4, 2048, 6144, 64, 48
of_22b = partial(activation_bytes, b, s, h, a, layers)
whole = partial(of_22b, tp=1, sequence_parallel=False)
n = s * b * h * layers  # numbers of all inputs
parts = {"norms, two inputs": 4 * n, "attention, without scores": 11 * n, "MLP": 19 * n}
parts["softmax, its mask, and what dropout leaves of it"] = 5 * a * s / h * n
inputs.compare(whole(remat="full"), {"48 layers of 2 bytes * s * b * h": 2 * n})
everything.compare(whole(remat="none"), parts)
more.compare(100 / 3, {"one forward pass more, where there were three": 100 / 3})
once = [row for row in segments if row[0] == "once"]
fewest.compare(min(once, key=lambda row: row[3])[1])

# %% [markdown]
# The second answer is what the paper prints: `sbh(34 + 5as/h)` bytes for each layer, where a is the
# number of heads. The second term is that of the arrays with `s*s` numbers for each head, which
# "selective" drops. Here 5as/h is 107, three quarters of the whole.
#
# ### What one more layer costs
#
# How many bytes one more layer of ours adds, for each number of x and in float32, and how much of a
# forward pass is computed again:

# %%
forward = flops["none, as JAX has it"] / 3
rows = []
for name in ways:
    own = [one for one in kept[name] if "_where" not in one.what]
    listed = sum(one.bytes for one in own)
    again = flops[name] / forward - 3
    sizes = (round(size / (B * S * H), 1) for size in (listed, added[name]))
    rows.append((name, *sizes, again))
    assert abs(added[name] / listed - 1) < 0.01

# %% tags=["fold"]
headers = "recomputed", "bytes listed", "bytes measured", "forward passes again"
table("One more layer, for each number of x", headers, rows)
for name, way in zip(ways, ("none", "selective", "full"), strict=False):
    in_16_bits = sum(prod(one.shape) * (2 - (one.dtype == "bool")) for one in kept[name])
    how = {"tp": 1, "sequence_parallel": False, "remat": way}
    assert in_16_bits == activation_bytes(B, S, H, A, 1, **how)
np.testing.assert_allclose(sum(parts.values()), whole(remat="none"))
np.testing.assert_allclose(n * (34 + 5 * a * s / h), whole(remat="none"))
assert round(5 * a * s / h) == 107 and 0.75 < 107 / 141 < 0.76
assert [row[3] for row in rows] == [0, 0.125, 0.75, 0]
assert S == 2 * H and 1 - 8 / (24 + 4 * S / H) == 0.75 and 0.75 / 3 == 1 / 4
assert 0.125 * forward == 2 * B * S * S * H

# %% [markdown]
# With 16 bits for numbers and 8 for masks, the first three lists are those of the paper, byte for
# byte; an assertion holds them against the formula.
#
# **JAX alone keeps more**: 202 bytes in place of 138. Each operation keeps what its own derivative
# needs, and GELU is a dozen operations. So in JAX it pays to name what should be kept. The causal
# mask and the zeros of `jnp.where` are equal in all layers and held once, so we left them out.
#
# **Selective** recomputes a single product, queries times keys. It is s/(12h + 2s) of a forward
# pass: 1/8 here, and 2.6% in the model of 22 billion parameters. Megatron-LM recomputes attention
# from the scores to the product with the values, so both products.
#
# **Full** recomputes 3/4 of a forward pass here, not all of it. The result of a layer's last
# product is needed only by the next layer, and the input of that is kept; JAX finds this out by
# itself. This product has `8h*h` of the `24h*h + 4sh` FLOPs of a layer for each position. So
# 1 - 8/(24 + 4s/h) of a forward pass is recomputed: 3/4 with our s = 2h, 2/3 for short sequences,
# and nearly all for very long ones.
#
# **The rule to remember**: a step without recomputation has the FLOPs of three forward passes, one
# forward and two backward. Full recomputation adds at most one, so a step has at most a third more
# FLOPs, and at most a quarter of its FLOPs are recomputation. Megatron-LM calls whole layers again,
# so there it is a third more.
#
# ### What is held over time
#
# Chen et al. (2016) keep the inputs of k segments of l layers. While a segment is differentiated,
# all that its l/k layers need is held: i times the size of x for each. So at most `k + i l/k` times
# x is held. This is least for `k = sqrt(i l)`, where it is `2 sqrt(i l)`: memory grows with the
# square root of the number of layers, for one more forward pass. In the picture below, l = 16 and
# i = 4, so k = 8.


# %% tags=["fold"]
def over_time(k, layers=16, i=4):
    """Arrays held at each moment; the backward pass of a layer takes two moments."""
    held = [-(-layer * k // layers) for layer in range(1, layers + 1)]
    for inputs_left in range(k, 0, -1):
        segment = [inputs_left + i * layer for layer in range(1, layers // k + 1)]
        held += segment
        for now in reversed(segment):
            held += [now, now]
    return held


none = [4 * j for j in (*range(1, 17), *np.arange(32, 0, -1) / 2, *[0] * 16)]
curves = {"none": none, "full": over_time(16), "8 segments": over_time(8)}
axes = "time, in forward passes of one layer", "arrays held, each as large as x"
draw("08_over_time", Curves("One step of 16 layers", *axes, range(64), curves))
assert [max(curve) for curve in curves.values()] == [64, 20, 16]

# %% [markdown]
# "None" ends after 48 moments: 16 forward and 32 backward. The others take 16 more, which is the
# third of the rule. They hold at most 20 and 16 arrays, where "none" holds 64.
#
# If the layers inside a segment are checkpointed too, at most `k + l/k + i` times x is held, least
# for `k = sqrt(l)`. That takes a second recomputation. It is `jaxpar train --remat segments`.
#
# A layer of GPT without its scores keeps 34 bytes where x has 2, so i is 17. For l = 48, "full"
# then holds at most l + i = 65 times x, segments with one recomputation 57, and with two 31. The
# first saves little, and the second takes one more forward pass. So most programs use full or
# selective.
#
# ### The model of 22 billion parameters
#
# One device of 80 GB cannot hold this model, so 8 devices split the products of each layer: tensor
# parallelism (lesson 11), tp = 8. Sequence parallelism (lesson 12) also splits what lies between
# the products: the inputs of layers and norms, and masks. (For "full" the paper counts whole inputs
# all the same, but then Megatron-LM keeps 1/8 of them.) A parameter takes 18 bytes: 2, 12 for Adam,
# and 4 for a gradient in float32.

# %% tags=["fold"]
states = 18 * 12 * layers * h**2 / 8 / 2**30  # a layer has 12 * h**2 parameters
shown = []
for way in ("none", "selective", "full"):
    price = partial(of_22b, remat=way)
    three = (price(tp=k, sequence_parallel=sp) for k, sp in ((1, False), (8, False), (8, True)))
    shown.append((way, *(round(size / 2**30, 2) for size in three)))
headers = "recomputed", "tp = 1", "tp = 8", "tp = 8, sequence parallel"
table("GiB of activations on each device", headers, shown)
print(f"Parameters, gradients and optimizer states, tp = 8: {states:.2f} GiB.\n")
assert [row[2] for row in shown] == [59.25, 29.25, 4.5] and shown[0][2] > states
assert (round(100 * s / (12 * h + 2 * s), 1), 48 + 17, round(2 * (17 * 48) ** 0.5)) == (2.6, 65, 57)
assert round(2 * 48**0.5 + 17) == 31
assert [round(row[2] + states) for row in shown] == [105, 75, 50]
assert round(shown[1][3] + states) == 55

# %% [markdown]
# With tp = 8 and nothing recomputed, activations and states together take 105 GiB. That is too much
# for an A100 "of 80 GB", which has 80 GiB. Full recomputation makes it 50 GiB. Selective makes it
# 75 GiB, which leaves little for the embedding, the logits and buffers. With sequence parallelism
# as well it is 55 GiB, for hardly any FLOPs.
#
# ## On real hardware
#
# - **Time.** A CPU cannot show it. The paper's step of this model takes 1.42 s with full
#   recomputation, and 1.10 s with selective and sequence parallelism (table 5). NVIDIA's NeMo user
#   guide reckons with 30% more computation in a layer for full.
# - **MFU and HFU.** Model FLOPs utilization counts what the model needs; hardware FLOPs utilization
#   counts recomputation as well. PaLM reports 46.2% and 57.8% (Chowdhery et al. 2022, section 4.1):
#   its hardware did 1.25 times the model's FLOPs. Ask which of the two a figure is.
# - **FlashAttention** never stores the scores, and computes them again in its backward
#   pass. It is selective recomputation inside one kernel. Where it is used, "none" means 34sbh.
# - **Every other product.** torchtitan means something else by selective: of a layer's products
#   with weights it keeps the first, the third and so on, and attention (`SelectiveAC`). `jaxpar
#   train --remat alternate` keeps as much: queries, values, what is attended, the sum after
#   attention, and the gate. The activations of Llama 3 8B then take 16.6 GB in place of 36.5
#   (`jaxpar memory --model llama3-8b --mesh fsdp=8 --zero 3 --sequence 8192 --remat alternate`).
#   Keys and "up" are computed again, which have 29% of the FLOPs of the layer's products with
#   weights.
# - **Dropout** must draw the same mask again. A JAX key does. PyTorch stores the state of its
#   generator and sets it again (`preserve_rng_state`).
# - **Residual states** is ZeRO's name for activations, temporary buffers, and memory that is lost
#   between them (Rajbhandari et al. 2020, section 3.2). With tensor parallelism alone, every device
#   keeps the same layer inputs. ZeRO can split these (`partition_activations`), for one more
#   all-gather in each layer: 33 GB become 2 GB in a model of 100 billion parameters (section 6.1).
# - **bfloat16** halves everything except masks. A CPU computes it in float32, so we measured in
#   float32.
#
# ## Exercises
#
# `frugal_layers` is an open challenge: every right answer earns its points, and the fewest bytes of
# intermediate results that you have reached are kept.

# %%
exercises("08")

# %% [markdown]
# ## On paper
#
# 1. GPT-3 (96 layers, 96 heads, h = 12,288, s = 2048) is trained on 64 A100 of 80 GB: tp=8 and
#    sequence parallelism inside a node, and a pipeline of 8 stages over nodes. The first stage has
#    12 layers, and keeps their activations for 8 sequences at once. A parameter takes 18 bytes. How
#    many GB of activations does a device keep with none, selective and full? Which of them fit?
#
# <details><summary>Answer</summary>
#
# 12 layers for 8 sequences are as much as 96 layers for one, b = 1. Then sbh/8 is 3.15 million
# numbers. None: 34 + 5as/h = 34 + 80 = 114 bytes for each, 34.4 GB in 96 layers. Selective: 34
# bytes, 10.3 GB. Full: 2 bytes for each, 0.6 GB, or 4.8 GB if every device keeps whole inputs. The
# states take 18 * 174 billion / 64 bytes, 48.9 GB. With none that makes 83.3 of the device's 85.9
# GB (80 GiB), which leaves too little for the embedding, the logits and buffers. With selective it
# makes 59.2 GB, which fits. Full also fits, and saves at most 10 GB more, for a third more FLOPs.
#
# </details>
#
# 2. Llama 3 8B (32 layers, 32 heads, h = 4096) is to learn from one sequence of 131,072 tokens on
#    one device of 80 GB, in 16 bits. How many bytes do the inputs of all layers take? And the
#    scores of a single layer?
#
# <details><summary>Answer</summary>
#
# The inputs: 2 * 131,072 * 4096 * 32 bytes = 34.4 GB, with full recomputation. The scores: 32 heads
# times 131,072 squared times 2 bytes = 1.1 TB, for one layer and before softmax has made a copy. So
# at this length scores cannot be stored, and attention must be one kernel (FlashAttention) for
# memory alone. The layer at work keeps 18 GB more (34sbh, also in Llama), and the parameters take
# 16 GB. The next step is to split the positions over devices: axis cp of lesson 19.
#
# </details>
#
# 3. A run without recomputation has an MFU of 45%, with a microbatch of one sequence. Full
#    recomputation, by whole layers, makes room for four sequences, and larger products run faster.
#    Which fraction of the peak must the hardware now reach so that the step is no slower?
#
# <details><summary>Answer</summary>
#
# The hardware has 4/3 of the FLOPs to do, so it must reach 45% * 4/3 = 60% of the peak. If it stays
# at 45%, the MFU falls to 45% * 3/4 = 34%. This is why full recomputation rarely pays for larger
# microbatches alone.
#
# </details>
#
# ## Sources
#
# Chen et al. 2016, *Training Deep Nets with Sublinear Memory Cost*, section 4. Rajbhandari et al.
# 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, sections 3.2 and
# 6.1. Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*,
# sections 4 and 5, tables 2 and 5. Chowdhery et al. 2022, *PaLM: Scaling Language Modeling with
# Pathways*, section 4.1. NVIDIA, *NeMo Framework User Guide* 25.02, page "Activation
# Recomputation". torchtitan, *activation_checkpoint.py*, commit b5bcd76c.
#
# | here | PyTorch | DeepSpeed | Megatron-LM |
# |---|---|---|---|
# | `jax.checkpoint` | `torch.utils.checkpoint` | `checkpointing.checkpoint` | `checkpoint` |
# | policy | `create_selective_checkpoint_contexts` | - | `--recompute-modules` |
# | full | `checkpoint` around a layer | the same | `--recompute-granularity full` |
# | selective | a policy | - | `--recompute-granularity selective` |
# | segments | `checkpoint_sequential` | `number_checkpoints` | `--recompute-num-layers` |
