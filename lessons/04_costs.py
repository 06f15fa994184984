# %% [markdown]
# # Lesson 04: costs
#
# Does it fit, and how long does it take? Bytes and operations follow from shapes, seconds from a
# handful of figures of the hardware. So both are known before anything runs. *FLOPs* are
# floating-point operations, FLOP/s how many in a second. GB is 1e9 bytes, GiB is 2^30.

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import optax

from jaxpar import nn
from jaxpar.cost import communication, flops, network, roofline
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.inference import inference_memory
from jaxpar.cost.memory import training_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.terms import total
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED, States
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Roofline
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel.remat import scan_layers

llama, h100 = find_model("llama3-8b"), find_cluster("h100")
N, S, device = llama.parameters, 8192, h100.device  # S: tokens of a sequence
shape = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)

# %% [markdown]
# ## The idea in one picture
#
# Llama 3 8B on one device: trained on one sequence of 8192 tokens at a time, keeping only the input
# of each layer (lesson 08); and answering 16 people at once, each with as many tokens.

# %%
training = training_memory(llama, Layout(remat="full"), sequence=S)
answering = inference_memory(llama, batch=16, sequence=S)
bars = {"training": training, "answering": answering}
for use, terms in bars.items():
    bars[use] = {term.name: term.value / 1e9 for term in terms}
limit = "an H100", device.memory_bytes / 1e9
draw("04_memory", Bars("Llama 3 8B on one device", "GB", bars, limit))
assert total(answering) < device.memory_bytes < total(training)

# %% [markdown]
# The *states of training* are parameters, gradients and optimizer states. They do not depend on the
# batch. Beside the parameters, answering holds the keys and values of all tokens so far. *Logits*
# are the output of the head, a number for each token and each entry of the vocabulary; they are
# counted with their gradient. One layer is *recomputed* at a time. *Outside* of the layers little
# is kept.
#
# ## Predict
#
# Your turn, before you read on.
#
# 1. Adam keeps two numbers for each parameter. In float32, how many bytes does a parameter take
#    while it is trained? And with 16 bits for arithmetic, and float32 for the optimizer?
# 2. How many FLOPs does a token take on its way forward, for each parameter? And in training?
# 3. A product of [1, k] by [k, n] reads k*n weights. Does a device wait for its arithmetic or for
#    its memory? And with [4096, k]?
# 4. The gradients of 8 devices, 2 bytes for each parameter, are to be added up. Each device has one
#    link to the others. On which kind of link does that take longer than the step itself: NVLink,
#    PCIe, InfiniBand, 10 Gb Ethernet?
#
# **States.** In mixed precision, the optimizer also has the parameters in float32. Do not count
# them twice: they are among its 12 bytes.

# %%
kinds = {"Adam, float32": ADAM_FP32, "Adam, mixed": ADAM_MIXED}
kinds |= {f"answering, {8 * b:g} bits": States(b, 0, 0) for b in (2, 1, 0.5)}
rows = []
for use, each in kinds.items():
    size = round(each.total * N / 1e9, 1)
    rows.append((use, *vars(each).values(), size))
headers = ("", "parameter", "gradient", "optimizer", "GB for Llama 3 8B")
table("Bytes of states for each parameter", headers, rows)
assert [row[4] for row in rows] == [128.5, 128.5, 16.1, 8.0, 4.0]

# %% [markdown]
# **FLOPs.** A product of [m, k] by [k, n] takes m*n sums of k products: 2mkn. So each element of a
# matrix takes 2 FLOPs for each token. For each product, the backward pass has two: one for the
# gradient with respect to the input, and one for that with respect to the weights. That makes 6 in
# all. Attention adds two products without weights, of every query with every key. A causal mask
# leaves half of their results unused. Whether they are computed depends on the program:
# FlashAttention (lesson 14) skips the blocks that the mask hides. To count them in full is a
# convention, that of the papers on Megatron-LM and of PaLM's MFU (below), and it is used here, too.
# The embedding only looks up rows, which is not a product; the head is one. Everything else takes
# few FLOPs.

# %%
rows = []
for one in flops.layer_flops(llama, batch=1, sequence=S):
    rows.append((one.name, one.formula, round(one.value / S / 1e6, 1)))
headers = ("product", "FLOPs", "millions a token")
table("A layer of Llama 3 8B, forward", headers, rows)
step = total(flops.step_flops(llama, 1, S))
ratio = step / (6 * N * S)
print(f"A step is {ratio:.2f} times 6 FLOPs for each parameter and token.\n")
assert 1.15 < ratio < 1.25

# %% [markdown]
# **The roofline.** To multiply, a device must read. *Arithmetic intensity* is FLOPs for each byte
# of memory. Below peak / bandwidth, the *ridge*, the device waits for its memory: it is
# *memory-bound*. Above, it is bound by its arithmetic.
#
# ## Implement
#
# These are the library's own formulas, so what you read is what is computed:

