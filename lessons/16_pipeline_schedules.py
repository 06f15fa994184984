# %% [markdown]
# # Lesson 16: pipeline schedules
#
# GPipe (lesson 15) idles while the pipeline fills and empties. With more microbatches it idles for
# a smaller fraction of the time, but it keeps activations for each of them. A *schedule* says which
# device does what in which order; other schedules need less memory, or less time. We read,
# simulate, draw and run some.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial
from itertools import zip_longest
from textwrap import fill

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar import backward
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.inspector import compiled, program
from jaxpar.inspector.stablehlo import count_flops
from jaxpar.parallel import pipeline
from jaxpar.schedules import Costs, Table, make_table, rules, simulate
from jaxpar.schedules.generators import breadth_first_schedule
from jaxpar.schedules.published import PUBLISHED
from jaxpar.schedules.ticks import lower

p, mesh, rng = 4, make_mesh("pp=4"), np.random.default_rng(0)


def track(name, transfer=0):
    planned = make_table(name, p, 8)
    f = 1 / planned.chunks  # the smaller a chunk, the shorter its cells
    costs = Costs(f, 2 * f, f, f, transfer)
    return Track(name, simulate(planned, costs), name)


# %% [markdown]
# ## The idea in one picture
#
# A device holds a quarter of the layers, a *stage*. F2 is the forward pass of microbatch 2 through
# it, and B2 is its backward pass, which takes twice as long.

# %%
draw("16_1f1b", Timeline((track("gpipe"), track("1f1b"))))

# %% [markdown]
# The last device can run the backward pass of a microbatch at once. In *1F1B* it does; all other
# devices do a few forwards first, and then alternate between forward and backward. So fewer
# microbatches are *in flight*: their F has begun, and their B is not done.
#
# ## Predict
#
# Your turn, before you read on. There are p devices and m microbatches.
#
# 1. Does 1F1B idle less than GPipe? How many microbatches does device 0 have in flight, and how
#    many does the last device have?
# 2. Give each device two *chunks* of half as many layers: device 0 the first eighth and the fifth,
#    device 1 the second and the sixth, and so on. How long is the idle time now? How much more is
#    sent?
# 3. B computes the gradient with respect to the stage's input, I, and that with respect to its
#    weights, W. Which device waits for I, and which for W? So what can fill the idle time?

# %%
predicted = {}
for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"):
    planned, costs = track(name).simulation.table, track(name).simulation.costs
    paper = PUBLISHED[name].figures(planned, costs)
    kept = (count / planned.chunks for count in paper.in_flight)
    crossed = planned.stages - 1 - (name == "zb-v")  # a V turns on a device
    predicted[name] = float(paper.idle), *kept, 2 * 8 * crossed
shown = [(name, *row) for name, row in predicted.items()]
headers = "", "idle", *(f"kept by {r}" for r in range(p)), "sent"
table("F = 1, B = 2. Kept: microbatches in flight; sent: activations", headers, shown)
assert predicted["1f1b"][:2] == (9, 4) and predicted["interleaved"][0] == 4.5

# %% [markdown]
# 1. It idles as long, (p-1)(F+B). But device 0 has p microbatches in flight, and the last device
#    has 1, however large m is.
# 2. The pipeline fills chunk by chunk, and a chunk takes half as long, so *interleaved* 1F1B idles
#    half as long. It sends more than twice as much, and keeps more than 1F1B.
# 3. The device before waits for I, but no device waits for W: it can be computed when there is
#    nothing else to do. That is *zero bubble*. ZB-H1 is 1F1B with W in the gaps. The devices of
#    ZB-V idle only before their first and after their last cell, which the paper does not count.
#
# ## Implement
#
# **A schedule is data:** a row for each device, and a cell for each action: its stage, kind and
# microbatch. It is an order, not a clock: an action runs as soon as what it needs is done. If
# devices wait for each other in a cycle, it can never run:

# %%
circle = ["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]
try:
    rules.check(Table.parse(circle))
except ValueError as error:
    print(fill(str(error), 98), end="\n\n")

# %% [markdown]
# **Chunks.** Two devices with two chunks each: stages 0 and 2 are on device 0, stages 1 and 3 on
# device 1. Read this table cell by cell, downward. Where does the input of a cell come from? How
# long does a device stay with a chunk? When does it begin with backwards, and with which chunk?

# %%
small = rules.to_ticks(make_table("interleaved", 2, 4)).rows
shown = [[str(cell or ".") for cell in tick] for tick in zip_longest(*small)]
table("Interleaved 1F1B", ("device 0", "device 1"), shown)
show(breadth_first_schedule)

# %% [markdown]
# This function writes a simple schedule: all microbatches through one chunk, then through the next.
# Others are yours to write.
#
# **Run a table by hand**, on one device. An action needs one other action: a forward needs that of
# the stage before, and a backward needs that of the stage after, or, on the last stage, its own
# forward. Here a stage is one layer. `ends` are the additional parameters of the first and the last
# stage, a matrix for each.


# %%
def first_fn(ends, microbatch):
    return microbatch[0] @ ends


def layer_fn(w, x):
    return x + jnp.tanh(x @ w)


def last_fn(ends, y, microbatch):
    return ((y @ ends.T - microbatch[1]) ** 2).mean()


def on_one_device(params, microbatch):
    x = first_fn(params[0], microbatch)
    x, _ = lax.scan(lambda x, w: (layer_fn(w, x), None), x, params[1])
    return last_fn(params[0], x, microbatch)


def by_hand(planned):
    made, pulls, found = {}, {}, jnp.zeros_like(w)
    for _, action, needed in rules.run(planned):
        stage, kind, k = action
        given = made[needed] if needed else first_fn(ends, data[:, k])
        if kind == "F":
            made[action], pulls[stage, k] = jax.vjp(layer_fn, w[stage], given)
            continue
        if needed.kind == "F":  # on the last stage
            given = jax.grad(last_fn, argnums=1)(ends, given, data[:, k])
        of_w, made[action] = pulls.pop((stage, k))(given)
        found = found.at[stage].add(of_w / planned.microbatches)
    return found


L, d = 8, 64
ends, w, data, x = (
    rng.normal(size=shape).astype(np.float32) / 8
    for shape in ((4, d), (L, d, d), (2, 16, 32, 4), (32, d))
)
each = jax.jit(jax.vmap(jax.value_and_grad(on_one_device), (None, 0)))
expected = jax.tree.leaves(each((ends, w), tuple(data)))
found, right = by_hand(make_table("1f1b", L, 2)), expected[2][:2].mean(axis=0)
np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-6)

# %% [markdown]
# **I and W.** For `y = x @ w` they are `dy @ w.T` and `x.T @ dy`, a product each. For any layer,
# JAX can list the operations of the backward pass: those that the gradient with respect to the
# input needs are I, and the others are W.

# %%
show(backward.input_gradient, backward.weight_gradient)


def traced(function, *given):  # the shapes of its results, and its FLOPs
    found = jax.jit(partial(function, layer_fn)).trace(*given)
    module = found.lower().compiler_ir("stablehlo")
    return found.out_info, count_flops(module)


(_, kept), of_f = traced(backward.forward, w, x)
(_, half), of_i = traced(backward.input_gradient, w, kept, x)
_, of_w = traced(backward.weight_gradient, w, kept, half, x)
_, of_b = traced(backward.backward, w, kept, x)
shown = zip("FBIW", (of_f, of_b, of_i, of_w), strict=True)
table(f"Arithmetic of {L} layers", ("", "FLOPs"), shown)
assert of_b == of_i + of_w == 2 * of_f

# %% [markdown]
# In *ZB-V* the layers go down the devices and up again, like a V: device 0 has the first chunk and
# the last. *DualPipeV* has the same V, and splits a backward in two halves only where that helps.

# %%
draw("16_zb_h1", Timeline((track("zb-h1"),)))
draw("16_v", Timeline((track("zb-v"), track("dualpipe-v"))))

# %% [markdown]
# **On a mesh** all devices run the same program, so the differences between them must be data.
# `lower` makes this data from any table: for each tick the kind (0 none, 1 F, 2 B), the microbatch,
# and *slots* of buffers: where to read x or dy, where to put what F keeps, and where to put what
# comes from the neighbours. A slot is reused once its content is no longer needed. The last slot is
# for what no device needs.

# %%
fields = "kind", "microbatch", "x", "dy", "stash", "from_previous", "from_next"
numbers = lower(make_table("1f1b", p, 8), keep_inputs=False).ticks
columns = [getattr(numbers, field)[:12, 2].tolist() for field in fields]
table("1F1B, device 2, its first ticks", fields, zip(*columns, strict=True))
show(pipeline.pipeline_gradients, pipeline._run)
show(pipeline._Device.act, pipeline._exchange)

# %% [markdown]
# A tick is one action, or none: `lax.cond` computes only one branch. Then come two permutes.
#
# ## Measure


