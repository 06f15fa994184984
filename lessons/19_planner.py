# %% [markdown]
# # Lesson 19: the planner
#
# A model, a cluster, and a batch are given. What should be split over which devices? A *plan* is a
# mesh and all other choices, such as ZeRO's stage. A *planner* tries all plans, and sorts those
# that fit by their time.

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.collectives.shards import pad_shards
from jaxpar.cost import flops, goodput, memory, network, planner, traffic
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Link, wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.inference import inference_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.report import spent
from jaxpar.cost.terms import total
from jaxpar.cost.zero import ADAM_FP32
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.bars import Bars
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, Split, init, loss_fn
from jaxpar.parallel.remat import scan_layers
from jaxpar.train import setup, step, techniques

llama, h100 = find_model("llama3-70b"), find_cluster("h100")
S, peak = 8192, h100.device.peak_flops["bf16"]  # S: tokens of a sequence

# %% [markdown]
# ## The idea in one picture
#
# A step of Llama 3 70B on 512 H100, with 512 sequences of 8192 tokens: the fastest plan, and the
# fastest one with fully sharded data parallelism alone (lesson 10). Communication that can overlap
# with arithmetic does.


# %%
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

# %% [markdown]
# Both fit. In order to fit, the second recomputes every layer. The first splits layers and
# positions over devices, so that each can keep what it needs.
#
# ## Predict
#
# Your turn, before you read on.
#
# 1. Tensor parallelism on 8 devices is in one node, on 16 in two. Between nodes each device has a
#    network card with a ninth of NVLink's bandwidth. What happens to the time of sending, and to
#    that of computing?
# 2. Which strategy waits less for its links when the batch grows: ZeRO, or tensor parallelism?
# 3. Four home machines, a card in each, 10 Gb Ethernet. A pipeline, or ZeRO-3?
# 4. A device fails once in six years. How often does a run on 16,384 of them stop?
#
# **Tensor parallelism stays inside the node.** A sequence through Llama 3 70B, at the peaks of
# devices and links. The question is that of lesson 11's table, for all layers and both passes, with
# sequence parallelism; so is the function, `collective_seconds`. Attention is counted in full, as
# in lesson 04. In the formulas a size may be an array: here five meshes at once.


# %%
def sending(cluster):
    """Into and out of 2 blocks, forward and backward: 8 times in each layer."""
    times, part = 8 * llama.layers, 2 * S * llama.hidden / tp
    of = "all_gather", part, Layout(tp=tp), "tp", cluster
    return times * network.collective_seconds(*of)


tp = np.array([2, 4, 8, 16, 32])
computing = total(flops.step_flops(llama, 1, S)) / (tp * peak)
ethernet = replace(h100, between=Link(20e-6, 12.5e9 / 8))  # of each device
fast, slow = sending(h100), sending(ethernet)
rows = np.round([computing, fast, slow], 3).T.tolist()
rows = [(f"tp={n}", *row) for n, row in zip(tp, rows, strict=True)]
headers = ("mesh", "computing", "sending", "sending, Ethernet")
table("Llama 3 70B on H100, seconds of a sequence", headers, rows)
assert 0.9 < fast[3] / fast[2] < 1.1 and slow[3] > (computing + fast)[2]
assert 2 * (computing + fast)[3] > 1.2 * (computing + fast)[2]

# %% [markdown]
# On 16 devices, computing takes half as long as on 8, but sending takes as long as before: each
# device exchanges 1/8 of the array with the other node by a network card of its own, beside what is
# sent inside the node, which takes longer. So two nodes do not make sending slower, and they do not
# make it faster; two groups of 8 get more done. Where a node has a single 100 Gb/s Ethernet link,
# 16 devices are slower than 8.
#
# **When a strategy waits for its links.** Take the FLOPs that a device computes for each byte that
# it sends. If that is less than peak / bandwidth, the step is *communication-bound*: sending takes
# longer, even where all of it overlaps with arithmetic. It is lesson 04's roofline, for a link. Out
# of a node, a ring over whole nodes has the bandwidth of all its 8 cards; a ring with one device on
# each node has one card.


# %%
def flops_per_byte(axis, batch, **how):
    one = Layout(microbatch=batch, **{axis: 8}, **how)
    batch = batch * one.batch_parts * (8 if axis == "pp" else 1)
    sent = traffic.step_traffic(llama, one, batch=batch, sequence=S)
    sent = sum(message.sent_bytes(one) for message in sent)
    return round(total(flops.step_flops(llama, batch, S)) / 8 / sent)


ways = {"data parallel": ("dp", {}), "ZeRO-3": ("fsdp", {"zero": 3})}
ways |= {"tensor": ("tp", {"sequence_parallel": True}), "pipeline": ("pp", {})}
has = {}
for name, (axis, how) in ways.items():
    has[name] = [flops_per_byte(axis, size, **how) for size in (1, 4)]