# %%
show(flops.layer_flops, flops.step_flops)
show(roofline.product_intensity, roofline.attainable_flops)

# %% [markdown]
# In 16 bits: training multiplies 8192 tokens by a matrix, and answering one token for each person.
# The keys belong to one person: 4 query heads use each key head, however many people ask.

# %%
mlp = partial(roofline.product_intensity, k=llama.hidden, n=llama.d_ffn)
points = {
    "MLP, 8192 tokens at once": mlp(S),
    "MLP, one token each of 16 people": mlp(16),
    "MLP, one token": mlp(1),
    "queries of a token by its keys": roofline.product_intensity(4, llama.d_head, S),
}
peak, bandwidth = device.peak_flops["bf16"], device.memory_bytes_per_second
ridge = peak / bandwidth
roof = partial(roofline.attainable_flops, peak_flops=peak, memory_bytes_per_second=bandwidth)
draw("04_roofline", Roofline("The roofline of an H100", roof, ridge, points))
print(f"Ridge: {ridge:.0f} FLOPs for each byte. One person gets at most")
print(f"{bandwidth / (2 * N):.0f} tokens a second: each reads all parameters.\n")
assert [one < ridge for one in points.values()] == [False, True, True, True]

# %% [markdown]
# **Fused operators.** An operation that is not a matrix product reads numbers, does little with
# each, and writes them. It is memory-bound on any device, so its time depends on how many arrays it
# reads and writes. `swiglu` is a sigmoid and two multiplications. As three programs, each of which
# reads and writes memory, it accesses 8 arrays in all. *Fused* into one program, it reads two
# arrays and writes one. A compiler fuses operations inside one `jax.jit`.
#
# ## Measure
#
# XLA says how many bytes of memory a compiled program accesses. In float32, as on a CPU:


# %%
def accessed(function, *args):
    compiled = jax.jit(function).lower(*args).compile()
    return compiled.cost_analysis()["bytes accessed"]


x, array = shape((1024, 512)), 4 * 1024 * 512
product = accessed(jnp.matmul, x, shape((512, 256)))
fused = accessed(nn.swiglu, x, x)
apart = accessed(jax.nn.sigmoid, x) + 2 * accessed(jnp.multiply, x, x)
rows = [("x @ w", product), ("swiglu", fused), ("swiglu in three", apart)]
table("Bytes accessed", ("program", "bytes"), rows)

# %% [markdown]
# Now our decoder: what a training step holds as arguments, and what it computes, with each of three
# ways to keep activations (lesson 08). The inspector counts the products in what JAX traced.

# %%
sizes = {"heads": 4, "kv_heads": 2}
settings = Settings(vocabulary=256, layers=2, d_model=64, d_ff=192, **sizes)
little = Architecture("little", 2, 64, vocab=256, ffn=192, gated=True, **sizes)
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
rows = [(k, r.memory.arguments_bytes, r.flops) for k, r in reports.items()]
table("Measured", ("program", "bytes of arguments", "FLOPs"), rows)

# %% [markdown]
# ## Compare
#
# A product reads two matrices and writes one, each once; `swiglu` accesses 3 arrays, or 8. As
# arguments, training holds parameters and optimizer states; gradients exist only inside a step. The
# FLOPs agree exactly. What is recomputed is less than the library's formulas say. For *selective*
# the formulas count both products of attention, as in Megatron-LM, but our decoder keeps the result
# of the second one. For *full* they count entire layers, but JAX leaves out the last product of
# each, because nothing needs it a second time.

# %%
intensity = roofline.product_intensity(1024, 512, 256, element_bytes=4)
assert product == 2 * 1024 * 512 * 256 / intensity
assert (fused, apart) == (3 * array, 8 * array)
P, count, batch = little.parameters, 4, 4 * B * (T + 1)  # count: Adam's of steps
held = (ADAM_FP32.params + ADAM_FP32.optimizer) * P + count + batch
forward = {one.name: one.value for one in flops.forward_flops(little, B, T)}
model = total(flops.step_flops(little, B, T))
but_last = sum(forward.values()) - forward["mlp"] / 3  # of an MLP's three products
assert rows == [
    ("forward", ADAM_FP32.params * P + batch, model / 3),
    ("none", held, model),
    ("selective", held, model + forward["scores"]),
    ("full", held, model + but_last),
]

# %% [markdown]
# ## On real hardware
#
# **Links.** Take the bandwidth of one direction, for one device. Vendors print the sum of both
# directions for NVLink and ICI, and bits for networks: 10 Gb/s are 1.25 GB/s. PCIe joins a device
# to its host, and the devices of a home machine. NVLink joins GPUs; an NVSwitch makes any two GPUs
# of a node neighbours. Ethernet and InfiniBand join nodes, by one or more network cards (NICs) in
# each, which its GPUs share. ICI joins a TPU to its neighbours on a torus. Below is a ring
# all-reduce on 8 devices with one such link each, of 2 bytes for each parameter (a TPU sends both
# ways at once, and takes half that time), and a step of one sequence on each, at a device's peak.
# In the row of InfiniBand every device is on a node of its own and uses one NIC.

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
rows = []
for name, link in links.items():
    time = communication.all_reduce_seconds(2 * N, 8, **vars(link))
    rows.append((name, round(link.bytes_per_second / 1e9, 2), round(time, 3)))
