# %% [markdown]
# # Lesson 07: mixed precision
#
# A number of 16 bits takes half the memory of a number of 32 bits, and half the bytes on a link.
# GPUs also multiply it faster: an H100 at up to 989 TFLOP/s, against 67 in float32. But it is less
# precise. *Mixed precision* uses 16 bits where they are enough, and 32 bits where the lost digits
# would hurt.
#
# So what is lost, and where does it hurt? We train the decoder of lesson 05 on real text in both
# 16-bit formats until each goes wrong, and then we mend it. There are two faults, one for each
# format, and two remedies: a *scale* for the loss, and *master weights*.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import Panels, panel
from jaxpar.inspector import inspect
from jaxpar.model import Settings, init, logits, loss_fn
from jaxpar.parallel import precision
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.precision import LossScaling, cast
from jaxpar.train.text import batches, read_library

n, mesh = 8, make_mesh("dp=8")

# %% [markdown]
# ## The idea in one picture
#
# A float has one bit for the sign, some bits for the *exponent*, which is a power of two, and the
# rest for the *fraction*, which holds the digits. Below, s, e and f mark them (the small letters
# stand for colours). The exponent decides how large and how small a number can be, and the fraction
# decides how close two neighbouring numbers are.

# %% tags=["fold"]
formats = {"float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}
rows, held_by = [], []
for name, (exponent, fraction) in formats.items():
    kinds = [0] + [1] * exponent + [2] * fraction
    rows.append(panel(name, [[["sef"[kind] for kind in kinds]]], [[kinds]], names=[""]))
    found = jnp.finfo(name)
    three = (found.max, found.smallest_normal, found.smallest_subnormal, found.eps)
    held_by.append((name, *(f"{float(value):.1e}" for value in three)))
draw("07_bits", Panels("Sign, exponent and fraction", rows))
columns = ("format", "largest", "smallest with all digits", "smallest above 0", "step after 1")
table("What the formats can hold", columns, held_by)

# %% [markdown]
# bfloat16 is the first half of a float32. It has the same exponents, and so the same range, but
# fewer than three decimal digits. float16 has a little more than three digits, but its range is
# small: above 65,504 it *overflows* to infinity, and below 3e-8, which is half of its smallest
# number, it *underflows* to 0.
#
# Remember the two weak points. **float16 lacks range, bfloat16 lacks digits.** Each will cost us a
# training run.
#
# ## Predict
#
# Take Adam, and a batch that is split over 8 devices as in lesson 05. "Mixed" means that the
# parameters and gradients are bfloat16, and that the optimizer keeps float32 copies of the
# parameters, beside its two means. Type a number for each question; a calculation will do.

# %%
held = ask("Bytes that one parameter takes between two steps, mixed, with what Adam keeps for it")
sent = ask("Bytes that each device sends for one parameter in one step, mixed")
change = ask("0.0001 is added to a weight of 0.15, in bfloat16. It changes by", "count")

# %% [markdown]
# One more, about float16. The batches of Llama 3 had up to 16 million tokens, and the loss is their
# mean. At the start of training a model knows nothing: with our vocabulary of 256 bytes, it gives
# each byte a chance of 1/256. The gradient of the loss with respect to a *logit* of a byte that
# does not come next is its chance, divided by the number of tokens: 2.4e-10. float16 makes that 0.

# %%
TOKENS = 16_000_000
power = ask("The smallest k for which 2.4e-10 * 2**k has all digits in float16", "count")
gradient = 1 / 256 / TOKENS
print(f"In float16, {gradient:.1e} is {np.float16(gradient)}.\n")

# %% [markdown]
# ## Implement
#
# ### One step by hand
#
# An optimizer adds small updates to large weights, many times. In bfloat16 a weight of 0.15 has its
# next neighbour at 0.151, so an update of 0.0001 is rounded away, however often it is made. The
# remedy is to keep the weights in float32, where every update counts, and to compute with a rounded
# copy. These float32 weights are the *master weights*.
#
# Here is a whole step: stochastic gradient descent with momentum, data parallel over 8 devices, and
# nothing of our library but the loss.

# %%
settings = Settings(layers=1, d_model=32, heads=2, mlp="gelu")
loss = loss_fn(settings)
RATE = 0.1


def step_by_hand(master, momentum, batch):
    low = jax.tree.map(lambda w: w.astype(jnp.bfloat16), master)
    low = lax.pcast(low, "dp", to="varying")  # each device differentiates its own copy
    gradients = jax.grad(loss)(low, batch)  # in bfloat16, like what they belong to
    mean = lax.pmean(gradients, "dp")  # 2 bytes for each number on the link
    wide = jax.tree.map(lambda g: g.astype(jnp.float32), mean)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, wide)
    master = jax.tree.map(lambda w, m: w - RATE * m, master, momentum)
    return master, momentum


