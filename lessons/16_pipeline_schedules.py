# %% [markdown]
# # Lesson 16: pipeline schedules
#
# GPipe (lesson 15) has two weak points. Devices wait while the pipeline fills and empties, and all
# microbatches are in flight at once, so each device keeps the activations of all of them. More
# microbatches make the first better and the second worse.
#
# Both follow from the order of the work. A *schedule* says which device does what in which order,
# and other orders of the same work need less memory or less time, though some need faster links.

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
from jaxpar.course.questions import ask
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.inspector import compiled, program
from jaxpar.inspector.stablehlo import count_flops
from jaxpar.parallel import pipeline
from jaxpar.schedules import Costs, Table, make_table, rules, simulate
from jaxpar.schedules.generators import breadth_first_schedule
from jaxpar.schedules.published import PUBLISHED
from jaxpar.schedules.ticks import lower

p = 4  # devices
mesh = make_mesh("pp=4")

# %% [markdown]
# ## The idea in one picture
#
# Each of 4 devices holds a quarter of the layers, a *stage*. F2 is the forward pass of microbatch 2
# through a stage and takes 1. B2 is its backward pass and takes 2.


# %%
def costs_of(planned, transfer=0.0):  # a chunk of half a stage takes half the time
    f = 1 / planned.chunks
    return Costs(F=f, B=2 * f, I=f, W=f, P=transfer)


def track(name, m=8, transfer=0.0):
    planned = make_table(name, p, m)
    return Track(name, simulate(planned, costs_of(planned, transfer)), name)


# %% tags=["fold"]
draw("16_1f1b", Timeline((track("gpipe"), track("1f1b"))))

# %% [markdown]
# The last device can begin the backward pass of a microbatch as soon as its forward pass is done.
# In *1F1B*, one forward and one backward, it does. Device r of p first does p-1-r forwards, its
# *warm-up*. Then it takes a forward and a backward in turn, and at the end the backwards that are
# left. That takes as long as GPipe, but far fewer microbatches are in flight: those whose F has
# begun, and whose B has not ended.
#
# ## Predict
#
# Take 8 microbatches on 4 devices, and times as above; transfers take none. In both schedules
# device 0 idles for 9, and 24 activations and 24 gradients with respect to them go from device to
# device: 48 arrays.
#
# Now change 1F1B in one of two ways.
#
# - **Chunks.** Each device holds two pieces of half as many layers: device 0 the first eighth of
#   the model and the fifth, device 1 the second and the sixth, and so on. Each piece is a *chunk*,
#   and a stage of its own; its F takes 0.5 and its B takes 1. A microbatch goes through all devices
#   twice.
# - **Halves.** B computes two gradients: I, that with respect to the input of the stage, and W,
#   that with respect to its weights. Each takes 1. The device before waits for I. Who waits for W?

# %%
flight = ask("Microbatches in flight on device 0 in 1F1B, 8 devices, 64 microbatches", "count")
shorter = ask("Time for which device 0 idles with two chunks on each device", "count")
arrays = ask("Arrays sent from device to device with two chunks on each device", "count")
filled = ask("Time for which device 0 idles in 1F1B if each W may wait for a gap", "count")

# %% [markdown]
# ## Implement
#
# ### A schedule is a table
#
# The table has a row for each device, and a cell for each action: `2F0` is the forward pass of
# microbatch 0 on stage 2. Here is GPipe's table for two devices and two microbatches:

# %%
for row in make_table("gpipe", 2, 2).to_rows():
    print(*row)
print()

# %% [markdown]
# A device does the cells of its row one after the other, each as soon as what it needs is there. So
# the table has no times: they follow from it, if we know how long each kind of cell takes.
#
# ### The rules
#
# A table is a valid schedule if
#
# 1. each stage is on one device, and takes each microbatch once: forward, and backward either as
#    one B, or as an I and later a W;
# 2. each microbatch goes forward through all stages in order, and then backward through all of
#    them: F needs the F of the stage before, B and I need the B or I of the stage after, and on the
#    last stage they need its own F;
# 3. no devices wait for each other in a cycle.
#
# Which device holds which stages is free, and so is the order in which it takes the microbatches.
# The third rule is easily broken. Here each row alone is fine:

