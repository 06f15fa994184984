# %% [markdown]
# # Lesson 19: the planner
#
# A model, a cluster and a batch are given. What should be split over which devices, and what should
# be recomputed? Each lesson so far has shown one way, and each way costs memory, FLOPs or bytes on
# a link. A *plan* says which of them are used: it has a mesh, a stage of ZeRO, a size of
# microbatches, and a kind of recomputation.
#
# A *planner* computes by formulas what a plan holds and how long its step takes, for many plans. It
# drops those that do not fit into memory, and sorts the others by time. In this lesson we build a
# small planner, use the library's, and ask how far such formulas can be trusted.

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from dataclasses import replace
from functools import partial
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.cost import flops, goodput, memory, network, planner, traffic
from jaxpar.cost.communication import Link, wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.inference import inference_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.calibrate import runs_by_kind
from jaxpar.cost.planner.faster import plan_costs
from jaxpar.cost.planner.plan import memory_terms, time_terms
from jaxpar.cost.planner.ranking import rankings
from jaxpar.cost.planner.report import spent
from jaxpar.cost.terms import total
from jaxpar.cost.zero import ADAM_FP32
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.bars import Bars
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init
from jaxpar.train.optimizer import Optimization, make_optimizer
from jaxpar.train.recipe import Recipe
from jaxpar.train.setup import technique_of
from jaxpar.train.step import make_step

llama, h100 = find_model("llama3-70b"), find_cluster("h100")
S, peak = 8192, h100.device.peak_flops["bf16"]  # S: tokens of a sequence

# %% [markdown]
# ## The idea in one picture
#
# A step of Llama 3 70B on 512 H100, with 512 sequences of 8192 tokens. In each picture the upper
# bar is the fastest plan that the library finds, and the lower one is the fastest that splits only
# the batch and the states of training (FSDP, lesson 10).


# %% tags=["fold"]
def explore(model, cluster, *sizes):  # devices, batch, sequence
    job = planner.Job(find_model(model), find_cluster(cluster), *sizes)
    found = planner.explore(job, {}, overlap=True)
    return found, {one.name: one for one in found.strategies}


found, known = explore("llama3-70b", "h100", 512, 512, S)
first, sharded = found.plans[0], known["ZeRO-3, FSDP"].plan
held, took = {}, {}
for one in (first, sharded):
    held[one.layout.mesh] = {t.name: t.value / 1e9 for t in one.memory}
    took[one.layout.mesh] = spent(one)
limit = "an H100", h100.device.memory_bytes / 1e9
draw("19_memory", Bars("What a device holds", "GB", held, limit))
draw("19_step", Bars("What a step takes", "seconds", took))
assert sharded.layout.remat == "full" != first.layout.remat
assert first.layout.mesh == "pp=4,dp=16,cp=4,tp=2"

# %% [markdown]
# "Gathered" are layers that are held in full for a moment, "recomputed" is the layer that is being
# recomputed, and "outside" is what is kept before the first and after the last layer. "Memory
# traffic" is the time of what waits for the memory of the device (norms, for example), and "links"
# the time of waiting for what is sent.
#
# Both plans fit. But the second one fits only because it recomputes every layer, and this is what
# makes its step longer. The first one also splits each sequence over devices. So a device has fewer
# activations, and need not recompute whole layers.
#
# The axes of a mesh, what each of them splits, and what it sends:
#
# | axis | splits | sends | lesson |
# |---|---|---|---|
# | `dp` | the batch | gradients, once in a step | 05 |
# | `fsdp` | the batch, and the states of training | parameters twice, gradients once | 10 |
# | `tp` | the matrices of each layer | activations, in every layer | 11, 12 |
# | `pp` | the layers | activations, between stages | 15, 16 |
# | `cp` | the positions of a sequence | keys and values, in every layer | - |
#
# The last one is new. With *context parallelism* (cp) each device computes all layers, but only for
# its own positions of every sequence. Norms and products with weights need no other positions.
# Attention does: each query looks at the keys and values of all positions before it. So keys and
# values travel around a ring of devices, and each device computes with those that it receives (Liu
# et al. 2023, *Ring Attention*). Sequence parallelism (lesson 12) is something else: it splits
# positions over the devices of tp, and only between attention and MLP.
#
# ## Predict
#
# Take 16 H100 in two nodes of 8. A device has 450 GB/s of NVLink inside its node, and a network
# card of 50 GB/s to the other node, and in the best case both work at the same time. It computes
# 989 TFLOP/s at its peak. Take the collectives of tensor parallelism, which gather and reduce
# arrays of the same size for any tp.

