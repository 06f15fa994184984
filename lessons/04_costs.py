# %% [markdown]
# # Lesson 04: costs
#
# Does a model fit on a device, and how long does a training step take? Both are known before
# anything runs: bytes and operations follow from the shapes of arrays, and seconds from a handful
# of figures of the hardware.
#
# There are three costs, and a part of this lesson for each: what must be *held* in memory, what
# must be *computed*, and what must be *sent* to other devices. *FLOPs* are floating-point
# operations, and FLOP/s is their number in a second. GB is 1e9 bytes, and GiB is `2**30`.

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import optax

from jaxpar import nn
from jaxpar.cost import communication, flops, network, roofline
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Link
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.inference import inference_memory
from jaxpar.cost.memory import training_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.terms import total
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED, States
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves, Roofline
from jaxpar.drawing.lanes import Lanes
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel.remat import scan_layers
from jaxpar.schedules import overlap

llama, h100 = find_model("llama3-8b"), find_cluster("h100")
N, S = llama.parameters, 8192  # S: tokens of a sequence
peak, bandwidth = h100.device.peak_flops["bf16"], h100.device.memory_bytes_per_second

# %% [markdown]
# ## The idea in one picture
#
# In one microsecond an H100 can do 989 million FLOPs on numbers of 16 bits. In the same microsecond
# it can move only 3.35 million bytes from or to its own memory, and far fewer to other devices.

# %% tags=["fold"]
speeds = {
    "its own memory": bandwidth,
    "NVLink to its node": h100.inside.bytes_per_second,
    "a network card": h100.between.bytes_per_second,
}
bars = {name: {"bytes moved": speed / 1e6 / 1e3} for name, speed in speeds.items()}
draw("04_speeds", Bars("What an H100 can move in a microsecond", "kB", bars))
assert [*speeds.values(), peak] == [3350e9, 450e9, 50e9, 989e12]

# %% [markdown]
# So a device is fast only while it does many FLOPs with each byte that it moves. Whether it does
# depends on the shapes, and above all on the number of tokens.
#
# ## Predict
#
# Our model is Llama 3 8B. It has 8.03 billion parameters, and 0.53 billion of them are the
# embedding, which only looks up rows. It has 32 layers, each with 32 heads of 128 numbers.
#
# For the first question: in mixed precision (lesson 07) a parameter and its gradient have 2 bytes
# each. Adam keeps the parameter once more in 4 bytes, and two means of 4 bytes.
#
# For the second: a product of matrices [m, k] and [k, n] has `m*n` results, each a sum of k
# products, so it takes `2*m*k*n` FLOPs. For each product, the backward pass has two: one for the
# gradient with respect to its input, and one for that with respect to the weights. Attention adds
# two products without weights: each query by each key, and each score by each value. Count all of
# them, although a causal mask hides half.

# %%
held = ask("Bytes of parameters, gradients and optimizer of Llama 3 8B, in mixed precision")
work = ask("FLOPs for each token in a training step of it, on sequences of 8192", "count")

# %% [markdown]
# Third: in *inference*, where a trained model answers users, it computes one token of an answer
# after the other. For each token it reads its parameters, of 2 bytes, from memory, at 3,350 GB/s.
# Of the embedding it reads one row only. Fourth: `silu(g)` is `g * sigmoid(g)`, so `silu(g) * u`
# has three operations. Each reads its arguments from memory, and writes its result.

# %%
rate = ask("Tokens of Llama 3 8B in a second that an H100 computes for one user, at most", "count")
apart = ask("Bytes of memory that silu(g) * u accesses as three programs, g and u of 2 MiB")

# %% [markdown]
# Fifth: data parallelism over 128 nodes of 8 H100. The gradients of a layer, 2 bytes for each
# parameter, are all-reduced while the backward pass goes on with the layer before it. A node sends
# at 400 GB/s to other nodes, and a device computes at its peak. With enough tokens, computing takes
# as long as sending.