specs = (P(), P(), P("dp"))
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=specs, out_specs=P()))

# %% [markdown]
# Two conversions make it mixed: down to bfloat16 before the loss, and up to float32 before the
# optimizer. What is between them is multiplied and sent in 16 bits. The master weights and the
# momentum stay float32 from step to step.
#
# Let us ask the inspector what this step sends. The text that we train on is Python's standard
# library; a token is a byte.

# %%
params = jax.jit(partial(init, settings))(jax.random.key(0))
count = settings.parameters
BATCH, LENGTH = 16, 32
endless = batches(
    read_library(), NamedSharding(mesh, spec("b_dp t")), batch=BATCH, sequence=LENGTH, seed=0
)
tokens = [np.asarray(next(endless)) for _ in range(158)]  # each [16, 33]: 32 and the one after
zeros = jax.tree.map(jnp.zeros_like, params)
report = inspect(by_hand, params, zeros, tokens[0])
for one in report.collectives:
    print(f"{one.times} {one.kind} of {one.operand_bytes:,} bytes of {one.dtype}")
print()

# %% [markdown]
# All arrays of the gradient, in bfloat16, are reduced once. JAX writes an all-reduce for each
# array; a compiler for GPUs merges small ones (lesson 05).
#
# ### The library's form
#
# The same idea fits into an optimizer. `master_weights` wraps any optimizer of optax, and puts
# the float32 weights into its state, so that the training loop sees bfloat16 parameters only.

# %%
show(precision.cast, precision.master_weights)

# %% [markdown]
# Not everything is computed in 16 bits, even inside the model. Operations that add up many numbers
# stay in float32: norms, softmax, and the loss. Which operations these are is called a *policy*.
#
# ### A scale for float16
#
# With float16 in place of bfloat16, the step above would fail: its gradients underflow. The remedy
# uses that differentiation is linear. If the loss is multiplied by k, so is every gradient in the
# backward pass. So multiply the loss by a *scale*, run the backward pass in float16, convert the
# gradients to float32, and divide them by the scale there. Where the scale is too large, some
# gradient overflows, and becomes infinite or NaN; that step must change nothing.
#
# This is `mixed_precision_step`, which is for you to write. It has the two conversions of the step
# by hand, now to float16 and back, the scale, and a check that all gradients are finite.
#
# Which scale? One that is as large as possible without overflow, and nobody knows it in advance. So
# it is found during training: halve it after an overflow, and double it after many good steps. This
# is *dynamic loss scaling*. `update_loss_scale` does it, and is for you to write, too.
# `LossScaling`, of the library, adds *hysteresis*: unless told otherwise, it halves the scale only
# at the second overflow.
#
# ## Measure
#
# ### float16, with and without a scale
#
# A batch of 16 million tokens consists of many microbatches, over devices and in time. Each divides
# its loss by their number, so that the sum of all gradients is the gradient of the mean (in
# PyTorch: `loss / accumulation_steps`). We train with one microbatch in the place of all of them,
# and keep the division. Adam makes the same step for any multiple of the gradients, so this changes
# nothing but the size of the gradients, which is what we want to see.

