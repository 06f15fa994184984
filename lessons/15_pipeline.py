# %% [markdown]
# # Lesson 15: pipelines
#
# A model that is too large for one device can be split by its layers: device 0 holds the first few,
# device 1 the next few, and so on. Each part is a *stage*. In the forward pass a stage sends its
# activations to the next stage, and in the backward pass the gradient with respect to its input to
# the previous one. This is far less than what the other splits send, so slow links are enough.
#
# But a stage needs the result of the stage before it. If the batch goes through the stages as a
# whole, the devices take turns, and all but one of them wait. *Pipeline parallelism* splits the
# batch into *microbatches*, and lets the devices work at the same time, each on another microbatch.
# How much waiting is left, what is sent, and what must be kept in memory meanwhile?

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.inspector import inspect
from jaxpar.inspector.residuals import saved_residuals
from jaxpar.parallel import gpipe
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.schedules import Costs, make_table, simulate

n, mesh = 4, make_mesh("pp=4")  # as many stages as devices

# %% [markdown]
# ## The idea in one picture
#
# Each row is a device, and time runs to the right. F2 is the forward pass of microbatch 2 through
# the stage of that device, and B2 is its backward pass. (B takes about twice as long as F; here
# both are drawn equally long, to save room.)
#
# The first schedule is the *naive* one: a microbatch starts when the one before it is done. The
# second is that of *GPipe*: all microbatches go forward, and then all go backward.


# %% tags=["fold"]
def track(name, m):
    return Track(name, simulate(make_table(name, n, m), Costs(B=1)))


draw("15_naive_and_gpipe", Timeline((track("naive", 4), track("gpipe", 4))))

# %% [markdown]
# The time in which a device waits is the *bubble*. In GPipe's schedule device 3 waits while the
# pipeline fills and empties, and device 0 waits from its last F to its first B, equally long.
#
# The lower curves count microbatches *in flight*. A microbatch is in flight on a device from the
# start of its F to the end of its B, because the device keeps its activations for that long. GPipe
# is faster than the naive schedule, but it keeps more.
#
# ## Predict
#
# Take 4 stages on 4 devices and a batch of 8 microbatches. A microbatch has 16 rows, so what goes
# from stage to stage is an array of 16 rows of 32 float32 numbers: 2,048 bytes. A device takes one
# *tick* to bring a microbatch through its stage, forward or backward. At the end of each tick it
# sends the result, in the forward pass to the next device, and in the backward pass to the previous
# one. Our program is a simple one: it sends in every tick, even if it had nothing to do.

# %%
ticks = ask("Ticks of GPipe's forward pass, 4 stages and 8 microbatches", "count")
waits = ask("Percent of these ticks in which a device waits", "count")
sent = ask("Bytes that device 1 sends in a step, forward and backward")
kept = ask("Microbatches in flight on device 0 when the backward pass begins", "count")

# %% [markdown]
# ## Implement
#
# ### A small model
#
# The model has 8 layers, and each of our 4 devices holds 2. The first dim of both arrays in
# `params` counts layers, so the spec `P("pp")` splits them into stages: device 0 gets the layers 0
# and 1. The model learns to shift the numbers of each row by one place. All devices hold the whole
# batch, although only two need it: the first uses the inputs, and the last the targets.

# %%
m, b, d, f, layers = 8, 16, 32, 64, 8
RATE = 0.1


def layer_fn(layer, x):  # layer: up [32, 64], down [64, 32]; x: [16, 32]
    return x + jnp.tanh(x @ layer["up"]) @ layer["down"]


def stage_fn(stage, x):  # the layers of one device, one after the other
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, stage)[0]


def error(y, target):
    return jnp.mean((y - target) ** 2)


def random(key, *shape):
    return jax.random.normal(jax.random.key(key), shape) / shape[-2] ** 0.5