# %%
hide = ask("Tokens on each of 1,024 H100 that hide the all-reduce of gradients", "count")

# %% [markdown]
# ## Implement
#
# ### Part 1: memory
#
# The *states of training* are parameters, gradients, and what the optimizer keeps. They do not
# depend on the batch. Inference needs the parameters alone.

# %% tags=["fold"]
kinds = {"Adam, float32": ADAM_FP32, "Adam, mixed": ADAM_MIXED}
kinds |= {f"inference, {8 * b:g} bits": States(b, 0, 0) for b in (2, 1, 0.5)}
rows = [
    (k, each.params, each.gradients, each.optimizer, round(each.total * N / 1e9, 1))
    for k, each in kinds.items()
]
headers = ("", "parameter", "gradient", "optimizer", "GB for Llama 3 8B")
table("Bytes of states for each parameter", headers, rows)
assert [row[4] for row in rows] == [128.5, 128.5, 16.1, 8.0, 4.0]

# %% [markdown]
# The rest of the memory does depend on the batch. Here is Llama 3 8B on one device: in training,
# with one sequence of 8192 tokens, where only the input of each layer is kept (lesson 08); and in
# inference for 16 users at once, each with 8192 tokens.

# %%
training = training_memory(llama, Layout(remat="full"), sequence=S)
inference = inference_memory(llama, batch=16, sequence=S)

# %% tags=["fold"]
uses = {"training": training, "inference": inference}
bars = {use: {term.name: term.value / 1e9 for term in terms} for use, terms in uses.items()}
limit = "an H100", h100.device.memory_bytes / 1e9
draw("04_memory", Bars("Llama 3 8B on one device", "GB", bars, limit))
assert total(inference) < h100.device.memory_bytes < total(training)

# %% [markdown]
# *Activations* are what the forward pass keeps for the backward pass; in inference, what one layer
# holds while it is computed. In training, one layer at a time is *recomputed*, and *outside* of the
# layers little is kept. *Logits* are the output of the head, a number for each token and each entry
# of the vocabulary; here they are counted with their gradient. Inference holds the keys and values
# of all tokens so far, the *KV cache*.
#
# ### Part 2: FLOPs and the roofline
#
# In a matrix product each element of the matrix takes 2 FLOPs for each token, and with the backward
# pass 6. So `6*N` for each token is a good first estimate. These are the exact formulas:

# %%
show(flops.layer_flops, flops.step_flops)
step = total(flops.step_flops(llama, 1, S))  # a batch of one sequence
forward = flops.layer_flops(llama, batch=1, sequence=S)

# %% tags=["fold"]
rows = [(one.name, one.formula, round(one.value / S / 1e6, 1)) for one in forward]
headers = ("product", "FLOPs", "millions a token")
table("A layer of Llama 3 8B, forward", headers, rows)
ratio = step / (6 * N * S)
print(f"A step is {ratio:.2f} times 6 FLOPs for each parameter and token.\n")
assert 1.15 < ratio < 1.25

# %% [markdown]
# "Scores" and "attended" are the products without weights. They grow with the square of the
# sequence, and are the reason why the step takes 1.2 times the estimate.
#
# A causal mask leaves half of these results unused. Whether they are computed depends on the
# program: FlashAttention (lesson 14) skips the blocks that the mask hides. Whether they are
# *counted* is a convention. The papers on Megatron-LM and PaLM count all of them, and so do we.
# Megatron-LM's code counts half by now. So compare two counts only if you know how they were made.
#
# How fast can a device do these FLOPs? *Arithmetic intensity* is the number of FLOPs for each byte
# of memory that a program reads or writes. If it is below peak / bandwidth, the *ridge*, the device
# waits for its memory: the program is *memory-bound*. Above the ridge, arithmetic is the bound.