# %%
asked = ask("FLOPs for each byte on NVLink, if computing and sending take equally long", "count")
longer = ask("Time of collectives with tp=16, on both nodes, divided by that with tp=8", "count")

# %% [markdown]
# Four machines at home have an RTX 4090 each, and 10 Gb/s Ethernet between them, 1.25 GB/s.
# GPT-2 XL has 1.56 billion parameters in bfloat16. ZeRO-3 gathers them twice in a step, and
# reduce-scatters their gradients once.

# %%
waiting = ask("Time of sending in a step of ZeRO-3 on the four machines", "seconds")

# %% [markdown]
# The last question is about failures. In the training of Llama 3 there was, on average, one failure
# in 50,700 hours of a device.

# %%
failing = ask("Hours between two failures in a run on 16,384 devices", "count")

# %% [markdown]
# ## Implement
#
# ### A planner by hand
#
# Three loops try sizes and kinds of recomputation. `memory_terms` returns what a device holds, as a
# list of terms, and `time_terms` what a step spends; `overlap=True` hides communication where that
# is possible. A plan fits if it leaves a tenth of the memory free, for buffers and for gaps between
# arrays.


# %%
def try_every_mesh(job):
    fitting = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8, 16):
            dp = job.devices // (pp * tp)
            for remat in ("none", "full"):
                layout = Layout(pp=pp, dp=dp, tp=tp, zero=1, remat=remat, sequence_parallel=tp > 1)
                held = float(total(memory_terms(job, layout)))
                seconds = float(total(time_terms(job, layout, overlap=True)))
                if held < 0.9 * job.cluster.device.memory_bytes:
                    fitting.append((seconds, held / 1e9, layout.mesh, remat))
    return sorted(fitting)


tried = try_every_mesh(planner.Job(llama, h100, 512, 512, S))

# %% tags=["fold"]
shown = [(mesh, again, round(time, 1), round(gb, 1)) for time, gb, mesh, again in tried]
table("The fastest of 40 plans, Llama 3 70B", ("mesh", "recomputed", "seconds", "GB"), shown[:5])
print(f"{len(tried)} of them fit. The library tries {found.tried:,} plans, and takes")
print(f"{first.layout.mesh}: {first.step_seconds:.1f} s.\n")
assert tried[0][2] == "dp=64,tp=8" and round(tried[0][0] / first.step_seconds, 2) == 1.14
assert found.tried > 40_000

# %% [markdown]
# The best of these forty plans takes only 14% longer than the best of the library's. The library
# also tries other microbatches, chunks, cp, and all stages of ZeRO. Its sizes may be arrays, so
# that one formula computes the times of thousands of plans at once.
#
# ### What a term is
#
# A term has a name, a formula written as text, and the numbers in it. The library computes the
# value from this text, so a term can print how it was computed. Here is the bubble of the fastest
# plan, and then two functions that formulas use:

# %%
bubble = next(term for term in first.time if term.name == "bubble")
print(f"bubble = {bubble.formula}\n       = {bubble.filled} seconds\n")
show(network.collective_seconds, memory.microbatches_in_flight)

# %% [markdown]
# The first function gives the time of each collective. Where its devices are on several nodes, it
# uses the links inside nodes and those between them at once, so the slower ones count, plus the
# latencies of both. The second function gives the number of microbatches whose activations a
# stage of a pipeline holds (lesson 16).
#
# ## Measure
#
# ### Bytes
#
# Do plans hold and send what the formulas say? We compile two plans for our decoder on the 8
# devices of this machine: ZeRO-1 on dp=8, and tensor parallelism on dp=2,tp=4. The inspector reads
# both programs.

