# %% [markdown]
# # Lesson 15: pipelines
#
# A model too large for one device can be split by layers: device 0 holds the first of them, device
# 1 the next, and so on. Each part is a *stage*, and only activations go from stage to stage. But a
# stage waits for the one before it, so the devices take turns, and most of them wait. *Pipeline
# parallelism* splits the batch into *microbatches*, so that all stages work, each on another one.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P

from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.inspector import compiled, program
from jaxpar.inspector.residuals import saved_residuals
from jaxpar.parallel import gpipe
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.remat import scan_layers
from jaxpar.schedules import Costs, make_table, simulate

n = 4  # devices, and stages

# %% [markdown]
# ## The idea in one picture
#
# F2 is the forward pass of microbatch 2 through the stage of that device, B2 its backward pass. (B
# takes about twice as long as F; here it is drawn as long, to save room.) *Naive*: a microbatch
# starts when the one before it is done. *GPipe*: all forward, then all backward. A microbatch is
# *in flight* from the start of its F to the end of its B.


# %%
def track(name, m):
    return Track(name, simulate(make_table(name, n, m), Costs(B=1)))


draw("15_naive_and_gpipe", Timeline((track("naive", 4), track("gpipe", 4))))

# %% [markdown]
# The idle part of the time is the *bubble*. An entire batch at once, without microbatches, is no
# better than the naive schedule: it is in one stage at a time.
#
# ## Predict
#
# Your turn, before you read on. There are n stages and m microbatches, each of an x of b rows of d
# numbers. A stage takes one *tick* for a microbatch.
#
# 1. After how many ticks is GPipe's forward pass over? For which fraction of them does a device
#    wait?
# 2. How many bytes does a device send, forward and backward, if it sends in each of these ticks?
# 3. The gradient of a stage needs what the forward pass kept. For how many microbatches does a
#    device hold that, at the turn from forward to backward?

# %%
b, d, f, layers = 16, 32, 64, 8
x_bytes = 4 * b * d
ticks = {m: m + n - 1 for m in (1, 4, 8, 16, 32)}
rows = [(m, t, round((n - 1) / t, 3), 2 * t * x_bytes, m) for m, t in ticks.items()]
headers = "m", "ticks forward", "waits", "bytes sent", "microbatches kept"
table(f"Predicted: {n} stages, x of {x_bytes:,} bytes", headers, rows)
for m, _, bubble, *_ in rows:
    simulated = simulate(make_table("gpipe", n, m))
    assert round(simulated.bubble, 3) == bubble and max(simulated.peak_in_flight) == m
assert round((n - 1) / (8 + n - 1), 2) == 0.27 and (n - 1) / 8 == 0.375

# %% [markdown]
# Device i has microbatch t - i at tick t. The last one enters at tick m - 1, counted from 0, and
# needs n - 1 more ticks: m + n - 1 in all, and a device works in m of them. With more microbatches
# the bubble is smaller, but more is kept. The paper finds the bubble small enough from m = 4n on.
#
# Papers give the bubble as one of two fractions. *Of the whole time* it is (n-1)/(m+n-1): so does
# GPipe's paper, and so does the table. *Of the work*, which takes m ticks, it is (n-1)/m: so does
# Megatron-LM's, and it says how much longer a step takes than without a bubble. With n = 4 and
# m = 8 a device waits for 27% of the time, and the step takes 37.5% longer. The exercise
# `bubble_fraction` asks for the first. It has one more argument, `chunks`: a *chunk* is a group of
# consecutive layers that a device holds. Here a device holds one, its stage. In lesson 16 it holds
# several, from different places in the model, and works on one of them at a time.
#
# ## Implement
#
# **One program for all.** In SPMD code every device runs the same program on its own data. So all
# devices do the same in a tick: take an x, call the stage, and send the result on. `ppermute` sends
# only to neighbours, and the parameters of a stage never move. Here is the naive schedule:

# %%
show(gpipe.send_on, gpipe.naive_forward)

# %% [markdown]
# In tick t the batch is on device t. All other devices also call their stage, on zeros or on
# results computed from zeros. Their results are not used, so the gradient with respect to them is
# zero. (Unless a result is nan: a norm without a small constant, say, is nan at zero, and 0 times
# nan is nan.)
#
# **Microbatches.** In the naive loop device 0 takes an input only once, at tick 0. In GPipe it
# takes the next microbatch in every tick, and from the first result on, the last device has a
# result in every tick. That is yours to write: `pipeline_forward`.
#
# **The loss** is on the last device. All others have zero, so the sum over the devices gives it to
# all of them. Here is all that is needed to train:

# %%
show(gpipe.gpipe_loss)