# %%
show(roofline.product_intensity, roofline.attainable_flops)
by_matrix = partial(roofline.product_intensity, k=llama.hidden, n=llama.d_ffn)
points = {
    "MLP, 8192 tokens at once": by_matrix(S),
    "MLP, one token for each of 16 users": by_matrix(16),
    "MLP, one token": by_matrix(1),
    "queries of a token by its keys": roofline.product_intensity(4, llama.d_head, S),
}
ridge = peak / bandwidth

# %% tags=["fold"]
roof = partial(roofline.attainable_flops, peak_flops=peak, memory_bytes_per_second=bandwidth)
draw("04_roofline", Roofline("The roofline of an H100", roof, ridge, points))
assert [one < ridge for one in points.values()] == [False, True, True, True]
assert round(ridge) == 295

# %% [markdown]
# Both axes are logarithmic: from one label to the next is a factor of 10. Training multiplies
# thousands of tokens by each matrix that it reads, and is far to the right of the ridge. Inference
# multiplies one token for each user. More users at once raise the intensity of the MLP, but not
# that of the product with the keys: each user has keys of its own, and each key head serves 4 query
# heads, however many users there are.
#
# What is not a matrix product is memory-bound on any device: an activation function or a norm reads
# numbers, does little with each, and writes them. If several such operations are *fused* into one
# program, what is between them never goes to memory. A compiler fuses what is inside one `jax.jit`.
#
# ### Part 3: links and MFU
#
# PCIe joins a device to its host, and the devices of a home machine. NVLink joins GPUs; an NVSwitch
# makes any two GPUs of a node neighbours. Ethernet and InfiniBand join nodes, by one or more
# network cards in each. ICI joins a TPU to its neighbours on a torus. Take the bandwidth of one
# direction, for one device. Vendors print the sum of both directions for NVLink and ICI, and bits
# for networks: 10 Gb/s are 1.25 GB/s.
#
# Below, 8 devices with one such link each all-reduce the gradients of Llama 3 8B round a ring.

# %%
home, a100, tpu = map(find_cluster, ("rtx4090", "a100", "tpu-v5p"))
links = {
    "10 Gb Ethernet": home.between,
    "PCIe 4.0 x16": home.inside,
    "InfiniBand NDR": h100.between,
    "ICI of TPU v5p": tpu.inside,
    "NVLink 3 (A100)": a100.inside,
    "NVLink 4 (H100)": h100.inside,
}

# %% tags=["fold"]
rows = []
for name, link in links.items():
    time = communication.all_reduce_seconds(2 * N, 8, **vars(link))
    rows.append((name, round(link.bytes_per_second / 1e9, 2), round(time, 3)))
table("An all-reduce of 16 GB on 8 devices", ("link", "GB/s", "seconds"), rows)
print(f"A step of {S} tokens on an H100: {step / peak:.2f} s at its peak.\n")
assert [row[2] > step / peak for row in rows] == [True] * 3 + [False] * 3

# %% [markdown]
# (A TPU sends both ways at once, and takes half that time.) On the first three links, sending takes
# longer than a whole step with one sequence on each device. On 64 H100 in 8 nodes, it depends on
# whether all 8 cards of each node are used (lesson 03):

# %%
inside, between = communication.hierarchical_all_reduce(2 * N, 8, 8)
one_ring = communication.ring_all_reduce(2 * N, 64)
reduce = "all_reduce", 2 * N, Layout(dp=64), "dp", h100
seconds = {
    "one ring, one card of each node": one_ring.seconds(h100.between),
    "eight rings, eight cards": network.flat_ring_seconds(*reduce),
    "hierarchy, one part after another": (
        inside.seconds(h100.inside) + between.seconds(h100.between)
    ),
    "hierarchy, parts overlapping": network.collective_seconds(*reduce),
}

# %% tags=["fold"]
rows = [(name, round(float(time), 3)) for name, time in seconds.items()]
table("An all-reduce of 16 GB on 8 nodes of 8 H100", ("algorithm", "seconds"), rows)
assert [row[1] for row in rows] == [0.633, 0.079, 0.133, 0.07]
assert rows[0][1] > step / peak > 3 * rows[2][1]
assert round(step / peak / rows[1][1]) == 6