# %%
cycle = ["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]
try:
    rules.check(Table.parse(cycle))
except ValueError as wrong:
    print(fill(str(wrong), 98), end="\n\n")

# %% [markdown]
# ### Run a table by hand
#
# Any valid table computes the right gradient. To see it, we run two of them on one device, cell by
# cell. The model has 8 layers `x + tanh(x @ w)`, with a w of [64, 64] each, and here each layer is
# a stage. The first stage also maps rows of 4 numbers to 64, and the last maps them back; both use
# the matrix `ends`.

# %%
L, d = 8, 64
rng = np.random.default_rng(0)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32) / 8


ends, w = random(4, d), random(L, d, d)
data = random(2, 16, 32, 4)  # inputs and targets: 16 microbatches of 32 rows


def first_fn(ends, microbatch):
    return microbatch[0] @ ends


def layer_fn(w, x):
    return x + jnp.tanh(x @ w)


def last_fn(ends, y, microbatch):
    return ((y @ ends.T - microbatch[1]) ** 2).mean()


# %% [markdown]
# `rules.run` gives the cells in an order in which they can run, each with the one cell that it
# needs. `jax.vjp` computes an F, and returns the function that computes its B, too. `pulls` holds
# what is in flight: an F puts its function in, and the B takes it out.


# %%
def by_hand(planned):
    made, pulls, gradient = {}, {}, jnp.zeros_like(w)
    for _, action, needed in rules.run(planned):
        stage, kind, k = action
        given = made[needed] if needed else first_fn(ends, data[:, k])
        if kind == "F":
            made[action], pulls[stage, k] = jax.vjp(layer_fn, w[stage], given)
            continue
        if needed.kind == "F":  # on the last stage the gradient begins with the loss
            given = jax.grad(last_fn, argnums=1)(ends, given, data[:, k])
        of_w, made[action] = pulls.pop((stage, k))(given)
        gradient = gradient.at[stage].add(of_w / planned.microbatches)
    return gradient


# %% [markdown]
# One device without a schedule gives what all tables must give:


# %%
def on_one_device(params, microbatch):
    x = first_fn(params[0], microbatch)
    x, _ = lax.scan(lambda x, w: (layer_fn(w, x), None), x, params[1])
    return last_fn(params[0], x, microbatch)


each = jax.jit(jax.vmap(jax.value_and_grad(on_one_device), (None, 0)))
expected = jax.tree.leaves(each((ends, w), tuple(data)))  # loss, of ends, of w: [16, ...]
for name in ("gpipe", "1f1b"):
    difference = by_hand(make_table(name, L, 2)) - expected[2][:2].mean(axis=0)
    print(f"{name}: the gradient differs by at most {jnp.abs(difference).max():.0e}")
    assert jnp.abs(difference).max() < 1e-5
print()

# %% [markdown]
# ### Write a table
#
# A new schedule is a function that returns rows of cells. Here all microbatches go through one
# chunk, and then all through the next. 1F1B and two schedules from below are for you to write.

# %%
show(breadth_first_schedule)

# %% [markdown]
# ### Chunks: interleaved 1F1B
#
# With two chunks on each of 4 devices there are 8 stages: 0 and 4 are on device 0, and so on. Small
# letters in the picture are a device's second chunk.

# %%
draw("16_interleaved", Timeline((track("interleaved"),)))
print("The row of device 0:")
print(fill(" ".join(map(str, make_table("interleaved", p, 8).rows[0])), 98), end="\n\n")

# %% [markdown]
# Device 0 takes p = 4 microbatches through its first chunk. Then the first of them comes back from
# device 3, and the device takes the same 4 through its second chunk. Backward, the second chunk
# comes first. The warm-up is (v-1)p + 2(p-1-r) forwards for v chunks on a device, so 10 on device
# 0; the first appendix shows why so many.
#
# The pipeline fills after 3 cells, as before, but a cell is half as long, and so is the bubble. In
# return more is sent, and more is in flight than in 1F1B.
#
# ### Halves: zero bubble
#
# The device before waits for I, but nobody waits for W: it can be computed when there is nothing
# else to do. For `y = x @ w`, I is `dy @ w.T` and W is `x.T @ dy`. For other layers JAX can list
# the operations of the backward pass. Those that the gradient with respect to the input needs are
# I, and all others are W.

# %%
show(backward.input_gradient, backward.weight_gradient)

