# %% [markdown]
# # Lesson 09: ZeRO
#
# In data parallelism every device holds all parameters, all gradients, and all of the optimizer
# state: n devices hold n copies, and make the same update n times. *ZeRO*, the zero redundancy
# optimizer, leaves each device 1/n of them. Each of its three *stages* shards one more of the
# three, and computes the same result. We look at what each byte is, and at what sharding it costs.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding

from jaxpar.collectives import shards
from jaxpar.cost import zero as cost
from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, program, stablehlo
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import fsdp, zero
from jaxpar.parallel.precision import master_weights
from jaxpar.parallel.remat import scan_layers
from jaxpar.train.step import make_step, shardings
from jaxpar.train.techniques import technique_of
from jaxpar.train.text import batches, read_library

n, mesh = 8, make_mesh("dp=8")
STAGES = ("data parallel", "stage 1", "stage 2", "stage 3")
equal, rows, split = (spec(layout) for layout in ("", "n_dp", "b_dp t"))


def on_devices(function, takes, gives):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


# %% [markdown]
# ## The idea in one picture
#
# Four devices between two steps: p are parameters, g are gradients, and o is the optimizer state,
# each in four parts. The letter behind each says which device updates it. A dot means that the
# device does not hold it.

# %%
quarters, states = np.arange(4), np.array([["p"], ["g"], ["o"]])


def four_devices(stage):
    replicated = np.arange(3)[:, None] < 3 - stage  # of p, g, o
    holds = [replicated | (quarters == device) for device in quarters]
    owners = [np.where(held, quarters, NOBODY) for held in holds]
    return panel(STAGES[stage], [np.where(held, states, ".") for held in holds], owners)


draw("09_stages", Panels("Who holds what", [four_devices(stage) for stage in range(4)]))

# %% [markdown]
# ## Predict
#
# For each parameter Adam keeps two numbers: a mean of its gradients, and one of their squares. In
# float32 a parameter takes 4 bytes, its gradient 4, Adam's state 8. In mixed precision (lesson 07)
# parameters and gradients take 2 bytes each, and the state takes 12, because the optimizer also has
# the parameters in float32. Both make 16 bytes, without activations.
#
# Your turn, before you read on. A model has 7.5 billion parameters, in mixed precision.
#
# 1. How many GB of the states does each of 64 devices hold, in each stage? And if there are 1024?
# 2. A device updates 1/n of the parameters. What must it receive before the update, and what must
#    it send after it? How many bytes is that, compared to an all-reduce of the gradients?
# 3. In stage 3 a device has 1/n of the parameters, but computes with all of them. What has to be
#    sent for that?


# %%
def gigabytes(devices, stage):
    held = cost.training_states(7_500_000_000, cost.ADAM_MIXED, devices, stage)
    return round(held.total / 1e9, 2)


shown = [(k, *(gigabytes(k, s) for s in range(4))) for k in (1, 4, 16, 64, 1024)]
table("GB on each device, 7.5 billion parameters", ("devices", *STAGES), shown)
assert shown[3] == (64, 120, 31.41, 16.64, 1.88)

# %% [markdown]
# This is table 1 of the ZeRO paper. With more devices, stage 1 approaches 4 bytes for each
# parameter, and stage 2 approaches 2. Stage 3 has no such limit. Now a model of ours, in float32,
# on 8 devices: the bytes of arguments (what stays from step to step, which is p, o and Adam's count
# of steps; and a batch), and what a device sends in a step. An all-reduce is a reduce-scatter and
# an all-gather (lesson 03). Stage 1 puts the update between the two, and sends as much. Stage 3
# gathers the parameters in the forward pass, frees them, and gathers them again in the backward
# pass. With m microbatches, stage 1 adds up full gradients and reduces them once; stage 2 reduces
# each.

# %%
settings = Settings(layers=4, d_model=32, heads=2, mlp="gelu")
P, COUNT, BATCH, LENGTH, M = 4 * settings.parameters, 4, 32, 32, 2
batch_bytes = 4 * BATCH * (LENGTH + 1) // n


def predict(stage):
    held = cost.training_states(settings.parameters, cost.ADAM_FP32, n, stage)
    sent = (cost.step_wire_bytes(P, n, stage, m) for m in (1, M))
    return held.params + held.optimizer + COUNT + batch_bytes, *sent


headers = ("", "arguments", "sent", f"sent, m = {M}")
predicted = {stage: predict(stage) for stage in range(4)}
shown = [(STAGES[stage], *row) for stage, row in predicted.items()]
table(f"Predicted, P = {P:,} bytes", headers, shown)

# %% [markdown]
# ## Implement
#
# **Rows are independent.** Adam's update of a parameter depends only on this parameter, its
# gradient, and its state. Such an optimizer is *elementwise*: updating the rows separately gives
# the same result as updating them together. AdamW, momentum and Lion are elementwise. Optimizers
# that look at entire matrices, as Adafactor, LAMB and Muon do, are not.