# %% [markdown]
# By one card of each node, the all-reduce takes longer than the step at its peak. By eight it takes
# a sixth of the step.
#
# #### What is hidden
#
# A device can compute and send at the same time. The gradients of the last layer are ready first.
# If they are sent while those of the other layers are computed, sending is *hidden*: it takes no
# time of its own. What the device must wait for is *exposed*. This is a timeline of 4 layers of
# Llama 3 8B on 64 H100, at their peak. Only products with weights are counted.

# %%
LAYER = 218_112_000  # parameters of one layer
send = network.collective_seconds("all_reduce", 2 * LAYER, *reduce[2:])


def timeline(tokens, *, at_the_end):
    """Forward through layers 1 to 4, backward through 4 to 1, and an all-reduce for each."""
    seconds = LAYER * tokens / peak  # of one FLOP for each parameter and token
    tasks = [overlap.Task("forward", f"F{k}", "compute", 2 * seconds) for k in (1, 2, 3, 4)]
    backward = [overlap.Task("backward", f"B{k}", "compute", 4 * seconds) for k in (4, 3, 2, 1)]
    tasks += backward
    for task in backward:
        waits = backward[-1] if at_the_end else task
        label = task.label.replace("B", "G")
        tasks.append(overlap.Task("all-reduce", label, "network", float(send), (waits,)))
    return overlap.run(tasks)


# %% tags=["fold"]
ways = {
    "4096 tokens on each device, sent at the end": timeline(4096, at_the_end=True),
    "4096 tokens, sent meanwhile": timeline(4096, at_the_end=False),
    "1024 tokens, sent meanwhile": timeline(1024, at_the_end=False),
}
draw("04_hidden", Lanes("A step of four layers", "ms", ways))
waited = [round(1e3 * overlap.exposed_seconds(spans), 1) for spans in ways.values()]
assert waited == [8.0, 2.0, 5.3], waited
assert (N - 2 * llama.vocab * llama.hidden - llama.hidden) / llama.layers == LAYER

# %% [markdown]
# With 4096 tokens all is hidden but the last all-reduce, which has nothing beside it. With 1024
# tokens each all-reduce takes longer than the backward pass of a layer, and the device waits.
#
# #### Tokens per device
#
# So how many tokens does it take? Say that a layer has p parameters. With T tokens on each device
# its backward pass does `4*p*T` FLOPs. Its gradients are `2*p` bytes, and in an all-reduce over
# many devices each sends nearly twice as much, `4*p`. Both take equally long if
# **T = FLOP/s / bandwidth**: p cancels. FSDP (lesson 10) has the same number, since forward it
# gathers `2*p` bytes beside `2*p*T` FLOPs. `tokens_to_hide` also counts the factor of (n-1)/n.
# Between nodes, the bandwidth is that of all cards of a node together.
#
# #### MFU
#
# *Model FLOPs utilization* is the FLOP/s that the model needs, as a fraction of the peak. Take the
# peak of dense matrices; the sparse one that vendors print is twice as high. *Hardware FLOPs
# utilization*, HFU, counts all that the hardware does, also what is recomputed.
#
# ## Measure
#
# ### Memory and FLOPs of a step
#
# Now our decoder: what a training step holds as arguments, and what it computes, with each of three
# ways to keep activations (lesson 08). `none` recomputes nothing, `selective` recomputes attention,
# and `full` recomputes entire layers. The inspector counts the products in what JAX traced.

# %%
shape = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
settings = Settings(vocabulary=256, layers=2, d_model=64, d_ff=192, heads=4, kv_heads=2)
B, T = 4, 32
params = jax.eval_shape(partial(init, settings), jax.random.key(0))
tokens = shape((B, T + 1), dtype=jnp.int32)
adamw = optax.adamw(0.003)
state = jax.eval_shape(adamw.init, params)


