# %% [markdown]
# # Lesson 07: mixed precision
#
# A number of 16 bits takes half the memory, and half the bytes on a link, of a number of 32 bits,
# and matrix units multiply it several times as fast. But it is less precise. *Mixed precision* uses
# 16 bits for arithmetic, and 32 bits where the loss of precision would hurt. What is lost, and
# where does it hurt? We train the decoder of lesson 05 on real text in both 16-bit formats, until
# each goes wrong, and then mend it.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding

from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import Panels, panel
from jaxpar.inspector import compiled, program
from jaxpar.model import Settings, init, logits, loss_fn
from jaxpar.parallel import precision
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.precision import LossScaling, cast
from jaxpar.train.text import batches, read_library

n, mesh = 8, make_mesh("dp=8")
equal, split = (NamedSharding(mesh, spec(layout)) for layout in ("", "b_dp t"))
bf16 = jnp.bfloat16

# %% [markdown]
# ## The idea in one picture
#
# The bits of a float: one for the sign, some for the *exponent*, a power of two, and the rest for
# the *fraction*, the digits. float16 has few exponents: it overflows and underflows. bfloat16 is
# the first half of a float32: the same exponents, and few digits.

# %%
formats = {"float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}
rows, shown = [], []
for name, (exponent, fraction) in formats.items():
    kinds = [0] + [1] * exponent + [2] * fraction
    bits = [["sef"[kind] for kind in kinds]]
    rows.append(panel(name, [bits], [[kinds]], names=[""]))
    found = jnp.finfo(name)
    three = (found.max, found.smallest_subnormal, found.eps)
    shown.append((name, *(f"{float(value):.1e}" for value in three)))
draw("07_bits", Panels("Sign, exponent and fraction", rows))
columns = ("format", "largest", "smallest above 0", "step after 1")
table("What they hold", columns, shown)

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. Take Adam, P parameters, and a batch that is split over 8 devices
# as in lesson 05. "bfloat16" holds everything in bfloat16. "mixed" holds the parameters and
# gradients in bfloat16, and beside them float32 parameters for the optimizer.
#
# 1. In float32, in bfloat16, and mixed: how many bytes does each parameter take between two steps,
#    and how many bytes does each device send in a step?
# 2. Llama 3 had up to 16 million tokens in a batch, and the loss is the mean over them. About how
#    large is the gradient with respect to a logit at the start, and what is it in float16? We have
#    256 possible tokens.
# 3. A weight of 0.15 is to become 0.1501. What does it become in bfloat16?

# %%
held = {
    "float32": ADAM_FP32.params + ADAM_FP32.optimizer,
    "bfloat16": 2 + 2 * 2,  # the parameter, and Adam's two means
    "mixed": ADAM_MIXED.params + ADAM_MIXED.optimizer,
}
gradient_bytes = {"float32": 4, "bfloat16": 2, "mixed": 2}
sent = {k: wire_bytes("all_reduce", b, n) for k, b in gradient_bytes.items()}
shown = [(name, held[name], sent[name]) for name in held]
table("Bytes for each parameter", ("", "held", "sent by a device"), shown)

TOKENS, old, new = 16_000_000, bf16(0.15), bf16(0.1501)
logit = 1 / 256 / TOKENS  # of a token that does not come next
print(f"2. A gradient of {logit:.1e} is {jnp.float16(logit)} in float16.")
print(f"3. 0.15 is {old} in bfloat16, and 0.1501 is {new}.\n")
assert jnp.float16(logit) == 0 and old == new

# %% [markdown]
# So mixed precision saves no memory of states, whatever its name promises: with gradients it takes
# 16 bytes for each parameter either way. It saves half of what is sent, half of the activations
# (lesson 08), and time.
#
# ## Implement
#
# **Rounding.** An optimizer adds small numbers to large ones, many times, and in 16 bits the sum is
# rounded back to where it was. So the optimizer keeps *master weights* in float32, and the model
# computes with a rounded copy.

# %%
show(precision.cast, precision.master_weights)

# %% [markdown]
# It is an optimizer like any other, whose state happens to hold the weights. A *policy* says what
# the precision of the parameters is between steps, and in which precision the loss is computed.
# Operations that add up many numbers are computed in float32 all the same: norms, softmax, and the
# loss.
#
# **Underflow.** In float16 small gradients become 0. If the loss is multiplied by k, so is every
# gradient in the backward pass. So multiply the loss by a *scale*, run the backward pass in
# float16, convert the gradients to float32, and divide them by the scale: that is
# `mixed_precision_step`, for you to write.
#
# **Overflow.** If the scale is too large, some gradient is infinite or NaN. Then the step is
# skipped, and the scale is halved. After many good steps it is doubled. This is *dynamic loss
# scaling*, in `update_loss_scale`, which is also for you to write. The library adds *hysteresis*:
# it forgives a few overflows first.
#
# ## Measure
#
# **In float16.** A batch of 16 million tokens is many microbatches, over devices and in time, and
# each divides its loss by their number, so that the sum of all is the mean (in PyTorch, `loss /
# accumulation_steps`). Here one microbatch represents all of them, because Adam makes the same step
# for any multiple of the gradients. We still divide its loss by their number; otherwise its
# gradients would be so large that they need no scale. We train in float32, in float16 with scale 1,
# and in float16 with a scale that begins high, as Megatron-LM's does. The loss is that of 8 other
# batches.

# %%
settings = Settings(layers=1, d_model=32, heads=2, mlp="gelu")
params = jax.jit(partial(init, settings))(jax.random.key(0))
P, loss = settings.parameters, loss_fn(settings)
BATCH, LENGTH, STEPS = 16, 32, 50
endless = batches(read_library(), split, batch=BATCH, sequence=LENGTH, seed=0)
tokens = [np.asarray(next(endless)) for _ in range(STEPS + 8)]
others = np.concatenate(tokens[STEPS:])
microbatches = TOKENS // (BATCH * LENGTH)
print(f"A batch of {TOKENS:,} tokens is {microbatches:,} of ours.\n")
jitted = jax.jit(lambda params: loss(params, others))
adam = optax.adam(3e-3, eps=1e-12)  # eps is less than all gradients


def loss_after(now):
    return float(jitted(cast(jax.device_get(now[0]), jnp.float32)))


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


def train(step, scaling):
    now, scale = (params, adam.init(params)), scaling.init()
    losses, powers = [], []
    for number, batch in enumerate(tokens[:STEPS]):
        if number % 5 == 0:
            losses.append(loss_after(now))
        powers.append(float(jnp.log2(scale.scale)))
        *now, finite = step(*now, batch, scale.scale)
        scale = scaling.update(scale, finite)
    return now[0], [*losses, loss_after(now)], powers


always_1 = LossScaling(1.0, factor=1.0, backoff=1.0)
dynamic = LossScaling(2.0**32, growth_interval=10, hysteresis=1)
trained, exact, _ = train(in_float32, always_1)
_, stalled, _ = train(in_float16, always_1)
_, scaled, powers = train(in_float16, dynamic)
curves = {"float16, scale 1": stalled, "dynamic": scaled, "float32": exact}
axes, steps = ("step", "loss, nats for each token"), range(0, STEPS + 1, 5)
title = "Loss of other text: float16 with and without a scale"
draw("07_underflow", Curves(title, *axes, steps, curves))
power = {"dynamic": powers}
draw("07_scale", Curves("The scale of the loss", "step", "log2 of the scale", range(STEPS), power))

# %% [markdown]
# The scale is halved until the gradients fit, and then doubled after every 10 good steps. How much
# of the gradients with respect to the logits does float16 represent at the start? They are the
# first gradients of the backward pass.

# %%
seen = jax.jit(partial(logits, settings))(params, tokens[0][:, :-1])
chances = jax.nn.softmax(seen)
wrong = chances - jax.nn.one_hot(tokens[0][:, 1:], settings.vocabulary)
sizes = np.abs(wrong) / (BATCH * LENGTH * microbatches)
edges = [0, 2.0**-25, 2.0**-14, 2.0**16, np.inf]
shown = []
for power in (0.0, powers[-1]):
    percent = 100 * np.histogram(sizes * 2**power, edges)[0] / sizes.size
    shown.append((f"2**{power:.0f}", *percent.round(1).tolist()))
columns = ("scale", "become 0", "lose digits", "fit", "overflow")
table("Gradients by logits in float16, in percent", columns, shown)
assert shown[0][1] > 99 and shown[1][3] > 99

# %% [markdown]
# **In bfloat16.** From there we go on with a small learning rate, as at the end of a run, on 8
# devices, in the three ways of question 1. Each program is compiled once; the inspector reads it,
# and then it trains. We count the weights that a step changes.


# %%
def start(way):
    low = trained if way == "float32" else cast(trained, bf16)
    optimizer = optax.adam(1e-4)
    if way == "mixed":
        optimizer = precision.master_weights(optimizer)
    state = optimizer.init(low if way == "bfloat16" else trained)
    return optimizer, low, state


def on_devices(optimizer):
    def step(params, state, batch):
        both = data_parallel_gradients(loss, params, batch, axis="dp")
        updates, state = optimizer.update(both[1], state, params)
        return optax.apply_updates(params, updates), state

    takes = (equal.spec, equal.spec, split.spec)
    mapped = jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=takes[:2])
    return jax.jit(mapped)