# %%
adamw = optax.adamw(0.003)
w, g = jax.random.normal(jax.random.key(0), (2, n, 3))


def first_update(w, g):
    return w + adamw.update(g, adamw.init(w), w)[0]


np.testing.assert_array_equal(list(map(first_update, w, g)), first_update(w, g))

# %% [markdown]
# **How leaves are split.** One dim of each leaf is split into n parts: the first one whose size n
# divides. If n divides none, the largest dim is padded with zeros. The padding is removed when a
# leaf is gathered, so it has no effect. Scalars are not worth splitting.

# %%
show(shards.own_shards, shards.gather_shards, zero.init_shards)
tree = {"even": np.ones((6, 16)), "odd": np.ones((5, 9)), "one": np.ones(())}
specs = shards.shard_specs(tree, axis="dp", n=n)
sharded = on_devices(partial(shards.own_shards, axis="dp"), equal, specs)(tree)
for name, leaf in sharded.items():
    print(f"{name}: {leaf.addressable_data(0).shape} of {tree[name].shape}")

# %% [markdown]
# **Stage 1** shards the optimizer state; `init_shards` makes the initial state. Gradients are
# averaged, but each device needs only its shard of the mean. After the update, all devices need the
# new shards of the others. `zero1_update` is yours to write.
#
# **Stage 2** also shards the gradients: it keeps no full gradient from one microbatch to the next
# (`zero2_accumulate`, also yours to write). With one microbatch there is nothing to keep, so our
# programs of stages 1 and 2 are then the same. PyTorch stores gradients in `.grad`, and there stage
# 2 frees each one as soon as it is reduced.
#
# **Stage 3** also shards the parameters: its arguments are shards. Below, the loss gathers them.
# What is the transpose of a gather? Device j's shard went to all devices, so its gradient is the
# sum of the gradients of all devices, and belongs on device j. That is a reduce-scatter, which JAX
# inserts by itself.

# %%
show(zero.zero3_gradients)
x = np.arange(64, dtype=np.float32).reshape(n, n)  # device j has row j


def toy(part, x):  # the gradient of vdot(w, x) with respect to w is x
    like = jax.ShapeDtypeStruct((n,), jnp.float32)
    return zero.zero3_gradients(jnp.vdot, part, x[0], like, axis="dp")[1]


gradient = on_devices(toy, (rows, rows), rows)(jnp.ones(n), x)
print(f"Each device has one element of the mean gradient: {gradient}\n")
np.testing.assert_array_equal(gradient, x.mean(axis=0))

# %% [markdown]
# This simple form gathers everything at once and keeps it: for a while each device holds all
# parameters after all. What we measure gathers one layer, uses it, drops it, and gathers it again
# in the backward pass: `gather_layers`, from lesson 10.
#
# ## Measure
#
# Our decoder, in the four steps of `jaxpar train --mesh dp=8 --zero 0` to `--zero 3`. We read what
# they send with one microbatch and with two, and train 20 steps with two on the source code of
# Python's library.

# %%
start = jax.device_get(init(settings, jax.random.key(0)))
shape = jax.eval_shape(lambda: start)
gathered = fsdp.gather_layers(scan_layers, shape, axis="dp")
of_shards = fsdp.fsdp_loss(loss_fn(settings, gathered), shape, axis="dp")
sharding = NamedSharding(mesh, split)
endless = batches(read_library(), sharding, batch=BATCH, sequence=LENGTH, seed=0)
examples = [next(endless) for _ in range(20)]