def train_step(params, state, tokens, *, remat):
    loss = loss_fn(settings, partial(scan_layers, remat=remat))
    gradient = jax.grad(loss)(params, tokens)
    updates, state = adamw.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


reports = {"forward": inspect(loss_fn(settings), params, tokens)}
for way in ("none", "selective", "full"):
    reports[way] = inspect(partial(train_step, remat=way), params, state, tokens)

# %% tags=["fold"]
measured = [(k, r.memory.arguments_bytes, r.flops) for k, r in reports.items()]
table("Measured", ("program", "bytes of arguments", "FLOPs"), measured)

# %% [markdown]
# A step that recomputes nothing does 3 times the FLOPs of a forward pass. Its arguments are the
# tokens and 12 bytes for each parameter: in float32, 4 for the parameter and 8 for Adam's means.
# Gradients are not among them, since they exist only inside a step.
#
# ### Bytes of memory
#
# XLA says how many bytes of memory a compiled program accesses. This is for arrays of [1024, 512]
# in float32, and `swiglu` is the library's `silu(g) * u`.


# %%
def accessed(function, *args):
    compiled = jax.jit(function).lower(*args).compile()
    return compiled.cost_analysis()["bytes accessed"]


x = shape((1024, 512))
product = accessed(jnp.matmul, x, shape((512, 256)))
fused = accessed(nn.swiglu, x, x)
in_three = accessed(jax.nn.sigmoid, x) + 2 * accessed(jnp.multiply, x, x)

# %% tags=["fold"]
rows = [("x @ w", product), ("swiglu", fused), ("swiglu as three programs", in_three)]
table("Bytes accessed", ("program", "bytes"), rows)

# %% [markdown]
# ### MFU of published runs
#
# Time can only be measured on real hardware, so we take that of others: a step of a model of 22
# billion parameters on 8 A100, and the tokens that PaLM, with 540 billion, took in a second.

# %%
megatron, a100_peak = find_model("megatron-22b"), a100.device.peak_flops["bf16"]
of_model = flops.step_flops(megatron, 4, 2048)  # 4 sequences of 2048 tokens
runs = []
for remat, seconds in (("full", 1.42), ("selective", 1.10)):
    done = flops.hardware_flops(megatron, 4, 2048, remat=remat)
    fractions = [flops.mfu(count, seconds, 8, a100_peak) for count in (of_model, done)]
    runs.append((remat, seconds, *(round(100 * one, 1) for one in fractions)))
tpu_v4 = find_cluster("tpu-v4").device.peak_flops["bf16"]
palm = 238_300 * flops.flops_per_token(find_model("palm-540b"), 2048) / (6144 * tpu_v4)

# %% tags=["fold"]
headers = ("recomputed", "seconds", "MFU %", "HFU %")
table("22 billion parameters on 8 A100 (seconds: Korthikanti et al. 2022, table 5)", headers, runs)
print(f"PaLM on 6144 TPU v4: {palm:.1%} MFU\n")
assert [row[2:] for row in runs] == [(32.3, 42.9), (41.7, 42.4)]
assert round(palm, 3) == 0.462

# %% [markdown]
# Recomputing everything has the higher HFU, and is still slower by 0.32 s. (The second run also has
# sequence parallelism, lesson 12.) So it is MFU that says how well a run uses its hardware. That of
# PaLM is what its paper prints.
#
# ### Tokens that hide an all-reduce
#
# All these clusters have H100. The longer a network takes for the gradients, the more tokens each
# device needs, or it waits.