# %%
STEPS = 50
others = np.concatenate(tokens[-8:])  # text that is not trained on
microbatches = TOKENS // (BATCH * LENGTH)
print(f"A batch of {TOKENS:,} tokens is {microbatches:,} of our microbatches.\n")
adam = optax.adam(3e-3, eps=1e-12)  # eps is less than all gradients
loss_of_others = jax.jit(lambda params: loss(params, others))


def microbatch_loss(params, batch):
    return loss(params, batch) / microbatches


@jax.jit
def in_float32(params, state, batch, scale):
    gradients = jax.grad(microbatch_loss)(params, batch)
    updates, state = adam.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, True


@jax.jit
def in_float16(params, state, batch, scale):
    step = partial(precision.mixed_precision_step, microbatch_loss)
    return step(params, state, batch, adam, scale=scale)


# %% [markdown]
# We train three times: in float32; in float16 with scale 1, which is no scale; and in float16 with
# a dynamic scale that begins at `2**32`, as Megatron-LM's does.


# %%
def train(step, scaling):
    now, scale = (params, adam.init(params)), scaling.init()
    losses, powers = [], []
    for number, batch in enumerate(tokens[:STEPS]):
        if number % 5 == 0:
            losses.append(float(loss_of_others(now[0])))
        powers.append(float(jnp.log2(scale.scale)))
        *now, finite = step(*now, batch, scale.scale)
        scale = scaling.update(scale, finite)
    return now[0], [*losses, float(loss_of_others(now[0]))], powers


always_1 = LossScaling(1.0, factor=1.0, backoff=1.0)
dynamic = LossScaling(2.0**32, growth_interval=10, hysteresis=1)
trained, exact, _ = train(in_float32, always_1)
_, stalled, _ = train(in_float16, always_1)
_, scaled, powers = train(in_float16, dynamic)

# %% tags=["fold"]
curves = {"float16, scale 1": stalled, "dynamic": scaled, "float32": exact}
axes, steps = ("step", "loss, nats for each token"), range(0, STEPS + 1, 5)
title = "Loss of other text: float16 with and without a scale"
assert round(powers[0]) == 32 and round(powers[2]) == 31  # the first or the second overflows
assert 2 <= np.sum(np.diff(powers) < 0) <= 8  # steps that were skipped
draw("07_underflow", Curves(title, *axes, steps, curves))
shown = {"dynamic": powers}
draw("07_scale", Curves("The scale of the loss", "step", "log2 of the scale", range(STEPS), shown))

# %% [markdown]
# Without a scale, training stalls. With one, the curve is nearly that of float32. At a scale of
# `2**32` some gradients of the first or of the second step overflow, so that step is skipped, and
# the scale is halved. Later it is doubled after every 10 good steps (by default after 1,000 in
# Megatron-LM, and 2,000 in PyTorch), and halved when that was too much: a few steps more are
# skipped.
#
# ### How many gradients fit
#
# The backward pass begins at the logits. Here are all gradients with respect to logits of one
# microbatch, at the start of training: which part of them can float16 represent?

# %%
seen = jax.jit(partial(logits, settings))(params, tokens[0][:, :-1])
wrong = jax.nn.softmax(seen) - jax.nn.one_hot(tokens[0][:, 1:], settings.vocabulary)
sizes = np.abs(wrong) / TOKENS
edges = [0, 2.0**-25, 2.0**-14, 2.0**16, np.inf]  # where float16 rounds to 0, loses digits, ends
shares = []
for exponent in (0.0, powers[-1]):
    percent = 100 * np.histogram(sizes * 2**exponent, edges)[0] / sizes.size
    shares.append((f"2**{exponent:.0f}", *percent.round(1).tolist()))
columns = ("scale", "become 0", "lose digits", "fit", "overflow")
table("Gradients with respect to logits in float16, in percent", columns, shares)
assert shares[0][1] > 99 and shares[1][3] > 99