def examples(m):  # inputs and targets, [m, 16, 32] each
    x = np.random.default_rng(m).normal(size=(m, b, d)).astype(np.float32)
    return x, np.roll(x, 1, axis=-1)


params = {"up": random(0, layers, d, f), "down": random(1, layers, f, d)}

# %% [markdown]
# ### One step by hand
#
# All devices run the same program, so in a tick they all do the same: they take an x, run their
# stage, and send the result to the next device with `ppermute`. The parameters never move.
#
# Device i works on microbatch t - i in tick t, so the last device has microbatch t - 3. Before that
# it has nothing useful, and its errors do not count.


# %%
def step_by_hand(stage, batch):
    inputs, targets = batch  # [m, b, d] each
    rank, m = lax.axis_index("pp"), len(inputs)
    to_next = [(i, i + 1) for i in range(n - 1)]

    def loss(stage):
        def tick(received, t):
            entering = inputs[jnp.minimum(t, m - 1)]
            y = stage_fn(stage, jnp.where(rank == 0, entering, received))
            leaving = t - (n - 1)
            counts = (rank == n - 1) & (leaving >= 0)
            e = jnp.where(counts, error(y, targets[jnp.maximum(leaving, 0)]), 0.0)
            return lax.ppermute(y, "pp", to_next), e

        nothing = lax.pcast(jnp.zeros_like(inputs[0]), "pp", to="varying")
        _, errors = lax.scan(tick, nothing, jnp.arange(m + n - 1))
        return lax.psum(errors.sum() / m, "pp")

    value, gradients = jax.value_and_grad(loss)(stage)
    return value, jax.tree.map(lambda w, g: w - RATE * g, stage, gradients)


split = P("pp"), P()  # the layers, and the batch
on_devices = partial(jax.shard_map, mesh=mesh, in_specs=split, out_specs=(P(), P("pp")))
by_hand = jax.jit(on_devices(step_by_hand))

# %% [markdown]
# This is a whole training step.
#
# - **The loop** is a `lax.scan`. What it carries from tick to tick is what the device has received.
#   It begins with zeros, and `pcast` says that this array will differ from device to device.
# - **Waiting devices compute as well**, since the program is the same for all: on zeros while the
#   pipeline fills, and on the last microbatch once more while it empties. The second `jnp.where`
#   keeps these results out of the loss, so the gradient with respect to them is 0. They must be
#   finite, though: if a stage returns nan for an x of zeros, the gradient becomes 0 times nan,
#   which is nan.
# - **The loss** is known on the last device only, and is 0 on all others. So the sum over the
#   devices, `psum`, gives it to all of them.
# - **The backward pass** is not in the code: autodiff writes it. The derivative of a `scan` is a
#   loop over the ticks in reverse, and that of a permute sends the gradient back, from target to
#   source. So the gradient enters at the last device and reaches the first one n - 1 ticks later.
#   That is GPipe's backward pass. (It takes the last microbatch first, unlike our picture; that
#   changes neither time nor bytes.)
#
# We compare two steps with those of one device that holds the whole model, and ask the inspector
# what the pipeline sends. The pair (0, 1) says that device 0 sends to device 1.


# %%
def one_device_loss(params, batch):
    return error(stage_fn(params, batch[0].reshape(-1, d)), batch[1].reshape(-1, d))


@jax.jit
def one_device(params, batch):
    value, gradients = jax.value_and_grad(one_device_loss)(params, batch)
    return value, jax.tree.map(lambda w, g: w - RATE * g, params, gradients)


for name, step in (("one device", one_device), ("pipeline", by_hand)):
    first, now = step(params, examples(m))
    second, now = step(now, examples(m))
    print(f"{name}: loss {first:.4f}, then {second:.4f}")
report = inspect(by_hand, params, examples(m))
for one in report.collectives:
    print(f"{one.kind} of {one.operand_bytes:,} bytes, pairs {one.pairs}")
print()

