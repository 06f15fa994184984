# %% [markdown]
# # Lesson 16: pipeline schedules
#
# GPipe (lesson 15) idles while the pipeline fills and empties. More microbatches make that a
# smaller share, but GPipe keeps something of each, so they take more memory. Which device does what
# in which order is a *schedule*, and others need less memory, or less time. Here it is a table,
# which can be read, checked, simulated, drawn, and run.

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
from jaxpar.course.pictures import draw_schedules
from jaxpar.inspector import compiled, program
from jaxpar.inspector.stablehlo import count_flops
from jaxpar.parallel import pipeline
from jaxpar.schedules import Costs, Table, make_table, rules, simulate
from jaxpar.schedules.drawing import Track
from jaxpar.schedules.generators import breadth_first_schedule
from jaxpar.schedules.published import PUBLISHED
from jaxpar.schedules.ticks import lower

p, mesh, rng = 4, make_mesh("pp=4"), np.random.default_rng(0)


def track(name, transfer=0):
    planned = make_table(name, p, 8)
    f = 1 / planned.chunks  # a cell is as much shorter as a chunk is smaller
    costs = Costs(f, 2 * f, f, f, transfer)
    return Track(name, simulate(planned, costs), name)


# %% [markdown]
# ## The idea in one picture
#
# Each device holds a quarter of the layers, a *stage*. F2 is the forward pass of microbatch 2
# through the stage, B2 its backward pass, which takes twice as long.

# %%
draw_schedules("16_1f1b", track("gpipe"), track("1f1b"))

# %% [markdown]
# The last device can take a microbatch backward as soon as it took it forward. *1F1B* does so:
# after some forwards, each device takes a forward and a backward in turn. What a backward has used
# is dropped sooner, so less is *in flight*.
#
# ## Predict
#
# Your turn, before you read on. There are p devices and m microbatches; F and B are the times that
# a device needs for both passes of a microbatch.
#
# 1. Does 1F1B idle less than GPipe? What has device 0 in flight, and what the last device?
# 2. Give each device two *chunks* of half as many layers: device 0 the first eighth and the fifth,
#    device 1 the second and the sixth. How long is the idle time now? How much more is sent?
# 3. B makes the gradient of the stage's input, I, and that of its weights, W. Which device waits
#    for I, and which for W? So what can fill the idle time?


# %%
def predict(name):  # what the papers say
    planned = (found := track(name).simulation).table
    paper = PUBLISHED[name].figures(planned, found.costs)
    sent = 2 * 8 * (planned.stages - 1 - (name == "zb-v"))
    kept = (count / planned.chunks for count in paper.in_flight)
    return float(paper.idle), *kept, sent


NAMES = "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"
predicted = {name: predict(name) for name in NAMES}
shown = [(name, *row) for name, row in predicted.items()]
headers = "", "idle", *(f"kept by {r}" for r in range(p)), "activations sent"
table("4 devices, 8 microbatches, F = 1, B = 2", headers, shown)
assert predicted["1f1b"][:2] == (9, 4) and predicted["interleaved"][0] == 4.5

# %% [markdown]
# 1. It idles as long, (p-1)(F+B). But p microbatches are in flight on device 0, and one on the
#    last, however many there are.
# 2. The pipeline fills by chunks, which take half as long: *interleaved* 1F1B idles half as long.
#    It sends more than twice as much, and keeps more than 1F1B.
# 3. The device before waits for I. Nobody waits for W, so it can be done when there is nothing
#    else to do: *zero bubble*. ZB-H1 is 1F1B with W in the gaps. (For ZB-V, "idle" is between a
#    device's own first and last cell.)
#
# ## Implement
#
# **A schedule is data:** a row for each device, a cell for each action: stage, kind, microbatch. It
# is an order, not a clock: an action runs as soon as what it needs is there. The rules: every stage
# takes every microbatch once; forward through all stages, then backward; I before W; and no circle
# of devices that wait for one another. What breaks them is refused, with row and cell.