measured, rounded, moved = {}, {}, {}
for way in ("bfloat16", "mixed", "float32"):
    optimizer, *now = start(way)
    now, *given = jax.device_put((now, *tokens[:STEPS]), (equal, *[split] * STEPS))
    lowered = on_devices(optimizer).lower(*now, given[0])
    ready = compiled.compile_program(lowered)
    report = program.inspect_compiled(lowered, ready)
    arguments = report.memory.arguments_bytes - given[0].nbytes // n - 4
    wires = [c.wire_bytes for c in report.collectives if c.operand_bytes > 4]
    measured[way] = (arguments / P, sum(wires) / P)
    rounded[way], moved[way] = [loss_after(now)], []
    for number, batch in enumerate(given, 1):
        old, now = jax.device_get(now[0]), ready.executable(*now, batch)
        changed = jax.tree.map(lambda a, b: np.sum(a != b), old, now[0])
        moved[way].append(100 * sum(jax.tree.leaves(changed)) / P)
        if number % 5 == 0:
            rounded[way].append(loss_after(now))
title = "Loss of other text: bfloat16 with and without master weights"
draw("07_rounding", Curves(title, *axes, steps, rounded))
shown = [(way, round(np.mean(moved[way]), 1)) for way in rounded]
table("Weights that a step changes", ("", "percent"), shown)