table("An all-reduce", ("link", "GB/s", "seconds"), rows)
print(f"A step of {S} tokens on an H100: {step / peak:.2f} s at its peak.\n")
assert [row[2] > step / peak for row in rows] == [True] * 3 + [False] * 3

# %% [markdown]
# A node of 8 H100 has 8 NICs of 50 GB/s, so 400 GB/s leave it if all of them are used: by eight
# rings, each of which leaves the node by another NIC, or by the hierarchy of lesson 03, in which
# all GPUs send 1/8 of the array between nodes at the same time. Its parts take the sum of their
# times one after another (your exercise `hierarchical_all_reduce_seconds`), and in pieces that
# overlap, the time of the slower part. The same gradients on 64 H100 in 8 nodes:

# %%
inside, between = communication.hierarchical_all_reduce(2 * N, 8, 8)
reduce = "all_reduce", 2 * N, Layout(dp=64), "dp", h100
seconds = {
    "one ring, one NIC of each node": communication.ring_all_reduce(2 * N, 64).seconds(
        h100.between
    ),
    "eight rings, eight NICs": network.flat_ring_seconds(*reduce),
    "hierarchy, one part after another": inside.seconds(h100.inside)
    + between.seconds(h100.between),
    "hierarchy, parts overlapping": network.collective_seconds(*reduce),
}
rows = [(name, round(float(time), 3)) for name, time in seconds.items()]
table("An all-reduce on 8 nodes of 8 H100", ("algorithm", "seconds"), rows)
assert [row[1] for row in rows] == [0.633, 0.079, 0.133, 0.07]
assert rows[0][1] > step / peak > 3 * rows[2][1]

# %% [markdown]
# **MFU**, model FLOPs utilization, is the FLOP/s that the model needs as a fraction of the peak:
# the peak for dense matrices, because the sparse one that vendors print is twice as high. *HFU*
# counts what the hardware does, so it includes what is recomputed. A run that recomputes more may
# have the higher HFU and still be slower, as in these published steps of 22 billion parameters on 8
# A100:

# %%
megatron, peak = find_model("megatron-22b"), a100.device.peak_flops["bf16"]
model = flops.step_flops(megatron, 4, 2048)
rows = []
for remat, seconds in (("full", 1.42), ("selective", 1.10)):
    done = flops.hardware_flops(megatron, 4, 2048, remat=remat)
    shares = (100 * flops.mfu(of, seconds, 8, peak) for of in (model, done))
    rows.append((remat, seconds, *(round(share, 1) for share in shares)))
headers = ("remat", "seconds", "MFU %", "HFU %")
table("Korthikanti et al. 2022, table 5", headers, rows)
assert [row[2:] for row in rows] == [(32.3, 42.9), (41.7, 42.4)]
peak = find_cluster("tpu-v4").device.peak_flops["bf16"]
took = 238_300 * flops.flops_per_token(find_model("palm-540b"), 2048)
print(f"PaLM, on 6144 TPU v4: {took / (6144 * peak):.1%} MFU\n")
assert round(took / (6144 * peak), 3) == 0.462

# %% [markdown]
# - The paper prints 41.5% MFU for the second; its seconds are rounded. Its HFU, 43.7%, counts what
#   selective computes again three times over; an author has confirmed that.
# - FlashAttention (lesson 14) is fusion by hand: the scores are never written to memory.
# - A CPU cannot show time, and nothing reaches its peak: not arithmetic, memory or links.
#
# ## Exercises

# %%
exercises("04")

# %% [markdown]
# ## Sources
#
# Williams et al. 2009, *Roofline*. Narayanan et al. 2021, *Efficient Large-Scale Language Model
# Training on GPU Clusters Using Megatron-LM*. Chowdhery et al. 2022, *PaLM*, appendix B (MFU).
# Korthikanti et al. 2022, *Reducing Activation Recomputation*; NVIDIA/Megatron-LM, issue 523.
# Austin et al. 2025, *How to Scale Your Model*. For the hardware: `jaxpar/cost/hardware.toml`.
#
# | here | elsewhere |
# |---|---|
# | `step_flops` | PyTorch `FlopCounterMode`, Megatron `num_floating_point_operations` |
# | `training_memory` | Megatron `report_theoretical_memory` |
# | of states alone | DeepSpeed `estimate_zero3_model_states_mem_needs_all_live` |
# | `inference_memory` | Hugging Face `accelerate estimate-memory`, of parameters alone |
# | fusion by `jax.jit` | `torch.compile`; kernels in CUDA or Triton |