# %% [markdown]
# Do the halves compute more than B does? Let us count.


# %%
def traced(function, *given):  # the shapes of its results, and its FLOPs
    found = jax.jit(partial(function, layer_fn)).trace(*given)
    return found.out_info, count_flops(found.lower().compiler_ir("stablehlo"))


x = random(32, d)
(_, kept), of_f = traced(backward.forward, w, x)
(_, half), of_i = traced(backward.input_gradient, w, kept, x)
_, of_w = traced(backward.weight_gradient, w, kept, half, x)
_, of_b = traced(backward.backward, w, kept, x)
shown = zip("FBIW", (of_f, of_b, of_i, of_w), strict=True)
table(f"Arithmetic of {L} layers", ("", "FLOPs"), shown)
assert of_b == of_i + of_w == 2 * of_f

# %% [markdown]
# They do not: I and W are half of B each, and as much as F. (In a transformer I takes longer than
# W, since attention's own products have no weights.)
#
# *ZB-H1* is 1F1B in which W fills gaps. An activation is now in flight until its W has ended, but
# still no device keeps more than the first device of 1F1B.

# %%
draw("16_zb_h1", Timeline((track("zb-h1"),)))

# %% [markdown]
# *ZB-V* has chunks and halves. The layers go down the devices and up again, like a V: device 0
# holds the first chunk and the last. *DualPipeV* has the same V, and splits only some of its
# backwards.

# %%
draw("16_v", Timeline((track("zb-v"), track("dualpipe-v"))))

# %% [markdown]
# The devices of ZB-V idle only before their first cell and after their last. Its paper does not
# count that, since a device could begin the next step at once. (To clip the gradient by its norm,
# the optimizer has to wait for all devices first; section 4 of the paper shows a way around that.)
#
# ### On a mesh
#
# All devices run the same program, so the differences between them must be data. `lower` makes
# arrays from a table: for each tick and device the kind of cell, the microbatch, and where in its
# buffers the device reads and writes (see the second appendix). The program is a loop over the
# ticks. A tick is one action, or none, and then two permutes, to the next device and to the
# previous. So stages that follow one another must be on one device or on neighbours. A device
# returns its part of the loss and of the gradients of the ends; most parts are zero, and the caller
# adds them up.

# %%
show(pipeline.pipeline_gradients, pipeline._run)

# %% [markdown]
# ## Measure
#
# ### Memory, on four devices
#
# We run GPipe and 1F1B with 4, 8 and 16 microbatches, and two more tables. Every loss and gradient
# is compared with that of one device.