# %% [markdown]
# The losses are equal. Autodiff wrote the second permute, with all pairs turned round.
#
# ### The library's form
#
# First the naive schedule. `naive_forward` does not split the batch: in tick t, the whole batch is
# on device t, and what the other devices compute does not count.

# %%
show(gpipe.send_on, gpipe.naive_forward)

# %% [markdown]
# In GPipe's schedule, our step by hand added up errors as they came. The library first collects
# the results of all microbatches, in order, so that any loss can be computed from them. That
# function, `pipeline_forward`, is for you to write. The rest is this:

# %%
show(gpipe.gpipe_loss)

# %% [markdown]
# ## Measure
#
# ### Three ways to run the same stages
#
# We take `jax.value_and_grad` of the naive loss and of GPipe's, with 8 and with 16 microbatches of
# 16 rows. *Checkpointed* is GPipe with `jax.checkpoint` around the stage: it keeps only the input
# of the stage, and recomputes the rest in the backward pass (lesson 08), as GPipe's authors do.

# %%
gpipe_loss = partial(gpipe.gpipe_loss, loss_fn=error, axis="pp")
checkpointed = jax.checkpoint(stage_fn, prevent_cse=False)


def naive_loss(stage, batch):  # the whole batch goes through one stage after the other
    y = gpipe.naive_forward(stage_fn, stage, batch[0], axis="pp")
    is_last = lax.axis_index("pp") == n - 1
    return lax.psum(jnp.where(is_last, error(y, batch[1]), 0.0), "pp")


losses = {"naive": naive_loss, "GPipe": gpipe_loss(stage_fn)}
losses["checkpointed"] = gpipe_loss(checkpointed)
runs = [("naive", 8), ("GPipe", 8), ("GPipe", 16), ("checkpointed", 8), ("checkpointed", 16)]
reports, results = {}, {}
for name, count in runs:
    gradients = jax.jit(on_devices(jax.value_and_grad(losses[name])))
    reports[name, count] = inspect(gradients, params, examples(count))
    results[name, count] = jax.device_get(gradients(params, examples(count)))

# %% [markdown]
# Waiting devices compute here, so the bubble shows in the arithmetic that the inspector counts.
# *Wasted* is the percentage of it whose result is not used. The useful part is known: for each
# microbatch a stage has 2 layers of 2 matrix products each, and the backward pass has 2 products
# for each of these. Together they are 3 times the forward pass, or 4 times if the forward pass is
# computed again.

# %% tags=["fold"]
product = 2 * b * d * f
wasted, total_sent, rows = {}, {}, []
for (name, count), report in reports.items():
    useful = count * 2 * 2 * product * (4 if name == "checkpointed" else 3)
    permutes = [one for one in report.collectives if one.kind == "permute"]
    total_sent[name, count] = sum(one.total_wire_bytes for one in permutes)
    wasted[name, count] = 1 - useful / report.flops
    times, temp = sum(one.times for one in permutes), report.memory.temp_bytes
    percent = round(100 * wasted[name, count], 1)
    rows.append((name, count, times, total_sent[name, count], percent, temp))
headers = "", "microbatches", "permutes", "bytes sent", "% wasted", "temp bytes"
table("Loss and gradient, on each device", headers, rows)

# %% [markdown]
# The naive loop has the fewest permutes, but each carries the whole batch, and three quarters of
# its arithmetic is wasted. It also has the most temp, because it keeps what all 4 ticks computed
# for the whole batch. (In the picture, only one microbatch was under way.) With twice the
# microbatches, GPipe needs less than twice the ticks, so a smaller part is wasted.
#
# ### What one more microbatch costs
#
# Temp is the memory for intermediate results. Its growth from 8 to 16 microbatches tells us what
# GPipe keeps for each of them.