# %%
def run_on_mesh(name, m):
    planned = make_table(name, p, m)
    step = partial(
        pipeline.pipeline_gradients, first_fn, layer_fn, last_fn,
        table=planned, keep_inputs=False, axis="pp",
    )  # fmt: skip
    takes, gives = ((P(), P("pp")), P()), (P(), (P(), P("pp")))
    step = jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=gives)
    order = pipeline.layer_order(planned, L)  # in which the devices hold them
    params, batch = (ends, w[order]), tuple(data[:, :m])
    lowered = jax.jit(step).lower(params, batch)
    ready = compiled.compile_program(lowered)
    found = jax.tree.leaves(ready.executable(params, batch))
    loss, of_ends, of_w = (every[:m].mean(axis=0) for every in expected)
    for one, other in zip(found, (loss, of_ends, of_w[order]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
    return program.inspect_compiled(lowered, ready)


RUNS = [(name, m) for name in ("gpipe", "1f1b") for m in (4, 8, 16)]
temp, shown = {}, []
for run in (*RUNS, ("zb-h1", 8), ("zb-v", 8)):
    report = run_on_mesh(*run)
    temp[run] = report.memory.temp_bytes
    sent = [one for one in report.collectives if one.kind == "permute"]
    assert {one.operand_bytes for one in sent} == {x.nbytes}
    shown.append((*run, *(one.times for one in sent), temp[run]))
headers = "", "microbatches", "to the next", "to the previous", "temp"
table("Permutes of an activation each, and bytes of temp", headers, shown)

# %% [markdown]
# ## Compare
#
# The temp of GPipe grows with the microbatches, and that of 1F1B does not; the difference is in the
# slots. All devices run the same program, so each has as many slots as the one that needs the most.
# The loop sends in every tick and in both directions, whether it is needed or not. And the
# simulation finds what the papers say.

# %%
kept_bytes = sum(4 * leaf.size for leaf in kept) / p  # by the F of a stage
for m in (4, 8, 16):
    both = (make_table(name, p, m) for name in ("1f1b", "gpipe"))
    few, many = (lower(planned, keep_inputs=False) for planned in both)
    more = (many.slots - few.slots) * x.nbytes
    more += (many.stash_slots - few.stash_slots) * kept_bytes
    assert temp["gpipe", m] - temp["1f1b", m] == more
assert temp["1f1b", 16] < 1.01 * temp["1f1b", 4]
shown = []
for name, (idle, *in_flight, _) in predicted.items():
    found, slow = track(name).simulation, track(name, 0.25).simulation
    assert max(found.idle_in_span_per_device) == idle
    assert found.peak_in_flight == [n * found.table.chunks for n in in_flight]
    cost, rows = vars(found.costs), rules.to_ticks(found.table).rows
    ticks = ([cost[one.kind] for one in t if one] for t in zip_longest(*rows))
    times = found.ideal, found.makespan, slow.makespan, sum(map(max, ticks))
    shown.append((name, *times))
headers = "", "without idling", "simulated", "P = 0.25", "in step"
table("Time; P is that of a transfer", headers, shown)

# %% [markdown]
# ## On real hardware
#
# - **Transfers** (P) are not in the papers' formulas. GPipe loses the least, because it has other
#   microbatches to work on meanwhile. 1F1B waits for a neighbour in each turn.
# - **Ticks.** Our devices exchange data after each tick, so a tick takes as long as its longest
#   cell. In 1F1B one device has F while its neighbour has B, and waits. PyTorch and Megatron send
#   from device to device, and have no ticks. Simulated devices share cores, so only the total work
#   matters.
# - **DualPipe** runs F and B as one: one computes while the other sends. We do not simulate that.
# - `jaxpar schedule zb-h1 --beside 1f1b` draws, `jaxpar train --mesh pp=4,dp=2 --schedule zb-h1
#   --microbatches 8` trains. `--csv FILE` and `--from FILE` write and read PyTorch's tables.
#
# ## Exercises

# %%
exercises("16")

# %% [markdown]
# ## Sources
#
# Huang et al. 2019, *GPipe*. Narayanan et al. 2021, *Megatron-LM on GPU Clusters*. Lamy-Poirier
# 2023, *Breadth-First*. Qi et al. 2024, *Zero Bubble*. DeepSeek-AI 2024, *DeepSeek-V3*.
#
# | here | PyTorch | others |
# |---|---|---|
# | `gpipe`, `1f1b` | `ScheduleGPipe`, `Schedule1F1B` | DeepSpeed: `TrainSchedule` is 1F1B |
# | `interleaved` | `ScheduleInterleaved1F1B` | Megatron: virtual pipeline stages |
# | `zb-h1`, `zb-v` | `ScheduleInterleavedZeroBubble`, `ScheduleZBVZeroBubble` | ZB1P |
# | `dualpipe-v` | `ScheduleDualPipeV` | DeepSeek: `dualpipev.py` |