# %%
good = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
rules.check(Table.parse(good))
circle = ["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]
try:
    rules.check(Table.parse(circle))
except ValueError as error:
    print(fill(str(error), 98), end="\n\n")

# %% [markdown]
# **Chunks.** Two devices with two chunks each: stages 0 and 2 are on device 0, stages 1 and 3 on
# device 1. Read this table of interleaved 1F1B cell by cell, downward. From where does each cell
# get its input? For how many microbatches does a device stay with a chunk? When does it turn to
# forward and backward in turn? With which chunk does it go backward first?

# %%
small = rules.to_ticks(make_table("interleaved", 2, 4)).rows
cells = [[str(cell or ".") for cell in tick] for tick in zip_longest(*small)]
shown = [(number, *tick) for number, tick in enumerate(cells)]
table("Interleaved 1F1B", ("tick", "device 0", "device 1"), shown)
show(breadth_first_schedule)

# %% [markdown]
# A function writes such a table. This one is a simple looped schedule: all microbatches through a
# chunk, then through the next; all stay in flight. 1F1B, interleaved 1F1B and ZB-H1 are yours.
#
# **I and W.** For `y = x @ w` they are `dy @ w.T` and `x.T @ dy`, a product each. Of any layer's
# backward pass JAX has the operations: those that the input's gradient needs are I, the others W.
# Nothing is computed twice.

# %%
show(backward.input_gradient, backward.weight_gradient)
L, d = 8, 64


def layer_fn(w, x):
    return x + jnp.tanh(x @ w)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32) / 8


def traced(function, *given):  # what it gives, and the FLOPs of that
    found = jax.jit(partial(function, layer_fn)).trace(*given)
    module = found.lower().compiler_ir("stablehlo")
    return found.out_info, count_flops(module)


w, x = random(L, d, d), random(32, d)
(_, kept), of_f = traced(backward.forward, w, x)
(_, half), of_i = traced(backward.input_gradient, w, kept, x)
_, of_w = traced(backward.weight_gradient, w, kept, half, x)
_, of_b = traced(backward.backward, w, kept, x)
shown = zip("FBIW", (of_f, of_b, of_i, of_w), strict=True)
table("Arithmetic of 8 layers", ("", "FLOPs"), shown)
assert of_b == of_i + of_w == 2 * of_f

# %% [markdown]
# In *ZB-V* the layers go down the devices and up again, as a V: device 0 has the first chunk and
# the last. *DualPipeV* has the same V, and halves only where they help.

# %%
draw_schedules("16_zb_h1", track("zb-h1"))
draw_schedules("16_v", track("zb-v"), track("dualpipe-v"))

# %% [markdown]
# **By hand**, on one device, in an order in which the cells can run. An action needs one other: a
# forward that of the stage before, a backward that of the stage after, or, on the last stage, its
# own forward.


# %%
def by_hand(planned, w, xs, targets):
    made, pulls, found = {}, {}, jnp.zeros_like(w)
    for _, action, needed in rules.run(planned):
        stage, kind, k = action
        given = made[needed] if needed else xs[k]
        if kind == "F":
            made[action], pulls[stage, k] = jax.vjp(layer_fn, w[stage], given)
            continue
        if needed.kind == "F":  # of sum (y - target)^2
            given = 2 * (given - targets[k])
        of_w, made[action] = pulls.pop((stage, k))(given)
        found = found.at[stage].add(of_w)
    return found


def two_layers(w, xs, targets):
    return ((layer_fn(w[1], layer_fn(w[0], xs)) - targets) ** 2).sum()


given = w[:2], random(2, 32, d), random(2, 32, d)
found, right = by_hand(Table.parse(good), *given), jax.grad(two_layers)(*given)
np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-4)

# %% [markdown]
# **On a mesh** all devices run one program, so what differs must be numbers. `lower` makes them of
# any table: for each tick the kind (0 none, 1 F, 2 B), the microbatch, and *slots* of buffers:
# where to read x or dy, what F keeps, where to put what comes from the neighbours. A slot is used
# again once its content is not needed. The last one is for what nobody needs.

# %%
fields = "kind", "microbatch", "x", "dy", "stash", "from_previous", "from_next"
numbers = lower(make_table("1f1b", p, 8), keep_inputs=False).ticks
columns = [getattr(numbers, field)[:12, 2].tolist() for field in fields]
shown = list(zip(range(12), *columns, strict=True))
table("1F1B, device 2, its first ticks", ("tick", *fields), shown)
show(pipeline.pipeline_gradients, pipeline._Pipeline.act, pipeline._exchange)

# %% [markdown]
# A tick is one action, or none: of a `lax.cond` only the branch taken is computed. Then come two
# permutes, one to each neighbour. `ends` is what the first and the last stage have besides layers,
# an embedding and a head, say; below one matrix is both.
#
# ## Measure