# %% [markdown]
# ### bfloat16, with and without master weights
#
# We take the parameters that were trained in float32, and train them further on 8 devices, with a
# small learning rate, as at the end of a long run. There are three ways: everything in bfloat16,
# mixed with master weights, and everything in float32. bfloat16 needs no scale, since it has the
# range of float32.


# %%
def start(way):
    low = trained if way == "float32" else cast(trained, jnp.bfloat16)
    optimizer = optax.adam(1e-4)
    if way == "mixed":
        optimizer = precision.master_weights(optimizer)
    return optimizer, low, optimizer.init(low if way == "bfloat16" else trained)


def on_devices(optimizer):
    def step(params, state, batch):
        _, gradients = data_parallel_gradients(loss, params, batch, axis="dp")
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    takes = (P(), P(), P("dp"))
    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=takes[:2]))


# %% [markdown]
# The inspector reads each program before it runs: the bytes of its arguments, and what it sends.
# While it runs, we count the weights that a step changes at all.

# %%
measured, losses, moved = {}, {}, {}
for way in ("bfloat16", "mixed", "float32"):
    optimizer, *now = start(way)
    step = on_devices(optimizer)
    report = inspect(step, *now, tokens[0])
    arrays = [leaf for leaf in jax.tree.leaves(now) if leaf.ndim]  # without Adam's count of steps
    states = sum(array.nbytes for array in arrays)
    wires = sum(one.wire_bytes for one in report.collectives if one.operand_bytes > 4)  # no loss
    measured[way] = states / count, wires / count
    losses[way], moved[way] = [], []
    for number, batch in enumerate(tokens[:150]):
        if number % 15 == 0:
            losses[way].append(float(loss_of_others(cast(now[0], jnp.float32))))
        old, now = jax.device_get(now[0]), step(*now, batch)
        changed = jax.tree.map(lambda a, b: np.sum(a != b), old, jax.device_get(now[0]))
        moved[way].append(100 * sum(jax.tree.leaves(changed)) / count)
    losses[way].append(float(loss_of_others(cast(now[0], jnp.float32))))

# %% tags=["fold"]
title = "Loss of other text: bfloat16 with and without master weights"
draw("07_rounding", Curves(title, *axes, range(0, 151, 15), losses))
shown = [(way, *measured[way], round(np.mean(moved[way]), 1)) for way in losses]
columns = ("", "bytes held", "bytes sent", "percent changed")
table("For each parameter, and weights that a step changes", columns, shown)

# %% [markdown]
# ## Compare

# %%
held.compare(measured["mixed"][0], {"the parameter": 2, "its master weight": 4, "two means": 8})
sent.compare(measured["mixed"][1], {"reduce-scatter half": 1.75, "all-gather half": 1.75})
change.compare(float(jnp.bfloat16(0.15) + jnp.bfloat16(0.0001) - jnp.bfloat16(0.15)))
power.compare(float(np.ceil(np.log2(2.0**-14 / gradient))))

# %% [markdown]
# Mixed precision does not save memory of states. Between two steps it takes 14 bytes for each
# parameter, where float32 takes 12; with the gradient both take 16. What it saves is half of what
# is sent, half of the activations (lesson 08), and time.
#
# In bfloat16 alone, nine of ten weights do not change, step after step: the update is less than
# half the distance to the next number. With master weights few of the rounded weights change in a
# single step either, but each does, once its master weight has moved far enough.

# %% tags=["fold"]
for way, states, bytes_each in (("float32", ADAM_FP32, 4), ("mixed", ADAM_MIXED, 2)):
    sent_each = wire_bytes("all_reduce", bytes_each, n)
    assert measured[way] == (states.params + states.optimizer, sent_each)
assert 5 < np.mean(moved["bfloat16"]) < 15


def learned(losses):
    return losses[0] - losses[-1]


assert learned(stalled) < 0.5 * learned(exact)
assert learned(scaled) > 0.95 * learned(exact)
assert learned(losses["bfloat16"]) < 0.6 * learned(losses["float32"])
assert abs(losses["mixed"][-1] - losses["float32"][-1]) < 0.01