# %%
one_layer = jax.tree.map(lambda leaf: leaf[0], params)
residuals = saved_residuals(layer_fn, one_layer, examples(1)[0][0], remat="none")
for one in residuals:
    print(f"{one.bytes:,} bytes, {one.shape}: {one.what.split(' from /')[0]}")
by_layer = sum(one.bytes for one in residuals)
x_bytes = 4 * b * d
expected = {"GPipe": 2 * by_layer + x_bytes, "checkpointed": x_bytes + x_bytes}

# %% tags=["fold"]
growth = {}
for name in expected:
    eight, sixteen = (reports[name, count].memory.temp_bytes for count in (8, 16))
    growth[name] = (sixteen - eight) // 8
rows = [(name, expected[name], growth[name]) for name in expected]
table("One more microbatch, in bytes", ("", "computed", "measured"), rows)

# %% [markdown]
# The list is what a layer keeps for its backward pass: its input x, and two arrays of the hidden
# size. One more microbatch adds that for 2 layers, and the result of the stage, from which the loss
# is computed. Checkpointed, it adds only the input and the result of the stage, however many layers
# the stage has.
#
# ### Two pipelines side by side
#
# A pipeline combines with data parallelism (lesson 05). On the mesh pp=4, dp=2 there are two
# pipelines. Each takes half of the rows of every microbatch, and the gradients are averaged over
# dp. The losses must stay the same.

# %%
both = partial(data_parallel_gradients, losses["GPipe"], axis="dp")


def step_of_both(stage, batch):
    value, gradients = both(stage, batch)
    return value, jax.tree.map(lambda w, g: w - RATE * g, stage, gradients)


rows_split = P("pp"), P(None, "dp")
wide = on_devices(step_of_both, mesh=make_mesh("pp=4,dp=2"), in_specs=rows_split)
steps = {"one device": one_device, "pp=4": by_hand, "pp=4, dp=2": jax.jit(wide)}
curves = {}
for name, step in steps.items():
    now, curves[name] = jax.device_get(params), []
    for _ in range(40):
        value, now = step(now, examples(m))
        curves[name].append(float(value))

# %% tags=["fold"]
rows = [(i, *(round(curve[i], 4) for curve in curves.values())) for i in (0, 13, 26, 39)]
table("Loss", ("step", *curves), rows)

# %% [markdown]
# ## Compare

# %%
simulated = simulate(make_table("gpipe", n, m))
ticks.compare(m + n - 1, {"all microbatches enter": m, "the last one goes on": n - 1})
waits.compare(100 * wasted["GPipe", m])
useful_bytes = 2 * m * x_bytes
unused_bytes = total_sent["GPipe", m] - useful_bytes
sent.compare(total_sent["GPipe", m], {"is needed": useful_bytes, "is not": unused_bytes})
kept.compare(simulated.peak_in_flight[0])

# %% [markdown]
# The last microbatch enters in tick m - 1, counted from 0, and reaches the last device n - 1 ticks
# later. That makes m + n - 1 ticks, and a device works in m of them. So with more microbatches the
# bubble is a smaller part, but more of them are in flight. And if the batch stays the same, each of
# them is smaller, and devices are slow at small matrices.
#
# ### Two fractions for one bubble
#
# The *whole time* of a step goes from its first F to its last B. The *ideal time* is what it would
# take if no device ever waited: m times F and B. The bubble is the difference, and papers divide it
# by one or the other. With p stages (our n), it is
#
# - (p - 1)/(m + p - 1) **of the whole time**, in GPipe's paper (with K for p and M for m). It says
#   for which part of the time a device waits, and is less than 1.
# - (p - 1)/m **of the ideal time**, in the paper on Megatron-LM (Narayanan et al.). It says how
#   much longer a step takes than it ideally would, and can be more than 1.