def prepare(stage, microbatches):
    layout = Layout(dp=8, zero=stage, microbatch=BATCH // 8 // microbatches)
    technique = technique_of(layout, settings, shape, adamw)
    where = shardings(mesh, (technique.params, technique.state))
    given = jax.device_put((start, adamw.init(start)), where)
    loss = of_shards if stage == 3 else loss_fn(settings)
    return given, make_step(loss, adamw, technique, mesh).lower(*given, examples[0])


def sent(collectives):  # without the loss
    return sum(c.total_wire_bytes for c in collectives if c.operand_bytes > 4)


measured, temp, texts, losses = {}, {}, {}, {name: [] for name in STAGES}
for stage, name in enumerate(STAGES):
    _, lowered = prepare(stage, 1)
    once = stablehlo.read_module(lowered.compiler_ir("stablehlo"))
    texts[stage] = lowered.as_text()
    (params, state), lowered = prepare(stage, M)
    ready = compiled.compile_program(lowered, optimize=True)
    report = program.inspect_compiled(lowered, ready)
    measured[stage] = report.memory.arguments_bytes, sent(once), sent(report.collectives)
    temp[stage] = report.memory.temp_bytes
    for batch in examples:
        params, state, loss = ready.executable(params, state, batch)
        losses[name].append(float(loss))
shown = [(STAGES[stage], *row, temp[stage]) for stage, row in measured.items()]
table("Measured, bytes on each device", (*headers, f"temp, m = {M}"), shown)
axes = "step", "loss, nats for each token"
draw("09_losses", Curves("The loss of each batch", *axes, range(len(examples)), losses))

# %% [markdown]
# ## Compare
#
# The losses are the same. The arguments are as predicted, to the byte: n divides every leaf here.
# Stage 3 sends a little less than predicted: embedding, head and the last norm are at the ends of
# the model, and are gathered once for both passes. In temp, stage 2 saves the accumulator of P
# bytes, less the shard that replaces it and the shard that was just reduced.

# %%
assert texts[1] == texts[2]
for values in losses.values():
    np.testing.assert_allclose(values, losses["data parallel"], rtol=1e-4)
ends = sum(x.nbytes for x in jax.tree.leaves({**start, "layers": None}))
kept = wire_bytes("reduce_scatter", ends, n)
arguments, *wire = measured[3]
measured[3] = arguments, wire[0] + kept, wire[1] + M * kept
assert measured == predicted
saved = (temp[1] - temp[2]) / P
print(f"Stage 3 gathers {ends:,} bytes once. Stage 2 saves {saved:.2f} P.\n")
assert abs(saved - (1 - 2 / n)) < 0.05

# %% [markdown]
# **Mixed precision.** Parameters and gradients are sent in 16 bits: half the bytes. The float32
# parameters are part of the state, so they are sharded from stage 1 on. Here we check the state's
# 12 bytes by its shapes; a CPU computes bfloat16 in float32, so its temp bytes would tell us
# nothing.

# %%
state = jax.tree.leaves(jax.eval_shape(master_weights(adamw).init, shape))
state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in state)
assert state_bytes == cost.ADAM_MIXED.optimizer * settings.parameters + COUNT

# %% [markdown]
# **Clipping is not elementwise.** Gradients are scaled down where their global norm is too large. A
# device knows only the norm of its own shard. `optax.clip_by_global_norm` takes that for the global
# norm, and clips each shard by another factor, which changes the direction. One number from each
# device is enough for the right norm: that is `global_norm_of_shards`, which you will write. Below
# are optax's clip on one device, the same clip on shards, and ours on shards.

# %%
show(zero.clip_shards)
slope = jnp.array([3.0, 4, 0, 0, 0, 0, 0, 0])  # an element on each device
of_optax, ours = optax.clip_by_global_norm(1.0), zero.clip_shards(1.0, axis="dp")
right, _ = of_optax.update(slope, None)
wrong, _ = on_devices(lambda g: of_optax.update(g, None), rows, rows)(slope)
clipped, _ = on_devices(lambda g: ours.update(g, None), rows, rows)(slope)
print(f"{slope} clipped to a norm of 1:", right, wrong, clipped, sep="\n", end="\n\n")
np.testing.assert_allclose([right, clipped], [slope / 5] * 2, rtol=1e-6)

# %% [markdown]
# ## On real hardware
#
# - **Overlap.** Gradients are reduced in buckets (lesson 05) during the backward pass; stage 3
#   gathers the next layer while it computes one.
# - **Links.** Stage 3 waits for parameters where a device has too few tokens to compute meanwhile:
#   fewer than about 2,200 in a node of H100, 2,500 over many nodes with a network card for each
#   GPU, and 100,000 over four home machines with 10 Gb Ethernet (lesson 10 computes them). Where
#   there are fewer, shard inside the node and replicate over nodes.
# - **Batch.** One gather and one reduction send the same bytes for any batch, so more tokens in a
#   microbatch hide them better. More microbatches do not: stage 2 reduces and stage 3 gathers and
#   reduces for each of them, as the table above shows for m = 2.
# - **What remains** are activations (lesson 08), and memory that allocators waste.
#
# ## Exercises

# %%
exercises("09")

# %% [markdown]
# ## Sources
#
# Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*.
# Xu et al. 2020, *Automatic Cross-Replica Sharding of Weight Update*. Zhao et al. 2023, *FSDP*.
#
# | here | PyTorch | DeepSpeed, Megatron |
# |---|---|---|
# | stage 1 | `ZeroRedundancyOptimizer` | `stage: 1`; `--use-distributed-optimizer` |
# | stage 2 | `ShardingStrategy.SHARD_GRAD_OP` | `stage: 2` |
# | stage 3 | `fully_shard`, `FULL_SHARD` | `stage: 3`; `--use-torch-fsdp2` |
# | `clip_shards` | `clip_grad_norm_` on sharded gradients | `gradient_clipping`; `--clip-grad` |