headers = ("strategy, 8 devices", "a sequence each", "four each")
table("FLOPs for each byte sent", headers, [(k, *v) for k, v in has.items()])
home = find_cluster("rtx4090")
cards = h100.devices_per_node * h100.between.bytes_per_second
links = {
    "H100, NVLink": (h100, h100.inside.bytes_per_second),
    "H100, whole nodes, 8 cards each": (h100, cards),
    "H100, one device of each node": (h100, h100.between.bytes_per_second),
    "home, 10 Gb Ethernet": (home, home.between.bytes_per_second),
}
asks = {name: of.device.peak_flops["bf16"] / speed for name, (of, speed) in links.items()}
rows = [(name, round(ask)) for name, ask in asks.items()]
table("FLOPs that links ask for each byte", ("links", "FLOPs"), rows)
nvlink, nodes, card, at_home = asks.values()
(data, zero3, tensor, pipeline), many = zip(*has.values(), strict=True)
assert nvlink < nodes < tensor < zero3 < data < card < many[1] < many[0] < at_home < pipeline
assert 0.98 < tensor / (4.5 * llama.hidden / 7) < 1 and 1.49 < data / zero3 < 1.51

# %% [markdown]
# - Data parallelism and ZeRO send parameters, however many tokens there are: **more tokens on a
#   device help**. ZeRO-3 sends them three times, and plain data parallelism twice.
# - Tensor parallelism sends activations: four times the tokens are four times the bytes. **A wider
#   model, or fewer devices, helps**: there are about 4.5 h / (tp - 1) FLOPs for each byte, where h
#   is the width.
# - A pipeline sends one activation between stages of many layers: any link will do (lesson 15).
#
# ## Implement
#
# A collective takes as long as its slower links, inside nodes or between them. A stage keeps the
# activations of several microbatches. Each term is a text, and what is printed is what is computed:

# %%
show(network.collective_seconds, memory.microbatches_in_flight)
bubble = next(term for term in first.time if term.name == "bubble")
print(f"bubble = {bubble.formula}\n       = {bubble.filled} seconds\n")

# %% [markdown]
# ## Measure
#
# Do plans hold and send what the formulas say? Two ways to train our decoder on 8 devices, compiled
# here: with the optimizer state sharded by ZeRO-1, or with the layers split by tensor parallelism.

# %%
B, T, n, like = 16, 32, 8, {"heads": 8, "kv_heads": 8}
settings = Settings(256, 4, d_model=64, d_ff=192, sequence=T, **like)
little = Architecture("", 4, 64, vocab=256, ffn=192, gated=True, **like)
params = jax.eval_shape(partial(init, settings), jax.random.key(0))
tokens, adamw = jax.ShapeDtypeStruct((B, T + 1), jnp.int32), setup.OPTIMIZER


def measure(one):
    loss = loss_fn(settings, scan_layers, Split.of(one))
    shard = partial(pad_shards, n=n) if one.zero else lambda params: params
    state = jax.eval_shape(lambda params: adamw.init(shard(params)), params)
    technique = techniques.technique_of(one, settings, params, adamw)
    run = step.make_step(loss, adamw, technique, make_mesh(one.mesh))
    report = inspect(run, params, state, tokens)
    return report.memory.arguments_bytes, report.wire_bytes_by_axis()