# %% [markdown]
# **The backward pass** is not in the code. The transpose of `lax.scan` is a loop in reverse, and
# the transpose of a permute sends the gradient from target to source. So the gradients enter at the
# last device, and go from device to device to the first, in m + n - 1 ticks: that is GPipe's
# backward pass.
#
# ## Measure
#
# The model has 8 layers, 2 in each stage. We take `jax.grad` of the loss in several ways, always
# with microbatches of 16 rows. *Checkpointed* keeps only the input of the stage, and recomputes the
# rest (lesson 08), as GPipe's authors do.


# %%
def layer_fn(layer, x):
    hidden = jnp.tanh(x @ layer["up"] / d**0.5)
    return x + hidden @ layer["down"] / f**0.5


def error(y, target):
    return jnp.mean((y - target) ** 2)


stage_fn = partial(scan_layers, layer_fn, remat="none")
checkpointed = jax.checkpoint(stage_fn, prevent_cse=False)
by_stage, replicated, mesh = P("pp"), P(), make_mesh("pp=4")


def naive_loss(params, batch):  # the sum over devices is the loss
    y = gpipe.naive_forward(stage_fn, params, batch[0], axis="pp")
    last = jax.lax.axis_index("pp") == n - 1
    return jax.lax.psum(jnp.where(last, error(y, batch[1]), 0.0), "pp")


def on_devices(gradients, mesh=mesh, batch=replicated):
    takes, gives = (by_stage, batch), (replicated, by_stage)
    return jax.jit(jax.shard_map(gradients, mesh=mesh, in_specs=takes, out_specs=gives))


def examples(m):
    x = np.random.default_rng(m).normal(size=(m, b, d)).astype(np.float32)
    return x, np.roll(x, 1, axis=-1)  # to learn: turn each row by one place


def random(key, *shape):
    return jax.random.normal(jax.random.key(key), shape)


params = {"up": random(0, layers, d, f), "down": random(1, layers, f, d)}
gpipe_loss = partial(gpipe.gpipe_loss, loss_fn=error, axis="pp")
losses = {"naive": naive_loss, "GPipe": gpipe_loss(stage_fn)}
losses["checkpointed"] = gpipe_loss(checkpointed)
runs = [("naive", 8), *[(way, m) for way in ("GPipe", "checkpointed") for m in (8, 16)]]
reports, results = {}, {}
for name, m in runs:
    batch = examples(m)
    lowered = on_devices(jax.value_and_grad(losses[name])).lower(params, batch)
    ready = compiled.compile_program(lowered)
    reports[name, m] = program.inspect_compiled(lowered, ready)
    results[name, m] = ready.executable(params, batch)

# %% [markdown]
# An idle device still computes here, so the bubble shows in the arithmetic. *In vain* is the
# fraction of a device's arithmetic whose result is not used. What a microbatch needs in a stage,
# forward and backward, is known: 3 times 2 layers of 2 products (checkpointed, 4 times).