# %%
one_card = replace(h100, between=Link(0, 50e9 / 8))  # which the 8 devices of a node share
runs = {
    "8 H100, NVLink": (h100, Layout(dp=8), 2),
    "64 H100": (h100, Layout(dp=64), 2),
    "1,024 H100": (h100, Layout(dp=1024), 2),
    "1,024 H100, gradients in float32": (h100, Layout(dp=1024), 4),
    "1,024 H100, one card a node": (one_card, Layout(dp=1024), 2),
}
needed = {
    name: float(roofline.tokens_to_hide(layout, "dp", cluster, peak, parameter_bytes=size))
    for name, (cluster, layout, size) in runs.items()
}

# %% tags=["fold"]
rows = [(name, round(tokens)) for name, tokens in needed.items()]
table("Tokens per device that hide the all-reduce of gradients", ("", "tokens"), rows)
assert [row[1] for row in rows] == [1923, 2163, 2453, 4906, 19625]
counts, curves = range(0, 8001, 50), {}
for name, tokens in needed.items():
    if name != "64 H100":  # it is between its neighbours
        curves[name] = [100 * min(1, count / tokens) for count in counts]
axes = "tokens on each device", "percent of the backward pass that computes"
draw("04_tokens", Curves("How busy a device is, at most", *axes, counts, curves))

# %% [markdown]
# Between nodes it takes about a quarter more tokens than inside one, as long as all cards are used.
# This assumes that every all-reduce has a backward pass beside it; what is exposed at the end comes
# on top.
#
# ## Compare

# %%
parts = {"parameters": 2 * N, "gradients": 2 * N, "optimizer": 12 * N}
held.compare(ADAM_MIXED.total * N, parts)
every = flops.step_flops(llama, 1, S)
products = [one for one in every if one.name in ("scores", "attended")]
attention = total(products) / S
work.compare(step / S, {"weights": step / S - attention, "queries, keys, values": attention})
rate.compare(bandwidth / (2 * (N - llama.vocab * llama.hidden)))
apart.compare(in_three, {"sigmoid": 2 * 2**21, "first product": 3 * 2**21, "second": 3 * 2**21})
hide.compare(needed["1,024 H100"])

# %% [markdown]
# 128 GB are more than an H100 has; lesson 09 shards them. The second answer is more than `6*N`
# because of attention, although the embedding is no product. As one program, `swiglu` accesses
# three arrays in place of eight. For the fifth, 989e12 / 400e9 = 2,473 is the simple answer, and
# (n-1)/n for 128 nodes makes it 2,453.
#
# The FLOPs that were measured agree with the formulas exactly, except for what is recomputed, where
# they are fewer. For *selective* the formulas count both products of attention, as Megatron-LM's
# papers do, but our decoder keeps the result of the second. For *full* they count entire layers,
# but JAX leaves out the last product of each, because nothing needs it a second time.

# %% tags=["fold"]
little = Architecture(
    "little", layers=2, hidden=64, heads=4, kv_heads=2, vocab=256, ffn=192, gated=True
)
P, count, batch = little.parameters, 4, 4 * B * (T + 1)  # count: Adam's of steps
states = (ADAM_FP32.params + ADAM_FP32.optimizer) * P + count + batch
forward = {one.name: one.value for one in flops.forward_flops(little, B, T)}
model = total(flops.step_flops(little, B, T))
but_last = sum(forward.values()) - forward["mlp"] / 3  # of an MLP's three products
assert measured == [
    ("forward", ADAM_FP32.params * P + batch, model / 3),
    ("none", states, model),
    ("selective", states, model + forward["scores"]),
    ("full", states, model + but_last),
]
intensity = roofline.product_intensity(1024, 512, 256, element_bytes=4)
assert product == 2 * 1024 * 512 * 256 / intensity
assert (fused, in_three) == (3 * 2**21, 8 * 2**21)
assert round(bandwidth / (2 * (N - llama.vocab * llama.hidden))) == 223