both = [Layout(dp=8, zero=1, microbatch=B // 8), Layout(dp=2, tp=4, microbatch=B // 2)]
measured = {one.mesh: measure(one) for one in both}

# %% [markdown]
# ## Compare
#
# They do, exactly. The arguments of a step are the parameters, Adam's states and its count of
# steps, and the tokens. What is sent over each axis is as predicted, and one more number, the loss.

# %%
rows = []
for layout in both:
    job = {"sequence": T, "batch": B, "each": ADAM_FP32}
    terms = memory.training_memory(little, layout, **job)
    terms = [t.value for t in terms if t.name in ("parameters", "optimizer")]
    arguments = sum(terms) + 4 + 4 * layout.microbatch * (T + 1)
    sent = {("dp",): wire_bytes("all_reduce", 4, layout.dp)}
    for m in traffic.step_traffic(little, layout, element_bytes=4, **job):
        sent[m.axes] = sent.get(m.axes, 0) + m.sent_bytes(layout)
    assert measured[layout.mesh] == (arguments, sent)
    rows.append((layout.mesh, int(arguments), int(sum(sent.values()))))
table("Bytes, predicted and measured", ("mesh", "arguments", "sent"), rows)

# %% [markdown]
# A CPU cannot show time. In the repository, `docs/predictions.md` compares the library's
# predictions with published runs. Plans that differ by less than the errors there count as equal:
# try both.
#
# ## On real hardware
#
# **Many nodes of A100**, as in a data centre; **four home machines**, each with one RTX 4090.

# %%
a100s = "llama3-70b", "a100", 128, 512, 4096
homes, best = ("gpt2-xl", "rtx4090", 4, 64, 1024), []
for asked in (a100s, homes):
    rows = []
    for name, one in explore(*asked)[1].items():
        gb, fits = one.plan.memory_bytes / 1e9, "yes" if one.fits else "no"
        numbers = round(one.plan.step_seconds, 1), round(gb, 1)
        rows.append((name, one.plan.layout.mesh, *numbers, fits))
    headers = ("strategy", "its best mesh", "seconds", "GB", "fits")
    table("{} on {} x {}".format(asked[0], *asked[2:0:-1]), headers, rows)
    best.append({row[0]: row[2] for row in rows if row[-1] == "yes"})
assert {"data parallel", "ZeRO-1 or 2"}.isdisjoint(best[0])
assert best[0]["3D"] < best[0]["ZeRO-3, FSDP"] < 1.5 * best[0]["3D"]
assert best[1]["ZeRO-3, FSDP"] > 2 * best[1]["pipeline"]

# %% [markdown]
# - In the data centre, 3D: what sends activations in each layer stays inside a node, and a pipeline
#   goes over nodes. ZeRO-3 fits if it recomputes layers; it is slower, and simpler.
# - At home, a pipeline: activations are small, and parameters are not. ZeRO-3 fits, and waits for
#   Ethernet. There is no 3D: each machine has one card.
#
# **Llama 3 405B** was trained on 16,384 H100 with pp=16, dp=128, tp=8, at 400 TFLOP/s each (table 4
# of its paper). Here is what the planner computes for this plan, and the plan that it would choose:

# %%
own = explore("llama3-405b", "h100", 16384, 2048, S)[0].plans[0]
how = {"zero": 1, "remat": "selective", "sequence_parallel": True, "chunks": 8}
theirs = replace(own, layout=Layout(pp=16, dp=128, tp=8, **how))
rows = []
for name, one in {"theirs": theirs, "ours": own}.items():
    numbers = one.step_seconds, one.memory_bytes / 1e9, one.mfu * peak / 1e12
    rows.append((name, one.layout.mesh, *(round(x, 1) for x in numbers)))
headers = ("whose", "mesh", "seconds", "GB", "TFLOP/s")
table("Llama 3 405B on 16,384 H100, predicted", headers, rows)
assert abs(rows[0][-1] / 400 - 1) < 0.15 and 80 < rows[0][3] < 90
assert abs(own.step_seconds / theirs.step_seconds - 1) < 0.2

# %% [markdown]
# Both are equally fast, as far as a formula can tell. By the formulas, theirs needs more than the
# 80 GB that a device has: its authors free tensors early, which our formulas do not know.
#
# **Failures.** If one device fails, all stop, and the work since the last checkpoint is lost.
# *Goodput* is the fraction of time whose work is not lost. Saving often loses less work, but takes
# more time:

# %%
show(goodput.Failures.goodput_at)
run, hours = own.failures, own.failures.mtbf_seconds / 3600
often = [round(times * run.interval_seconds) for times in (0.2, 1, 5)]
rows = [(after, round(100 * run.goodput_at(after), 1)) for after in often]
title = f"A failure every {hours:.1f} hours"
table(title, ("seconds between checkpoints", "goodput %"), rows)
assert rows[0][1] < rows[1][1] > rows[2][1] and 90 < rows[1][1] < 95

# %% [markdown]
# Llama 3's run stopped 419 times in 54 days (a device fails once in 16,384 * 54 / 419 days, or six
# years); its effective time was above 90% (section 3.3.4 of its paper). A plan of yours:
# `jaxpar plan --model gpt2-xl --hardware rtx4090 --devices 2`; `--explain` shows every term.
#
# **Answering** keeps the parameters, and for each token so far a key and a value of each key head,
# in each layer: the *KV cache*. Here it is for 8192 tokens. How many people fit on your device?

# %%
terms = inference_memory(find_model("llama3-8b"), batch=1, sequence=S)
rows = [(term.name, round(float(term.value) / 1e9, 2)) for term in terms]
table("Llama 3 8B, answering one person", ("term", "GB"), rows)

# %% [markdown]
# ## Exercises

# %%
exercises("19")

# %% [markdown]
# ## Sources
#
# Narayanan et al. 2021, *Efficient Large-Scale Language Model Training*. Grattafiori et al. 2024,
# *The Llama 3 Herd of Models*, section 3.3. Daly 2006, *A Higher Order Estimate of the Optimum
# Checkpoint Interval*. Austin et al. 2025, *How to Scale Your Model*.
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
# In full `--tensor-model-parallel-size`, `ici_tensor_parallelism`, `tp_size`. Horovod is `dp`:
# `DistributedOptimizer`. Torch-XLA gives arrays shardings, as lesson 01 does (FSDPv2: axis `fsdp`).