# %% [markdown]
# ## On real hardware
#
# - **bfloat16 is the usual choice.** Google's TPUs have had it since TPUv2, the first for training
#   (Norrie et al. 2021), and NVIDIA's GPUs since the A100 of 2020. Without a scale there is one
#   thing less that can go wrong.
# - **Products of 16-bit numbers** are added up in float32 by the matrix units, and rounded at the
#   end (Micikevicius et al. 2018, section 3.3). A CPU converts to float32 first. So this lesson
#   shows the right rounding, but neither the speed nor the memory of activations that 16 bits save.
# - **Sums over devices** in 16 bits lose digits with every addition. So many programs add and send
#   gradients in float32, at twice the bytes (Llama 3, section 3.3.2). Megatron-LM does that with
#   bfloat16 unless told otherwise, and so keeps 18 bytes for each parameter, not our 16 (Megatron
#   Core guide, "Distributed Optimizer").
# - **All devices must agree** to skip a step. Where each holds only a shard of the gradients, that
#   takes an all-reduce of one number.
# - **8 bits.** An H100 multiplies FP8, with 4 or 5 bits of exponent, twice as fast as bfloat16. The
#   range is so small that each array, or each block of it, has a scale of its own (Micikevicius et
#   al. 2022; DeepSeek-V3 was trained so, section 3.3 of its report).
#
# ## Exercises

# %%
exercises("07")

# %% [markdown]
# ## On paper
#
# 1. How many bytes do parameters, gradients, master weights and Adam's means of Llama 3 8B take, in
#    the form of this lesson? On how many devices of 80 GB must they be split, if nothing else is
#    stored?
#
# <details><summary>Answer</summary>
#
# 8.03 billion parameters times 16 bytes are 128 GB: two devices, each of which has 16 GB left for
# activations. One device cannot hold them, so plain data parallelism is impossible; lesson 09
# shards them.
#
# </details>
#
# 2. A weight is 1.0, and each step adds 0.003. How many steps does it take in bfloat16 until the
#    weight is 2?
#
# <details><summary>Answer</summary>
#
# It never is. The next number after 1 is `1 + 2**-7` = 1.0078, and 1.003 is nearer to 1, so every
# step is rounded away. In float32 it takes 334 steps.
#
# </details>
#
# 3. A run's dynamic scale settles at `2**10` in place of the usual `2**16`. What has happened to
#    the gradients, and is it a reason to worry?
#
# <details><summary>Answer</summary>
#
# The largest gradient has become 64 times as large as usual, so that any larger scale overflows.
# The small ones now have 6 bits less room above underflow. A scale that falls and stays low is an
# early sign of a run that diverges, and worth a look at the norm of the gradient.
#
# </details>
#
# ## Sources
#
# Micikevicius et al. 2018, *Mixed Precision Training*. Kalamkar et al. 2019, *A Study of BFLOAT16
# for Deep Learning Training*. Micikevicius et al. 2022, *FP8 Formats for Deep Learning*.
# DeepSeek-AI 2024, *DeepSeek-V3 Technical Report*. Norrie et al. 2021, *The Design Process for
# Google's Training Chips: TPUv2 and TPUv3*. Grattafiori et al. 2024, *The Llama 3 Herd of Models*,
# sections 3.3.2 and 3.4.1. Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training
# Trillion Parameter Models*, section 3.1. NVIDIA's data sheet of the H100 SXM.
#
# | here | PyTorch | DeepSpeed | Megatron-LM |
# |---|---|---|---|
# | policy | `torch.autocast` | `fp16`, `bf16` | `--fp16`, `--bf16` |
# | `LossScaling` | `GradScaler` | `loss_scale_window` | `--loss-scale-window` |
# | hysteresis | - | `hysteresis` | `--hysteresis` |
# | master weights | float32 parameters | `FP16_Optimizer` | main parameters |
# | gradients in float32 | `reduce_dtype` | `grad_accum_dtype` | no `--grad-reduce-in-bf16` |