# %%
products = 2 * (layers // n) * 2 * b * d * f  # of one stage, forward
in_vain, sent, shown = {}, {}, []
for (name, m), report in reports.items():
    needed = m * products * (4 if name == "checkpointed" else 3)
    permutes = [one for one in report.collectives if one.kind == "permute"]
    sent[name, m] = sum(one.total_wire_bytes for one in permutes)
    in_vain[name, m] = 1 - needed / report.flops
    times, temp = sum(one.times for one in permutes), report.memory.temp_bytes
    shown.append((name, m, times, sent[name, m], round(in_vain[name, m], 3), temp))
headers = "", "m", "permutes", "bytes sent", "in vain", "temp bytes"
table("The gradient, on each device", headers, shown)

# %% [markdown]
# **Learning.** A pipeline combines with data parallelism (lesson 05): on the mesh pp=4, dp=2 there
# are two pipelines, each with half of every microbatch, and the gradients are averaged over dp.


# %%
def sgd(gradients):
    def step(params, batch):
        loss, found = gradients(params, batch)
        return loss, jax.tree.map(lambda p, g: p - 0.5 * g, params, found)

    return step


def one_device(params, batch):
    return error(stage_fn(params, batch[0].reshape(-1, d)), batch[1].reshape(-1, d))


both = partial(data_parallel_gradients, losses["GPipe"], axis="dp")
steps = {"one device": jax.jit(sgd(jax.value_and_grad(one_device)))}
steps["pp=4, dp=2"] = on_devices(sgd(both), make_mesh("pp=4,dp=2"), P(None, "dp"))
curves = {}
for name, step in steps.items():
    now, curves[name] = jax.device_get(params), []
    for _ in range(40):
        loss, now = step(now, examples(8))
        curves[name].append(float(loss))
rows = [(i, *(round(curve[i], 4) for curve in curves.values())) for i in (0, 13, 26, 39)]
table("Loss", ("step", *curves), rows)

# %% [markdown]
# ## Compare
#
# Ticks, bytes and bubble are as predicted. Only m permutes in each direction carry needed data. The
# naive loop sends full batches, and 3/4 of its arithmetic is in vain. All losses and gradients are
# those of one device.

# %%
for (name, m), fraction in in_vain.items():
    if name == "naive":
        assert fraction == (n - 1) / n and sent[name, m] == 2 * (n - 1) * m * x_bytes
        continue
    assert np.isclose(fraction, (n - 1) / ticks[m])
    assert sent[name, m] == 2 * ticks[m] * wire_bytes("permute", x_bytes, n)
alone = {m: steps["one device"](params, examples(m)) for m in (8, 16)}
for (_, m), (loss, found) in results.items():
    np.testing.assert_allclose(loss, alone[m][0], rtol=1e-4)
    for key, gradient in found.items():
        np.testing.assert_allclose(params[key] - 0.5 * gradient, alone[m][1][key], atol=1e-5)
np.testing.assert_allclose(*curves.values(), rtol=1e-3)
assert curves["one device"][-1] < 0.5 * curves["one device"][0]

# %% [markdown]
# **Memory.** One more microbatch adds what two layers keep, and the result from which the loss is
# computed. When checkpointed, it adds the input of the stage and the result, however many layers
# the stage has.

# %%
one_layer, one_x = jax.tree.map(lambda leaf: leaf[0], (params, examples(1)[0]))
kept = sum(one.bytes for one in saved_residuals(layer_fn, one_layer, one_x, remat="none"))
expected = {"GPipe": layers // n * kept + x_bytes, "checkpointed": 2 * x_bytes}
rows = []
for name, more in expected.items():
    eight, sixteen = (reports[name, m].memory.temp_bytes for m in (8, 16))
    rows.append((name, more, (sixteen - eight) // 8))
    assert abs(rows[-1][2] / more - 1) < 0.01 and eight > ticks[8] * (more - x_bytes)
table("A microbatch more", ("", "bytes predicted", "bytes measured"), rows)

# %% [markdown]
# The loop keeps this for all m + n - 1 ticks. If the batch stays the same, more microbatches are
# smaller microbatches, so what is kept does not grow; but devices are slow at small matrices.
# Another solution is to begin with backward passes before all forward passes are done: lesson 16.
#
# ## On real hardware
#
# - **Links.** A pipeline sends little, so it gets the slowest links, those between nodes. Below, a
#   forward pass of 8192 tokens through 20 of the 80 layers of Llama 3 70B, in bf16, on one device
#   or on 8 tensor parallel ones (lesson 11), each on a node of its own, which all-reduce twice in a
#   layer. A device computes 400 TFLOP/s (Llama 3's paper, table 4), and sends to other nodes by one
#   network card of 50 GB/s (lesson 03).

# %%
x_bytes = 2 * 8192 * 8192  # tokens, d
in_layers = 20 * 2 * wire_bytes("all_reduce", x_bytes, 8)
compute = 1e3 * 2 * (70.6e9 / 4) * 8192 / 400e12
rows = ("pipeline", x_bytes, compute), ("tensor parallel, tp=8", in_layers, compute / 8)
rows = [(name, sent / 1e6, sent / 50e6, ms) for name, sent, ms in rows]
shown = [(name, *(round(value, 1) for value in rest)) for name, *rest in rows]
table("One stage, forward", ("", "MB sent", "ms to send", "ms to compute"), shown)
assert rows[0][2] < rows[0][3] / 100 and rows[1][2] > rows[1][3]

# %% [markdown]
# - **Idle ticks** cost a GPU only power: computing zeros takes as long as waiting. On our simulated
#   devices, which share a few cores, they do cost time. `jaxpar train` runs a pipeline that
#   computes nothing in vain.
# - **Equal stages.** A tick is as long as the slowest stage. The embedding makes the first stage
#   slower, and the head the last: Llama 3 405B has one layer less in each of the two.
# - **Overlap.** While a stage computes one microbatch, the result of another can be on its way.
#   Our loop waits for the permute in every tick; a CPU cannot show the difference.
# - **Nothing is approximate.** The gradients are those of the full batch. Only an operation that
#   combines examples, such as batch norm, sees microbatches instead.
# - Try `jaxpar schedule gpipe --stages 4 --microbatches 8`, and
#   `jaxpar train --mesh pp=4,dp=2 --schedule gpipe --microbatches 8`.
#
# ## Exercises

# %%
exercises("15")

# %% [markdown]
# ## Sources
#
# Huang et al. 2019, *GPipe*. Narayanan et al. 2021, *Efficient Large-Scale Language Model Training
# on GPU Clusters Using Megatron-LM*. Llama Team 2024, *The Llama 3 Herd of Models*.
#
# | here | PyTorch | others |
# |---|---|---|
# | pipeline | `torch.distributed.pipelining` | DeepSpeed: `PipelineModule` |
# | stage | `PipelineStage` | Megatron: `--pipeline-model-parallel-size` of them |
# | GPipe | `ScheduleGPipe` | PaddlePaddle: F-then-B |
# | m | `n_microbatches` | DeepSpeed: `gradient_accumulation_steps` |
# | naive | - | Hugging Face: `device_map="auto"` |