# %% tags=["fold"]
rows = []
for count in (1, 4, 8, 16, 32):
    now = simulate(make_table("gpipe", n, count))
    whole, ideal = 100 * now.bubble, 100 * (now.makespan / now.ideal - 1)
    rows.append((count, f"{whole:.1f}%", f"{ideal:.1f}%"))
    assert np.isclose(whole, 100 * (n - 1) / (count + n - 1))
    assert np.isclose(ideal, 100 * (n - 1) / count)
table("The bubble of 4 stages", ("microbatches", "of the whole time", "of the ideal time"), rows)

# %% [markdown]
# With 8 microbatches a device waits for 27.3% of the time, and the step takes 37.5% longer than
# ideally. Both are right, so always ask which one is meant. GPipe's authors found the bubble
# negligible from m = 4p on; that is 15.8% of the whole time here. (They recompute activations, and
# a device can do that while it waits.)
#
# The exercise `bubble_fraction` asks for the first fraction. It has one more argument, `chunks`. A
# *chunk* is a group of consecutive layers on one device. Here a device holds one chunk, its stage.
# In lesson 16 it holds v of them, from different places in the model, and each takes 1/v of the
# time of a stage. The pipeline still fills and empties in p - 1 steps, but a step is only as long
# as a chunk.

# %% tags=["fold"]
for (name, count), fraction in wasted.items():
    if name == "naive":
        assert fraction == (n - 1) / n
        assert total_sent[name, count] == 2 * (n - 1) * count * x_bytes
        continue
    assert np.isclose(fraction, (n - 1) / (count + n - 1))
    each = wire_bytes("permute", x_bytes, n)
    assert total_sent[name, count] == 2 * (count + n - 1) * each
    assert max(simulate(make_table("gpipe", n, count)).peak_in_flight) == count
alone = {count: one_device(params, examples(count)) for count in (8, 16)}
for (_, count), (value, found) in results.items():
    np.testing.assert_allclose(value, alone[count][0], rtol=1e-4)
    for key, gradient in found.items():
        stepped = params[key] - RATE * gradient
        np.testing.assert_allclose(stepped, alone[count][1][key], atol=1e-5)
for name in expected:
    assert 1 <= growth[name] / expected[name] < 1.02
    least = (m + n - 1) * (expected[name] - x_bytes)  # the loop keeps all ticks
    assert reports[name, m].memory.temp_bytes > least
for curve in curves.values():
    np.testing.assert_allclose(curve, curves["one device"], rtol=1e-3)
assert curves["one device"][-1] < 0.1 * curves["one device"][0]
assert rows[2] == (8, "27.3%", "37.5%") and rows[3][1] == "15.8%"

# %% [markdown]
# ## On real hardware
#
# - **Slow links are enough.** Below is one forward pass of a sequence of 8192 tokens through 20 of
#   the 80 layers of Llama 3 70B, in bfloat16. Either one device holds them as its stage, or 8
#   devices share them by tensor parallelism (lesson 11), with two all-reduces in each layer. In
#   both cases each device is in a node of its own, and sends through one network card of 50 GB/s
#   (lesson 03). It computes 400 TFLOP/s, as measured for Llama 3 405B (its paper, table 4).

# %% tags=["fold"]
token_bytes = 2 * 8192 * 8192  # tokens, d
in_layers = 20 * 2 * wire_bytes("all_reduce", token_bytes, 8)
compute = 1e3 * 2 * (70.6e9 / 4) * 8192 / 400e12
rows = [("pipeline", token_bytes, compute), ("tensor parallel, tp=8", in_layers, compute / 8)]
shown = [(way, s / 1e6, s / 50e6, ms) for way, s, ms in rows]
shown = [(way, *(round(value, 1) for value in rest)) for way, *rest in shown]
table("20 layers, forward", ("", "MB sent", "ms to send", "ms to compute"), shown)
assert shown[0][2] < shown[0][3] / 100 and shown[1][2] > shown[1][3]