# %%
def run_on_mesh(name, m):
    planned = make_table(name, p, m)

    def step(params, batch):
        loss, (of_ends, of_w) = pipeline.pipeline_gradients(
            first_fn, layer_fn, last_fn, params, batch, planned, keep_inputs=False, axis="pp"
        )
        return lax.psum(loss, "pp"), (lax.psum(of_ends, "pp"), of_w)

    takes, gives = ((P(), P("pp")), P()), (P(), (P(), P("pp")))
    step = jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=gives)
    order = pipeline.layer_order(planned, L)  # in which the devices hold them
    params, batch = (ends, w[order]), tuple(data[:, :m])
    lowered = jax.jit(step).lower(params, batch)
    ready = compiled.compile_program(lowered)
    found = jax.tree.leaves(jax.device_get(ready.executable(params, batch)))
    loss, of_ends, of_w = (every[:m].mean(axis=0) for every in expected)
    for one, other in zip(found, (loss, of_ends, of_w[order]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
    return program.inspect_compiled(lowered, ready)


runs = [(name, m) for name in ("gpipe", "1f1b") for m in (4, 8, 16)]
reports = {run: run_on_mesh(*run) for run in (*runs, ("zb-h1", 8), ("zb-v", 8))}

# %% tags=["fold"]
shown = []
for run, report in reports.items():
    sent = [one for one in report.collectives if one.kind == "permute"]
    assert {one.operand_bytes for one in sent} == {x.nbytes}
    shown.append((*run, *(one.times for one in sent), report.memory.temp_bytes))
headers = "", "microbatches", "permutes to the next", "to the previous", "temp bytes"
table(f"One step, on each device; a permute carries {x.nbytes:,} bytes", headers, shown)

# %% [markdown]
# The memory of GPipe grows with the number of microbatches, and that of 1F1B hardly does. ZB-H1
# needs more than 1F1B, because from I to W it also keeps the gradients that W needs. All devices
# run the same program, so each has room for as much as the one that needs the most, and each sends
# in every tick and both ways, whether it is needed or not.
#
# ### Time, with and without transfers
#
# Our devices share a few cores, so their times mean nothing; we simulate. P is the time of a
# transfer from one device to the next, during which both can compute. *In step* is the time of a
# loop like ours, in which a tick takes as long as its longest cell.

# %%
NAMES = "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"
times = {}
for name in NAMES:
    free, slow = track(name).simulation, track(name, transfer=0.25).simulation
    cost, rows = vars(free.costs), rules.to_ticks(free.table).rows
    ticks = ([cost[one.kind] for one in tick if one] for tick in zip_longest(*rows))
    times[name] = free.ideal, free.makespan, slow.makespan, sum(map(max, ticks))
headers = "", "ideal", "P = 0", "P = 0.25", "in step"
table("Time of a step, 8 microbatches", headers, [(name, *row) for name, row in times.items()])

# %% [markdown]
# With P = 0.25 GPipe loses the least, since it has other microbatches to work on meanwhile, and
# 1F1B the most. 1F1B also loses in step, where one device does an F while its neighbour does a B,
# which takes twice as long.
#
# ## Compare


# %%
def count_sent(planned):  # the cells that need an array from another device
    return sum(
        needed is not None and planned.device_of(needed.stage) != device
        for device, _, needed in rules.run(planned)
    )


simulated = {name: track(name).simulation for name in NAMES}
crossing = {name: count_sent(found.table) for name, found in simulated.items()}
flight.compare(simulate(make_table("1f1b", 8, 64)).peak_in_flight[0], {"warm-up": 7, "and one": 1})
found = simulated["interleaved"].idle_in_span_per_device[0]
shorter.compare(found, {"3 times F, to fill": 3 * 0.5, "3 times B, to empty": 3 * 1})
arrays.compare(crossing["interleaved"], {"forward, 7 times 8": 56, "backward": 56})
found = simulated["zb-h1"].idle_in_span_per_device[0]
filled.compare(found, {"3 times F": 3, "3 times I": 3, "filled by 3 times W": -3})

# %% [markdown]
# The papers have formulas for idle time and for what each device keeps. The simulation agrees. (For
# ZB-V, time before the first cell and after the last does not count.)

# %% tags=["fold"]
shown = []
for name, found in simulated.items():
    paper = PUBLISHED[name].figures(found.table, found.costs)
    assert max(found.idle_in_span_per_device) == paper.idle
    assert found.peak_in_flight == paper.in_flight
    kept_by = (count / found.table.chunks for count in paper.in_flight)
    shown.append((name, float(paper.idle), *kept_by, crossing[name]))
    assert crossing[name] == 2 * 8 * (found.table.stages - 1 - (name == "zb-v"))
headers = "", "idle", *(f"kept by {r}" for r in range(p)), "arrays sent"
table("Kept: the most microbatches in flight, where two chunks count as one", headers, shown)

# %% [markdown]
# On the mesh, the memory of GPipe exceeds that of 1F1B by exactly the bytes of its additional
# places for activations.

# %% tags=["fold"]
kept_bytes = sum(4 * leaf.size for leaf in kept) / p  # by the F of a stage
temp = {run: report.memory.temp_bytes for run, report in reports.items()}
for m in (4, 8, 16):
    few, many = (lower(make_table(name, p, m), keep_inputs=False) for name in ("1f1b", "gpipe"))
    more = (many.slots - few.slots) * x.nbytes
    more += (many.stash_slots - few.stash_slots) * kept_bytes
    assert temp["gpipe", m] - temp["1f1b", m] == more
assert temp["1f1b", 16] < 1.01 * temp["1f1b", 4] and temp["zb-h1", 8] > 1.1 * temp["1f1b", 8]

# %% tags=["fold"]
lost = {name: slow - free for name, (_, free, slow, _) in times.items()}
assert sorted(lost, key=lost.__getitem__)[:: len(lost) - 1] == ["gpipe", "1f1b"]

# %% [markdown]
# 1F1B keeps p microbatches on device 0, however large m is. Interleaving halves the idle time, with
# more than twice the transfers. ZB-H1 idles for a third, with no more transfers, and ZB-V not at
# all, with twice as many. But these formulas do not count the time of a transfer.
#
# ## On real hardware
#
# - **Gains.** Interleaving raises the throughput of GPT models by 10% and more (Narayanan et al.
#   2021, abstract). Zero bubble reaches up to 23% more than 1F1B in about the same memory, and up
#   to 31% if it may take more (Qi et al. 2024, abstract).
# - **Microbatches.** Interleaving needs an m that is a multiple of p. Llama 3 changed the order so
#   that m can be any number (section 3.3.2).
# - **DualPipe**, made for DeepSeek-V3, runs the F of one microbatch and the B of another in one
#   cell, where one computes while the other sends. That hides the all-to-all of its experts (lesson
#   17). Each device holds two stages, so all parameters are held twice; in DualPipeV once.
# - **Ticks** are ours. PyTorch and Megatron-LM send from one device to another, and no device waits
#   for the longest cell of a tick.
# - **Try it:** `jaxpar schedule zb-h1 --beside 1f1b --cost F=1,B=2,I=1,W=1,P=0.25` draws two, and
#   `jaxpar train --mesh pp=4,dp=2 --schedule zb-h1 --microbatches 8` trains. `--csv FILE` and
#   `--from FILE` write and read tables in the format of PyTorch.
#
# ## An open challenge
#
# There are 8 microbatches and 4 devices, with two stages on each, and you choose which. F, I and W
# of a stage take 1 each. No device may ever have more than 4 activations in flight, half of what
# ZB-V keeps. What is the shortest valid schedule? The work of a device alone takes 48, and ZB-V
# takes 51.
#
# Write your table into a CSV file, by hand or with a program: a row for each device, and cells such
# as `0F0`. This command refuses a table that breaks a rule. It prints how long a step takes (the
# *makespan*), and the most that each device has in flight:
#
#     jaxpar schedule --from FILE.csv --cost F=1,I=1,W=1
#
# **The best that we know takes 59.** A random search found it, with the stages in a V. We have no
# proof that nothing is shorter. (Qi et al. 2024b build schedules for a given memory.)
#
# ## Exercises
#
# Two smaller challenges have one stage on each device. They are judged, and your best makespan is
# kept. In `limited_schedule` at most 3 microbatches are in flight. The library's takes 48; a search
# proved that 31 is the least. In `timed_schedule` the times of F, I, W and a transfer are given,
# and are not equal. There the library's takes 142, and the least is 125. `jaxpar schedule --search`
# finds such tables.

# %%
exercises("16")

# %% [markdown]
# ## On paper
#
# 1. A GPT of 175 billion parameters has 96 layers on p = 8 stages, with v = 3 chunks on each device
#    and m = 64 (Korthikanti et al. 2022, table 3). A layer keeps 107 MB for a microbatch on each
#    device. How many bytes does device 0 keep in 1F1B without chunks, and how many interleaved?
#
# <details><summary>Answer</summary>
#
# In 1F1B it keeps 8 microbatches in 12 layers: 96 times 107 MB, or 10.3 GB. Interleaved it keeps
# 2(p-1) + (v-1)p + 1 = 31 chunks of 4 layers: 124 times 107 MB, or 13.3 GB. The paper has the same
# as a factor, 1 + (p-1)/(pv) = 1.29. (The 107 MB are its 34sbh/t, with s = 2048, b = 1, h = 12288
# and tensor parallelism t = 8.)
#
# </details>
#
# 2. Llama 3 405B trains on p = 16 stages with m = 16 (lesson 15). Suppose that every layer is a
#    chunk, and so are the embedding and the head; then v = 8. What is the bubble as a fraction of
#    the ideal time, with and without chunks, and how much more is sent?
#
# <details><summary>Answer</summary>
#
# Without chunks it is 15/16 = 94%, and with them `15/(8 * 16)` = 12%. There are 126 + 2 = 128
# chunks. So on its way forward a microbatch goes from device to device 127 times in place of 15,
# and 8.5 times as much is sent.
#
# </details>
#
# 3. DeepSeek-V3 has 16 pipeline stages. Its paper (table 2) gives the bubbles: (p-1)(F+B) for 1F1B,
#    (p-1)(F+B-2W) for ZB1P, which is our ZB-H1, and (p/2-1)(F&B+B-3W) for DualPipe. B is a whole
#    backward here, and F&B is one F and one B in one cell. Take F = W = 1, B = 2, and F&B = 3. What
#    are the three? Why then use DualPipe?
#
# <details><summary>Answer</summary>
#
# 45, 15 and 14. So DualPipe's bubble is hardly shorter than that of ZB1P, and it holds the
# parameters twice, and p + 1 activations in place of p. But the cell F&B hides the transfers of the
# experts. Without that, F and B would take longer than 3.
#
# </details>
#
# ## Sources
#
# Huang et al. 2019, *GPipe: Efficient Training of Giant Neural Networks using Pipeline
# Parallelism*. Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on GPU
# Clusters Using Megatron-LM*, section 2.2; for the warm-up,
# `megatron/core/pipeline_parallel/schedules.py` of NVIDIA/Megatron-LM, and its issue 169.
# Korthikanti et al. 2022, *Reducing Activation Recomputation in Large Transformer Models*.
# Lamy-Poirier 2023, *Breadth-First Pipeline Parallelism*. Zhuang et al. 2023, *On Optimizing the
# Communication of Model Parallelism*. Qi et al. 2024, *Zero Bubble Pipeline Parallelism*. Qi et al.
# 2024b, *Pipeline Parallelism with Controllable Memory*. DeepSeek-AI 2024, *DeepSeek-V3 Technical
# Report*, section 3.2.1. Grattafiori et al. 2024, *The Llama 3 Herd of Models*, section 3.3.2.
#
# | here | PyTorch | others |
# |---|---|---|
# | `1f1b` | `Schedule1F1B` | DeepSpeed: `TrainSchedule` |
# | `interleaved` | `ScheduleInterleaved1F1B` | Megatron: virtual pipeline stages |
# | `breadth-first` | `ScheduleLoopedBFS` | - |
# | `zb-h1` | `ScheduleInterleavedZeroBubble` (with chunks) | DeepSeek-V3's paper: ZB1P |
# | `zb-v` | `ScheduleZBVZeroBubble` | sail-sg: ZB-V |
# | `dualpipe-v` | `ScheduleDualPipeV` | DeepSeek: `dualpipev.py` |
#
# ## Appendix: why Megatron warms up longer
#
# The warm-up of plain 1F1B on device r is p-1-r forwards. With v chunks it must be longer by
# (v-1)p, because a microbatch goes through all devices v times before its first backward. But
# Megatron-LM takes (v-1)p + 2(p-1-r). Why *twice* p-1-r? An author answers that each device must
# have enough work (issue 169 of NVIDIA/Megatron-LM). We try both lengths, to see when one has not.
# The forwards of a device keep their order, and so do its backwards.


# %% tags=["fold"]
def warmed_up(name, m, factor):
    planned = make_table(name, p, m)
    last, rows = m * planned.chunks - 1, []
    for rank, row in enumerate(planned.rows):
        ahead = (planned.chunks - 1) * p + factor * (p - 1 - rank)
        count, keys = {"F": 0, "B": 0}, {}
        for action in row:  # backward k follows forward k + ahead
            k = count[action.kind]
            count[action.kind] += 1
            keys[action] = (k, 0) if action.kind == "F" else (min(k + ahead, last), 1)
        rows.append(tuple(sorted(keys, key=keys.__getitem__)))
    found = Table(tuple(rows))
    rules.check(found)
    return found


def timed(planned, transfer):
    return simulate(planned, costs_of(planned, transfer)).makespan


# %% tags=["fold"]
tried, shown = {}, []
for name in ("1f1b", "interleaved"):
    for factor in (1, 2):
        now = tried[name, factor] = warmed_up(name, 16, factor)
        in_flight = " ".join(map(str, simulate(now).peak_in_flight))
        row = f"{name}, {factor} * (p-1-r)", in_flight, timed(now, 0), timed(now, 0.25)
        shown.append(row)
headers = "warm-up", "in flight, in chunks, by device", "P = 0", "P = 0.25"
table("Time of a step, 16 microbatches", headers, shown)
tracks = []
for factor, words in ((1, "short warm-up"), (2, "Megatron's warm-up")):
    now = warmed_up("interleaved", 8, factor)
    tracks.append(Track(words, simulate(now, costs_of(now, 0.25))))
draw("16_warm_up", Timeline(tuple(tracks)))

# %% [markdown]
# While transfers are free, the short warm-up costs nothing, and keeps 8, 7, 6 and 5 chunks in
# flight in place of 11, 9, 7 and 5. But if a transfer takes 0.25, a step takes 66 in place of 56:
# in the upper half of the picture, all devices wait again and again.
#
# To see why, take an F of the second chunk on device 0, and the B of the same microbatch. From the
# start of the one to the end of the other, that microbatch goes to the last device and back: p
# forwards, p backwards and 2(p-1) transfers. With the short warm-up, device 0 has just p forwards
# and p backwards to do in that time. So it waits 2(p-1)P for every p pairs of an F and a B. That is
# 0.375 for each pair, and 12 for the 32 pairs here. The long warm-up gives it 2p-1 pairs to do in
# that time, and the p-1 additional ones hide the transfers.
#
# Plain 1F1B has the same choice: with the long warm-up, known as *eager 1F1B* (Zhuang et al. 2023),
# a step takes 58.5 in place of 64, but device 0 has 7 microbatches in flight in place of 4. In both
# cases, hidden transfers cost memory.

# %% tags=["fold"]
short, long = tried["interleaved", 1], tried["interleaved", 2]
assert long.rows == make_table("interleaved", p, 16).rows
assert tried["1f1b", 1].rows == make_table("1f1b", p, 16).rows
assert simulate(short).peak_in_flight == [8, 7, 6, 5]
assert simulate(long).peak_in_flight == [11, 9, 7, 5]
assert timed(short, 0) == timed(long, 0) == 52.5
assert (timed(short, 0.25), timed(long, 0.25)) == (66, 56)
double = [timed(warmed_up("interleaved", m, 1), 0.25) for m in (16, 32)]
assert double[1] - double[0] == 48 + 2 * 16 * 1.5 * 0.25  # 48: the work of 16 microbatches
assert [timed(tried["1f1b", ahead], 0.25) for ahead in (1, 2)] == [64, 58.5]
assert [simulate(tried["1f1b", ahead]).peak_in_flight[0] for ahead in (1, 2)] == [4, 7]

# %% [markdown]
# ## Appendix: one row of arrays
#
# This is what `lower` makes of 1F1B for device 2, in its first ticks. A *slot* is a place in one of
# two buffers: one for arrays that come from neighbours, and one, the *stash*, for what an F keeps
# for its B. A dash means that nothing is read or stored. (In the array, it is the number of one
# more slot, whose content is never used.)

# %% tags=["fold"]
lowered = lower(make_table("1f1b", p, 8), keep_inputs=False)
fields = "x", "dy", "stash", "from_previous", "from_next"
none = dict.fromkeys(fields, lowered.slots - 1) | {"stash": lowered.stash_slots - 1}
rows = []
for tick in range(10):
    now = {name: int(field[tick, 2]) for name, field in lowered.ticks._asdict().items()}
    kind = ".FB"[now["kind"]]
    slots = ["-" if now[name] == none[name] else str(now[name]) for name in fields]
    rows.append((tick, kind, "-" if kind == "." else str(now["microbatch"]), *slots))
table("1F1B, device 2", ("tick", "kind", "microbatch", *fields), rows)

# %% [markdown]
# Follow microbatch 1. At the end of tick 2 its x arrives from the previous device, device 1, and is
# put into slot 0 (column `from_previous`). In tick 3 the device runs its F: it reads x from slot 0,
# and keeps what B will need in stash slot 1. In tick 6 the gradient with respect to its output
# arrives from the next device, and is put into slot 0, which is free by now (column `from_next`).
# In tick 7 comes its B: dy is read from slot 0, and the stash from slot 1. From tick 8 on,
# microbatch 3 uses stash slot 1. So two slots of the stash are enough on this device, for any
# number of microbatches: this is how the program gets the memory of 1F1B.
#
# In a tick, the device does what `kind` says, and then exchanges arrays with its neighbours. Of a
# `lax.cond` only one branch is computed, so an idle tick computes nothing.

# %%
show(pipeline._Device.act, pipeline._exchange)