# %% [markdown]
# ## Compare
#
# The bytes are as predicted. Without a scale, float16 learns less than half of what float32 does;
# with one, it learns as much, except for the skipped steps. In bfloat16 alone, nine of ten weights
# do not change, step after step. With master weights, few of the rounded weights change in a single
# step either, but each does once its master weight has moved far enough.

# %%
assert measured == {way: (held[way], sent[way]) for way in held}
assert 5 < shown[0][1] < 15


def learned(losses):
    return losses[0] - losses[-1]


assert learned(stalled) < 0.5 * learned(exact)
assert learned(scaled) > 0.95 * learned(exact)
assert learned(rounded["bfloat16"]) < 0.6 * learned(rounded["float32"])
assert abs(rounded["mixed"][-1] - rounded["float32"][-1]) < 0.005

# %% [markdown]
# ## On real hardware
#
# - **bfloat16 needs no scale**: it has the exponents of float32. It is what TPUs, and GPUs since
#   2020, are mostly trained in.
# - **Products** of 16-bit numbers are added up in float32 by matrix units, and rounded at the
#   end. A CPU converts to float32 first, so it shows the right rounding, but neither the speed
#   nor how little memory activations take.
# - **Sums over devices** in 16 bits lose digits with every device. Many programs send gradients in
#   float32, at twice the bytes.
# - **All devices must agree** to skip a step, also where each holds a shard of the gradients.
#
# ## Exercises

# %%
exercises("07")

# %% [markdown]
# ## Sources
#
# Micikevicius et al. 2018, *Mixed Precision Training*. Kalamkar et al. 2019, *A Study of BFLOAT16
# for Deep Learning Training*. Grattafiori et al. 2024 (Llama 3), section 3.4.1.
# Rajbhandari et al. 2020, *ZeRO*, section 3.1.
#
# | here | PyTorch | DeepSpeed | Megatron-LM |
# |---|---|---|---|
# | policy | `torch.autocast` | `fp16`, `bf16` | `--fp16`, `--bf16` |
# | `LossScaling` | `GradScaler` | `loss_scale_window` | `--loss-scale-window` |
# | hysteresis | - | `hysteresis` | `--hysteresis` |
# | master weights | float32 parameters | `FP16_Optimizer` | main parameters |