# %% [markdown]
# - **Transfers overlap.** While a device computes a microbatch, the result of the one before can be
#   on its way. Our loop waits for the permute in every tick, and a CPU cannot show the difference.
# - **Wasted arithmetic** costs a GPU power, but no time: it would wait for as long anyway. Our
#   simulated devices share a few cores, so here it costs time.
# - **One program for all devices** with a loop over ticks is also what MaxText, a trainer in JAX,
#   runs (`maxtext/layers/pipeline.py`). In PyTorch each process has its own order of work.
# - **A tick takes as long as the slowest stage.** The first stage also holds the embedding, and the
#   last computes the head and the loss. So each of them has one layer less than the other 14 in
#   Llama 3 405B (its paper, section 3.3.2): `2 * 7 + 14 * 8` are its 126 layers.
# - **The gradients are exact**, those of the whole batch. Only an operation that mixes examples,
#   such as batch norm, sees a microbatch in place of the batch (GPipe, section 2.2).
# - **Try it:** `jaxpar schedule gpipe --stages 4 --microbatches 8` draws the schedule, and
#   `jaxpar train --mesh pp=4,dp=2 --schedule gpipe --microbatches 8` trains with it.
#
# ## Exercises

# %%
exercises("15")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B is split into 8 stages of 10 layers. How many microbatches does GPipe need, so that
#    the bubble is at most 10% of the whole time? A batch has 4,194,304 tokens in sequences of 8192,
#    and 8 such pipelines share it. Can each pipeline have so many microbatches?
#
# <details><summary>Answer</summary>
#
# 7/(m + 7) is at most 0.1 from m = 63 on. The batch has 512 sequences, so that each pipeline gets
# 64. With one sequence in a microbatch, m = 64, and the bubble is 9.9%. With two it would be 18%.
#
# </details>
#
# 2. On 16,384 H100, Llama 3 405B was trained on 16 stages, with 16 sequences for each pipeline in a
#    step (its paper, table 4). Suppose that a microbatch is one sequence, and that the schedule is
#    GPipe's. What is the bubble, as both fractions?
#
# <details><summary>Answer</summary>
#
# 15/31 = 48% of the whole time, and 15/16 = 94% of the ideal time. To shorten it, they interleave
# several chunks on each device (lesson 16). On half as many devices each pipeline had 32 sequences,
# and a device reached 430 TFLOP/s in place of 400.
#
# </details>
#
# 3. Llama 3 70B (d = 8192, 80 layers, bfloat16) is split into 4 stages, with m = 32 microbatches of
#    one sequence of 8192 tokens. How many bytes does a device keep when the backward pass begins,
#    if it keeps the input of each layer? If it keeps only the input of its stage?
#
# <details><summary>Answer</summary>
#
# An input is `8192 * 8192 * 2` bytes = 134 MB. Kept for 20 layers and 32 microbatches that is 86
# GB, more than the 80 GB of an H100. The inputs of the stage alone are 4.3 GB. In exchange, the
# activations of all 20 layers must be recomputed, and held, for one microbatch at a time.
#
# </details>
#
# ## Sources
#
# Huang et al. 2019, *GPipe: Efficient Training of Giant Neural Networks using Pipeline
# Parallelism*, section 2. Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on
# GPU Clusters Using Megatron-LM*, section 2.2. Grattafiori et al. 2024, *The Llama 3 Herd of
# Models*, section 3.3.2 and table 4.
#
# | here | PyTorch | DeepSpeed | Megatron-LM |
# |---|---|---|---|
# | pipeline | `torch.distributed.pipelining` | `PipelineModule` | `get_forward_backward_func` |
# | stages | `PipelineStage` | `num_stages` | `--pipeline-model-parallel-size` |
# | GPipe | `ScheduleGPipe` | - (it runs 1F1B) | - (it runs 1F1B) |
# | m | `n_microbatches` | `gradient_accumulation_steps` | `--micro-batch-size` sets it |
# | naive | - | - | - (Hugging Face: `device_map="auto"`) |