# %% [markdown]
# ## On real hardware
#
# - **Nothing reaches its peak**: not arithmetic, memory, or links. Llama 3 405B was trained at 400
#   TFLOP/s on 16,384 H100, an MFU of 41% (table 4 of its paper). At 400 TFLOP/s it takes 992 tokens
#   per device in place of 2,453; links below their bandwidth raise that number again.
# - **FlashAttention** is fusion by hand: the scores are never written to memory.
# - **Papers differ in what they count.** For the second row above, Korthikanti et al. print 41.5%
#   MFU, as their seconds are rounded, and 43.7% HFU, which counts what selective recomputes three
#   times over; an author has confirmed that (NVIDIA/Megatron-LM, issue 523).
# - **On a CPU** bytes and FLOPs are real, but time is not.

# %% tags=["fold"]
at_400 = roofline.tokens_to_hide(Layout(dp=1024), "dp", h100, 400e12)
assert round(float(at_400)) == 992

# %% [markdown]
# ## Exercises

# %%
exercises("04")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B answers on 8 H100 of 80 GB, in 16 bits. It has 70.6 billion parameters, and 80
#    layers with 8 key heads of 128 numbers. How many users with 8192 tokens each can it serve at
#    once, if activations are left out?
#
# <details><summary>Answer</summary>
#
# Parameters take 141 GB of 640 GB. A token has a key and a value of 8 * 128 numbers in each layer:
# `2 * 80 * 1024 * 2` = 327,680 bytes. That is 2.68 GB for each user, so 185 users. If each
# of the 64 query heads had a key head of its own, it would be 23.
#
# </details>
#
# 2. How many days do 1,024 H100 take to train Llama 3 8B on 15 trillion tokens, at an MFU of 40%?
#    Estimate with `6*N`, then count attention on sequences of 8192, too.
#
# <details><summary>Answer</summary>
#
# `6 * 8.03e9 * 15e12` = 7.2e23 FLOPs, at `1024 * 989e12 * 0.4` = 4.05e17 a second: 1.78 million
# seconds, 20.6 days. With attention it is 1.2 times as much: 24.8 days.
#
# </details>
#
# 3. Llama 3 405B was trained with 16.8 million tokens in a batch, on 16,384 H100. Could data
#    parallelism over all of them hide what it sends? In fact tp=8 filled the nodes, and pp=16 split
#    the layers (table 4 of the paper). Does it hide now?
#
# <details><summary>Answer</summary>
#
# A device has 1,024 tokens of the batch, and needs about 2,470: no. With tp and pp a device holds
# 1/128 of the parameters, so it sends 1/128 of the bytes for the same FLOPs. But the group that
# reduces its gradients has one device of each node, and so one card of 50 GB/s. It takes
# `989e12 / 50e9 / 128` = 155 tokens on each device: yes, if the all-reduce has all of the backward
# pass beside it. A replica of the model has 16 sequences of the batch, that is 16 microbatches of
# one. The last of them alone, with 64 tokens for each device, would not hide it.
#
# </details>
#
# ## Sources
#
# Williams et al. 2009, *Roofline*. Narayanan et al. 2021, *Efficient Large-Scale Language Model
# Training on GPU Clusters Using Megatron-LM*. Chowdhery et al. 2022, *PaLM*, appendix B (MFU).
# Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*. Dao et
# al. 2022, *FlashAttention*. Grattafiori et al. 2024, *The Llama 3 Herd of Models*. Austin et al.
# 2025, *How to Scale Your Model*, "GPUs" (tokens per device). NVIDIA/Megatron-LM,
# `num_floating_point_operations` (half of a causal mask). For the hardware:
# `jaxpar/cost/hardware.toml`.
#
# | here | elsewhere |
# |---|---|
# | `step_flops` | PyTorch `FlopCounterMode`, Megatron `num_floating_point_operations` |
# | `training_memory` | Megatron `report_theoretical_memory` |
# | of states alone | DeepSpeed `estimate_zero3_model_states_mem_needs_all_live` |
# | `inference_memory` | Hugging Face `accelerate estimate-memory`, of parameters alone |
# | fusion by `jax.jit` | `torch.compile`; kernels in CUDA or Triton |