# %%
B, T, n = 16, 32, 8
settings = Settings(d_model=64, d_ff=192, sequence=T)
little = settings.architecture
params = jax.eval_shape(lambda: init(settings, jax.random.key(0)))
tokens = jax.ShapeDtypeStruct((B, T + 1), jnp.int32)
adamw = make_optimizer(Optimization())


def measure(layout):
    run = make_step(technique_of(settings, Recipe(layout, B)), adamw, make_mesh(layout.mesh))
    report = inspect(run, params, jax.eval_shape(adamw.init, params), tokens)
    return report.memory.arguments_bytes, report.wire_bytes_by_axis()


both = [Layout(dp=8, zero=1, microbatch=B // 8), Layout(dp=2, tp=4, microbatch=B // 2)]
measured = {layout.mesh: measure(layout) for layout in both}

# %% [markdown]
# The arguments of a step are the parameters, Adam's states with its count of steps, and the tokens.

# %% tags=["fold"]
rows = []
for layout in both:
    job = {"sequence": T, "batch": B, "each": ADAM_FP32}
    terms = memory.training_memory(little, layout, **job)
    terms = [t.value for t in terms if t.name in ("parameters", "optimizer")]
    arguments = sum(terms) + 4 + 4 * layout.microbatch * (T + 1)
    sent = {("dp",): wire_bytes("all_reduce", 4, layout.dp)}  # the loss
    split_over = "dp" if layout.zero else "tp"  # what is summed for the norm of the gradients
    one_number = wire_bytes("all_reduce", 4, layout.sizes[split_over])
    sent[split_over,] = sent.get((split_over,), 0) + one_number
    for m in traffic.step_traffic(little, layout, element_bytes=4, **job):
        sent[m.axes] = sent.get(m.axes, 0) + m.sent_bytes(layout)
    assert measured[layout.mesh] == (arguments, sent)
    two = measured[layout.mesh][0], int(sum(measured[layout.mesh][1].values()))
    rows.append((layout.mesh, int(arguments), two[0], int(sum(sent.values())), two[1]))
columns = "mesh", "held, predicted", "measured", "sent, predicted", "measured"
table("Bytes of a device", columns, rows)

# %% [markdown]
# Predicted and measured bytes are equal. Times are harder to predict.
#
# ### Tensor parallelism over two nodes
#
# Now times, by the formulas and at the peaks of devices and links. One sequence goes through Llama
# 3 70B, forward and backward. With sequence parallelism each layer has 8 collectives that computing
# waits for. (Megatron-LM gathers the inputs of attention and MLP once more in the backward pass, to
# save memory; these gathers are hidden.) The last column is for nodes with a single 100 Gb/s
# Ethernet link for 8 devices. Under Compare we come back to this table.


# %%
def sending(cluster):
    """All-gathers and reduce-scatters around attention and MLP, in both passes."""
    times, part = 8 * llama.layers, 2 * S * llama.hidden / tp
    return times * network.collective_seconds("all_gather", part, Layout(tp=tp), "tp", cluster)


tp = np.array([2, 4, 8, 16, 32])
computing = total(flops.step_flops(llama, 1, S)) / (tp * peak)
ethernet = replace(h100, between=Link(20e-6, 12.5e9 / 8))  # of each device
fast, slow = sending(h100), sending(ethernet)

# %% tags=["fold"]
rows = np.round([computing, fast, slow], 3).T.tolist()
rows = [(f"tp={k}", *row) for k, row in zip(tp, rows, strict=True)]
columns = "mesh", "computing", "sending", "sending, Ethernet"
table("Llama 3 70B on H100, seconds of a sequence", columns, rows)
assert 0.9 < fast[3] / fast[2] < 1.1 and slow[3] > (computing + fast)[2]
assert 2 * (computing + fast)[3] > 1.2 * (computing + fast)[2]
of_11 = partial(network.collective_seconds, "all_reduce", 2 * 4096**2, axis="tp", cluster=h100)
in_11 = [round(2e3 * float(of_11(layout=Layout(tp=k))), 2) for k in (8, 16)]
assert in_11 == [0.31, 0.33]  # milliseconds

# %% [markdown]
# ### FLOPs for each byte
#
# Take the FLOPs that a device computes for each byte that it sends. If they are fewer than its peak
# divided by the bandwidth of the link, the step is *communication-bound*: sending takes longer than
# computing, even where all of it overlaps. This is the roofline of lesson 04, for a link. Here are
# four techniques, 8 devices each, with one sequence in a microbatch and with four.


# %%
def flops_per_byte(axis, microbatch, **how):
    layout = Layout(microbatch=microbatch, **{axis: 8}, **how)
    batch = microbatch * layout.batch_parts
    if axis == "pp":
        batch = 8 * batch
    messages = traffic.step_traffic(llama, layout, batch=batch, sequence=S)
    sent = sum(message.sent_bytes(layout) for message in messages)
    return round(total(flops.step_flops(llama, batch, S)) / 8 / sent)


ways = {"data parallel": ("dp", {}), "ZeRO-3": ("fsdp", {"zero": 3})}
ways |= {"tensor": ("tp", {"sequence_parallel": True}), "pipeline": ("pp", {})}
has = {name: [flops_per_byte(axis, k, **how) for k in (1, 4)] for name, (axis, how) in ways.items()}

# %% tags=["fold"]
columns = "8 devices", "one sequence", "four sequences"
table("FLOPs for each byte sent", columns, [(name, *row) for name, row in has.items()])
home = find_cluster("rtx4090")
cards = h100.devices_per_node * h100.between.bytes_per_second
links = {
    "H100, NVLink": (h100, h100.inside.bytes_per_second),
    "H100, whole nodes, 8 cards each": (h100, cards),
    "H100, one device of each node": (h100, h100.between.bytes_per_second),
    "home, 10 Gb Ethernet": (home, home.between.bytes_per_second),
}
needs = {name: of.device.peak_flops["bf16"] / speed for name, (of, speed) in links.items()}
rows = [(name, round(need)) for name, need in needs.items()]
table("FLOPs that links need for each byte", ("links", "FLOPs"), rows)
nvlink, nodes, card, at_home = needs.values()
(data, zero3, tensor, pipeline), many = zip(*has.values(), strict=True)
assert nvlink < nodes < tensor < zero3 < data < card < many[1] < many[0] < at_home < pipeline
assert 0.98 < tensor / (4.5 * llama.hidden / 7) < 1 and 1.49 < data / zero3 < 1.51
in_layers = llama.parameters - 2 * llama.vocab * llama.hidden
assert round((6 * in_layers / llama.layers + 12 * S * llama.hidden) / 1e9, 1) == 5.9

# %% [markdown]
# Data parallelism and ZeRO send gradients and parameters, however many tokens there are, so **more
# tokens on a device help**. Tensor parallelism sends activations: four times the tokens are four
# times the bytes, and only **a wider model, or fewer devices, help**. In this model a layer takes
# 5.9 GFLOPs for a token, and sends 10 times 2h (tp - 1) / tp bytes for it, Megatron-LM's second
# gathers included. Divided by tp, these are about 4.5 h / (tp - 1) FLOPs for each byte, where h =
# 8192 is the width. A pipeline sends one activation for many layers, so even 10 Gb Ethernet is fast
# enough.
#
# ### Where a plan loses its time
#
# Often there is a plan already, and it is slow. Then look at what its step spends. Here is Llama 3
# 70B on 64 H100, with a pipeline of 8 stages, tp=8, and 64 sequences of 4096 tokens. `plan_costs`
# returns the seconds by cause, and the bytes that a device holds. A cause that has the name of an
# axis, such as "tp", is waiting for what is sent over this axis.

# %%
job = {"model": "llama3-70b", "layers": 80, "hardware": "h100", "devices_per_node": 8}
job |= {"devices": 64, "batch": 64, "sequence": 4096}
slow_plan = {"pp": 8, "dp": 1, "fsdp": 1, "tp": 8, "chunks": 1, "microbatch": 8, "remat": "full"}
costs = {}
for microbatch in (8, 4, 1):
    seconds, held_bytes = plan_costs(slow_plan | {"microbatch": microbatch}, job)
    costs[f"microbatch={microbatch}"] = {cause: s for cause, s in seconds.items() if s > 0.001}

# %% tags=["fold"]
draw("19_causes", Bars("What a step takes, pp=8,tp=8", "seconds", costs))
steps = {name: sum(seconds.values()) for name, seconds in costs.items()}
assert 1.6 < steps["microbatch=8"] / steps["microbatch=1"] < 1.7
assert round(costs["microbatch=8"]["bubble"] / steps["microbatch=8"], 2) == 0.45

# %% [markdown]
# With 8 microbatches of 8 sequences, 45% of the step is the bubble (nearly 7 of 15 slots, lesson
# 15). One change, microbatches of one sequence, makes the step 1.6 times as fast. `faster_plan`
# asks for such a change, also for plans with other faults.
#
# ## Compare

# %%
xl = find_model("gpt2-xl")
pass_seconds = 3 / 4 * 2 * xl.parameters / 1.25e9
hours = goodput.DEVICE_MTBF_HOURS / 16384
asked.compare(peak / 450e9)
longer.compare(fast[3] / fast[2])
once_more = dict.fromkeys(("gather, forward", "gather, backward", "reduce-scatter"), pass_seconds)
waiting.compare(3 * pass_seconds, once_more)
failing.compare(hours)

# %% [markdown]
# **Collectives take hardly longer on two nodes.** With tp=8 a device sends 7/8 of each array on
# NVLink. With tp=16 it does so, too, and also sends half of 1/8 of the array by its own card. These
# 1/16 at 50 GB/s take less time than 7/8 at 450 GB/s. (In eight flat rings, as NCCL makes them,
# 15/16 of the array leaves each node in place of 1/2, and takes 1.26 times as long as with tp=8;
# see lesson 03.) But computing takes half as long as with tp=8, so that sending is now 42% of the
# time, and two groups of 8 get more done than one of 16. Lesson 11 finds the same for one layer.
# Where a node has a single Ethernet link, 16 devices are slower than 8.

# %% tags=["fold"]
assert round(fast[3] / (fast + computing)[3], 2) == 0.42
rings = network.flat_ring_seconds("all_gather", S * llama.hidden / 8, Layout(tp=16), "tp", h100)
assert round(8 * llama.layers * float(rings) / fast[2], 2) == 1.26
assert 1 / 16 / 50e9 < 7 / 8 / 450e9
assert round(hours, 1) == 3.1 and round(3 * pass_seconds, 1) == 5.6
assert np.isclose(peak / 450e9, nvlink)

# %% [markdown]
# ### Times, predicted and published
#
# A CPU cannot show the time of a cluster. So the library's times are compared with 224 runs that
# others have published with their layouts. One number is fitted to them for each kind of hardware:
# the fraction of the peak that matrix products reach. "hopper-tuned" is the same chip as "hopper",
# an H100, with the kernels and settings of NVIDIA's own recipes. An error of +10% means that the
# predicted step is 10% longer than the published one.

# %%
rows = []
for kind, runs in runs_by_kind().items():
    errors = [run.error() for run in runs]
    worst = max(errors, key=abs)
    papers = len({run.paper for run in runs})
    reached = runs[0].cluster.efficiency.products
    rows.append((kind, papers, len(runs), reached, 100 * median(map(abs, errors)), 100 * worst))

# %% tags=["fold"]
shown = [(*row[:4], f"{row[4]:.1f}", f"{row[5]:+.1f}") for row in rows]
columns = "hardware", "papers", "runs", "of the peak", "error, median %", "worst %"
table("Seconds of a step, predicted against published", columns, shown)
assert sum(row[2] for row in rows) == 224 and max(row[4] for row in rows) < 6
assert max(abs(row[5]) for row in rows) < 22
every = [abs(run.error()) for runs in runs_by_kind().values() for run in runs]
assert median(every) < 0.05
sets = rankings()
assert (len(sets), sum(len(one.runs) for one in sets)) == (28, 318)
assert sum(one.loss == 0 for one in sets) == 22 and sum(one.loss <= 0.1 for one in sets) == 26
assert median(one.error for one in sets) < 0.08

# %% [markdown]
# Half of the runs are predicted within 5%, and the worst is off by 22%. `docs/predictions.md` in
# the repository lists all of them with their sources. It also predicts the runs of each paper with
# what is fitted to the other papers. Then the median error of a paper is 0.3 to 19%, and the worst
# error is 22%. So **plans that differ by less than a tenth count as equal**, and both should be
# tried.
#
# A planner must above all put plans in the right order. Two teams have published sets of runs of
# one model on the same devices, which differ in their layout alone. The page has 28 such sets, of
# 318 runs. In 22 of them the layout that the library calls the fastest is the fastest, and in 26 it
# is at most a tenth slower than the fastest. The page also says which runs of theirs do not count,
# because the network or the program did something that no formula here describes.
#
# One thing these sets show is the **host**. In PyTorch without compilation, Python launches each
# kernel, and for the forward and backward pass of one layer that takes it 4 to 6.5 ms, whatever the
# layer's size. With a small microbatch, or a layer that is split over tp=8, the device is done
# sooner and waits. `jaxpar plan --eager` counts this. A compiled JAX program launches the whole
# step at once.
#
# ## On real hardware
#
# ### In a data centre, and at home
#
# Llama 3 70B on 128 A100 in nodes of 8, and GPT-2 XL on four machines with one RTX 4090 each. The
# best plan of each strategy:

# %% tags=["fold"]
a100s = "llama3-70b", "a100", 128, 512, 4096
homes, best = ("gpt2-xl", "rtx4090", 4, 64, 1024), []
for of in (a100s, homes):
    rows = []
    for name, one in explore(*of)[1].items():
        gb, fits = one.plan.memory_bytes / 1e9, "yes" if one.fits else "no"
        numbers = round(one.plan.step_seconds, 1), round(gb, 1)
        rows.append((name, one.plan.layout.mesh, *numbers, fits))
    columns = "strategy", "its best mesh", "seconds", "GB", "fits"
    table("{} on {} x {}".format(of[0], *of[2:0:-1]), columns, rows)
    best.append({row[0]: row[2] for row in rows if row[-1] == "yes"})
assert {"data parallel", "ZeRO-1 or 2"}.isdisjoint(best[0])
assert round(best[0]["ZeRO-3, FSDP"] / best[0]["3D"], 2) == 1.22
assert best[1]["ZeRO-3, FSDP"] > 2 * best[1]["pipeline"]

# %% [markdown]
# - **In the data centre, 3D**, which is data, tensor and pipeline parallelism together, and here cp
#   as well. Tensor and context parallelism send in each layer, and stay inside a node; the pipeline
#   goes over nodes. ZeRO-3 fits if it recomputes layers. Its step takes 22% longer, and it is
#   simpler to run.
# - **At home, a pipeline**, because activations are small and parameters are not. ZeRO fits as
#   well, but waits for Ethernet. There is no 3D, as each machine has one card.
#
# ### Llama 3 405B
#
# It was trained on 16,384 H100 with pp=16, dp=128, tp=8, at 400 TFLOP/s each (table 4 of its
# paper). Here is what the planner computes for this mesh, with ZeRO-1 and one layer in each chunk,
# and the plan that it would choose itself:

# %% tags=["fold"]
own = explore("llama3-405b", "h100", 16384, 2048, S)[0].plans[0]
how = {"remat": "selective", "sequence_parallel": True, "chunks": 8}
theirs = replace(own, layout=Layout(pp=16, dp=128, tp=8, zero=1, **how))
rows = []
for name, one in {"theirs": theirs, "the planner's": own}.items():
    numbers = one.step_seconds, one.memory_bytes / 1e9, one.mfu * peak / 1e12
    rows.append((name, one.layout.mesh, *(round(x, 1) for x in numbers)))
columns = "whose", "mesh", "seconds", "GB", "TFLOP/s"
table("Llama 3 405B on 16,384 H100, predicted", columns, rows)
assert round(rows[0][-1] / 400 - 1, 2) == -0.06 and 82 < rows[0][3] < 83
assert round(own.step_seconds / theirs.step_seconds, 2) == 0.93
assert (own.layout.cp, own.layout.context) == (4, "zigzag")
sharded_gradients = replace(own, layout=Layout(pp=16, dp=128, tp=8, zero=2, **how))
assert 76 < sharded_gradients.memory_bytes / 1e9 < 77

# %% [markdown]
# For their mesh the formulas give 6% fewer TFLOP/s than published. The planner's own takes 7% less
# time: it splits positions, too, and sends keys and values around a ring (lesson 14). By the rule
# above that is no difference. With ZeRO-1 their mesh would need more than 80 GB. But their run
# sharded the gradients as well, for which the formulas of ZeRO-2 give 76 GB, and it freed tensors
# early, which our formulas do not know (section 3.3.2 of the paper).
#
# ### A convention of counting
#
# Our FLOPs count every query with every key (lesson 04). In Llama 3 70B with 8192 tokens the two
# products of attention are 13% of them. FlashAttention-2 skips about half of these, the blocks that
# a causal mask hides as a whole (Dao 2023, section 3.1). So about 7% of the counted FLOPs are never
# computed, and an MFU from such counts is a little too high.

# %% tags=["fold"]
terms = flops.step_flops(llama, 1, S)
scores = sum(term.value for term in terms if term.name in ("scores", "attended"))
assert 0.13 < scores / total(terms) < 0.14

# %% [markdown]
# ### Failures
#
# If one device fails, all stop, and the work since the last checkpoint (the saved states of
# training) is lost. *Goodput* is the fraction of time whose work is not lost. Saving more often
# loses less work, but takes more time itself. Here is the goodput of the run above, for three
# intervals. The middle one is the best, which `young_daly_interval` asks for:

# %%
show(goodput.Failures.goodput_at)
run = own.failures
often = [round(times * run.interval_seconds) for times in (0.2, 1, 5)]
rows = [(after, round(100 * run.goodput_at(after), 1)) for after in often]
table("16,384 devices", ("seconds between checkpoints", "goodput %"), rows)

# %% tags=["fold"]
assert np.isclose(run.mtbf_seconds / 3600, hours)
assert rows[0][1] < rows[1][1] > rows[2][1] and 90 < rows[1][1] < 95

# %% [markdown]
# In Llama 3's run there were 419 unplanned interruptions in 54 days, and more than 90% of the time
# was effective training (section 3.3.4 of its paper).
#
# ### Inference
#
# A model that generates text holds its parameters, and for each token so far a key and a value of
# each kv head, in each layer: the *KV cache*. Here is what it holds for one text of 8192 tokens.

# %%
terms = inference_memory(find_model("llama3-8b"), batch=1, sequence=S)
rows = [(term.name, round(float(term.value) / 1e9, 2)) for term in terms]
table("Llama 3 8B, one text of 8192 tokens", ("term", "GB"), rows)

# %% tags=["fold"]
assert 59 < (80e9 - terms[0].value) / terms[1].value < 60

# %% [markdown]
# So beside the parameters, a device of 80 GB has room for fewer than 60 such caches.
#
# To make a plan of your own, try `jaxpar plan --model gpt2-xl --hardware rtx4090 --devices 2`. With
# `--explain` it shows every term, and with `--overlap` it hides what can be hidden.
#
# ## Exercises

# %%
exercises("19")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B is to be trained on 256 H100 of 80 GB, with 2 bytes for each parameter, 2 for its
#    gradient, and 12 for its optimizer states. How many GB of these does a device hold with tp=8,
#    dp=32 and ZeRO-1? With pp=4, dp=64 and ZeRO-1? With fsdp=256? Which of the three fit?
#
# <details><summary>Answer</summary>
#
# There are 70.6 billion parameters. In the first two plans the optimizer's states are split over
# all 256 devices, by tp or pp and by dp: 12 * 70.6 / 256 = 3.3 GB. Parameters and gradients are not
# split over dp. With tp=8 they take 4 * 70.6 / 8 = 35.3 GB: 38.6 GB in all, which leaves room for
# activations. With pp=4 they take 4 * 70.6 / 4 = 70.6 GB: 73.9 GB in all, and with activations that
# does not fit. With fsdp=256 everything is split: 16 * 70.6 / 256 = 4.4 GB, beside the layers that
# are gathered. So the first and the third fit.
#
# </details>
#
# 2. Llama 3 405B learned from 15.6 trillion tokens. How many days does that take on 16,384 H100 at
#    400 TFLOP/s each, with 6 FLOPs for each parameter and token? How many if the goodput is 92.6%,
#    the best in the table of this lesson?
#
# <details><summary>Answer</summary>
#
# 6 * 405.9 billion * 15.6 trillion = 3.8e25 FLOPs, which is what the paper prints (section 3.2.1).
# 16,384 devices do 6.55e18 in a second, so it takes 5.8 million seconds, 67 days. With the goodput
# it is 67.1 / 0.926 = 72 days.
#
# </details>
#
# 3. Each of four machines has two RTX 4090 (165 TFLOP/s at the peak) and 10 Gb/s Ethernet. Llama 2
#    7B, with 6.74 billion parameters in 16 bits, trains on 2048 tokens for each device. How long
#    does ZeRO-3 over all 8 devices send in a step? How long does it compute? And how long does it
#    take a pipeline to send 2048 tokens of width 4096 to the next machine?
#
# <details><summary>Answer</summary>
#
# A gather brings 3/4 of 13.5 GB into every machine: 10.1 GB at 1.25 GB/s take 8.1 s. There are two
# gathers and a reduce-scatter, 24 s. Computing takes 6 * 6.74e9 * 2048 / 165e12 = 0.5 s at the
# peak: ZeRO-3 waits for nearly all of the step. An activation is 2 * 2048 * 4096 bytes = 16.8 MB
# and takes 13 ms. So at home a pipeline should go over the machines.
#
# </details>
#
# ## Sources
#
# Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on GPU Clusters Using
# Megatron-LM*, sections 2 and 3. Grattafiori et al. 2024, *The Llama 3 Herd of Models*, sections
# 3.2.1, 3.3.2 and 3.3.4, table 4. Liu et al. 2023, *Ring Attention with Blockwise Transformers for
# Near-Infinite Context*. Dao 2023, *FlashAttention-2*, section 3.1. Daly 2006, *A Higher Order
# Estimate of the Optimum Checkpoint Interval for Restart Dumps*. Kwon et al. 2023, *Efficient
# Memory Management for Large Language Model Serving with PagedAttention*. Austin et al. 2025, *How
# to Scale Your Model*.
#
# | here | Megatron | MaxText | DeepSpeed | PyTorch | Accelerate | Colossal-AI |
# |---|---|---|---|---|---|---|
# | `dp` | - | `data` | - | DDP | `dp_replicate` | - |
# | `fsdp` | Megatron FSDP | `fsdp` | stage 3 | `fully_shard` | `dp_shard` | Gemini |
# | `ep` | `expert-model` | `expert` | `ep_size` | - | - | `ep_size` |
# | `cp` | `context` | `context` | Ulysses | `context_parallel` | `cp` | `sp_size` |
# | `tp` | `tensor-model` | `tensor` | AutoTP | `DTensor` | `tp` | `tp_size` |
# | `pp` | `pipeline-model` | `pipeline` | `PipelineModule` | `pipelining` | - | `pp_size` |
#
# In full `--tensor-model-parallel-size`, `ici_tensor_parallelism`, `tp_size`. `ep` splits the
# experts of a mixture of experts. Horovod is `dp`: `DistributedOptimizer`. Torch-XLA gives arrays
# shardings, as lesson 01 does (FSDPv2: axis `fsdp`).