# %%
def first_fn(ends, microbatch):
    return microbatch[0] @ ends


def last_fn(ends, y, microbatch):
    return ((y @ ends.T - microbatch[1]) ** 2).mean()


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
@jax.value_and_grad
def on_one_device(params, microbatch):
    x = first_fn(params[0], microbatch)
    x, _ = lax.scan(lambda x, w: (layer_fn(w, x), None), x, params[1])
    return last_fn(params[0], x, microbatch)


def run_on_mesh(name, m):
    planned = make_table(name, p, m)
    step = partial(
        pipeline.pipeline_gradients, first_fn, layer_fn, last_fn,
        table=planned, keep_inputs=False, axis="pp",
    )  # fmt: skip
    lies = P(), P("pp")
    takes, gives = (lies, P()), (P(), lies)
    step = jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=gives)
    order = pipeline.layer_order(planned, L)
    params, batch = (ends, w[order]), tuple(data[:, :m])
    lowered = jax.jit(step).lower(params, batch)
    ready = compiled.compile_program(lowered)
    found = jax.tree.leaves(ready.executable(params, batch))
    loss, of_ends, of_w = (every[:m].mean(axis=0) for every in expected)
    for one, other in zip(found, (loss, of_ends, of_w[order]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
    return program.inspect_compiled(lowered, ready)


ends, data = random(4, d), random(2, 16, 32, 4)
expected = jax.tree.leaves(on_one_device((ends, w), tuple(data)))
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
# Temp of GPipe grows with the microbatches, that of 1F1B does not. What lies between them are the
# slots: x for what arrives, 6 times x for what F keeps of the 2 layers of a stage. All devices run
# one program, so each has as many slots as the one that needs most. The loop sends in every tick,
# both ways, needed or not. And the simulation finds what the papers say.

# %%
for m in (4, 8, 16):
    both = (make_table(name, p, m) for name in ("1f1b", "gpipe"))
    few, many = (lower(planned, keep_inputs=False) for planned in both)
    slots = many.slots - few.slots + 6 * (many.stash_slots - few.stash_slots)
    assert temp["gpipe", m] - temp["1f1b", m] == slots * x.nbytes
assert temp["gpipe", m] - temp["1f1b", m] == slots * x.nbytes
assert temp["1f1b", 16] < 1.01 * temp["1f1b", 4]


def in_step(planned, costs):  # each tick as long as its longest cell
    ticks = zip_longest(*rules.to_ticks(planned).rows)
    return sum(max(getattr(costs, a.kind) for a in t if a) for t in ticks)


shown = []
for name, (idle, *in_flight, _) in predicted.items():
    found, slow = track(name).simulation, track(name, 0.25).simulation
    assert max(found.idle_in_span_per_device) == idle
    assert found.peak_in_flight == [n * found.table.chunks for n in in_flight]
    each = in_step(found.table, found.costs)
    shown.append((name, found.ideal, found.makespan, slow.makespan, each))
headers = "", "without idling", "simulated", "P = 0.25", "in step"
table("Time; P is that of a transfer", headers, shown)
lost = {name: slow - fast for name, _, fast, slow, _ in shown}
assert min(lost, key=lost.get) == "gpipe" and max(lost, key=lost.get) == "1f1b"

# %% [markdown]
# ## On real hardware
#
# - **Transfers** (P) are not in the papers' formulas. GPipe loses least: meanwhile it has other
#   microbatches. 1F1B waits for a neighbour in each turn.
# - **In step.** Our devices exchange after each tick, so a tick takes as long as its longest cell.
#   In 1F1B one device has F while its neighbour has B, and waits; cells of one length, as I and W,
#   fit. PyTorch and Megatron send from device to device, and have no ticks. Simulated devices share
#   cores, so that only the sum of all work counts.
# - **DualPipe** runs a forward and a backward as one, so that one computes while the other sends,
#   for experts above all (lesson 17). That is neither simulated nor run here.
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
# | `breadth-first` | `ScheduleLoopedBFS` | - |
# | `zb-h1`, `zb-v` | `ScheduleInterleavedZeroBubble`, `ScheduleZBVZeroBubble` | ZB1P |
# | `dualpipe-v` | `ScheduleDualPipeV` | DeepSeek: `dualpipev.py` |
