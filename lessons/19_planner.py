# %% [markdown]
# # Lesson 19: the planner
#
# A model, a cluster, and a batch are given. Which devices share what? Lesson 04 counts bytes and
# operations; here they decide. A *plan* is a mesh and what else is chosen: the stage of ZeRO, what
# is computed again, and the size of a microbatch. A *planner* tries all that fit.

# %%
from jaxpar.mesh import simulate_devices

simulate_devices(8)

from dataclasses import replace
from functools import partial
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.collectives.shards import pad_shards
from jaxpar.cost import flops, goodput, memory, network, planner, traffic
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Link, wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.layout import Layout
from jaxpar.cost.models import find_model
from jaxpar.cost.plan import Plan
from jaxpar.cost.plan_words import spent
from jaxpar.cost.published import published_runs
from jaxpar.cost.search import Job
from jaxpar.cost.terms import total
from jaxpar.cost.zero import ADAM_FP32
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw_bars
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel.remat import scan_layers
from jaxpar.train import layouts, plan, setup, step

llama, h100 = find_model("llama3-70b"), find_cluster("h100")
S, peak = 8192, h100.device.peak_flops["bf16"]  # S: tokens of a sequence

# %% [markdown]
# ## The idea in one picture
#
# A step of Llama 3 70B on 512 H100, 512 sequences of 8192 tokens: the fastest plan, and the fastest
# one with fully sharded data parallelism alone (lesson 10). What can run beside arithmetic does.


# %%
def explore(model, cluster, devices, batch, sequence):
    job = Job(find_model(model), find_cluster(cluster), devices, batch, sequence)
    found = planner.explore(job, {}, overlap=True)
    return found, {one.name: one for one in found.strategies}


found, known = explore("llama3-70b", "h100", 512, 512, S)
first, sharded = found.plans[0], known["ZeRO-3, FSDP"].plan
held, took = {}, {}
for one in (first, sharded):
    held[one.layout.mesh] = {t.name: t.value / 1e9 for t in one.memory}
    took[one.layout.mesh] = spent(one)
limit = "an H100", h100.device.memory_bytes / 1e9
draw_bars("19_memory", "What a device holds", "GB", held, limit)
draw_bars("19_step", "What a step takes", "seconds", took)
print(f"The best of {found.tried:,} layouts.\n")
assert first.step_seconds < sharded.step_seconds

# %% [markdown]
# Both fit. To fit, the second computes every layer again. The first spreads layers and positions
# over devices, so that each can keep what it needs.
#
# ## Predict
#
# Your turn, before you read on.
#
# 1. Tensor parallelism on 8 devices, in one node: NVLink. On 16, in two: InfiniBand, with a ninth
#    of the bandwidth. How much of a step is sending, in each?
# 2. Which strategy waits less for its links if the batch grows: ZeRO, or tensor parallelism?
# 3. Four home machines, a card in each, 10 Gb Ethernet. Pipeline, or ZeRO-3?
# 4. A device fails once in six years. How often does a run on 16,384 of them stop?
#
# **Tensor parallelism stays inside the node.** In the formulas a size may be an array: this is a
# sequence through five meshes at once, at the peaks of devices and links.

# %%
tp = np.array([2, 4, 8, 16, 32])
mesh = Layout(tp=tp, sequence_parallel=True)
ethernet = Link(20e-6, 12.5e9 / 8)  # a device's share
sent = traffic.step_traffic(llama, mesh, batch=1, sequence=S)


def sending(cluster):
    one = network.collective_seconds
    each = (one(m.kind, m.operand_bytes, mesh, m.axes, cluster) for m in sent)
    return sum(m.times * time for m, time in zip(sent, each, strict=True))


computing = total(flops.step_flops(llama, 1, S)) / (tp * peak)
fast, slow = sending(h100), sending(replace(h100, between=ethernet))
rows = zip(computing, fast, slow, strict=True)
rows = [[round(float(t), 3) for t in times] for times in rows]
headers = ("mesh", "computing", "sending", "on Ethernet")
rows = [(f"tp={n}", *row) for n, row in zip(tp, rows, strict=True)]
table("Llama 3 70B on H100: seconds of one sequence", headers, rows)
took = computing + fast
assert 2 * took[3] > 1.2 * took[2]
assert computing[3] + slow[3] > took[2]

# %% [markdown]
# To 8 devices, NVLink is there. On 16, two nodes, computing takes half as long, and sending as long
# as before: two groups of 8, a sequence each, get more done. With one 100 Gb/s Ethernet for each
# node, 16 devices are slower than 8. So planners try tensor parallelism inside nodes only.
#
# **When a strategy waits for its links.** Take the FLOPs that a device computes for each byte that
# it sends. If that is less than peak / bandwidth, the step is *communication-bound*: sending takes
# longer, even where all of it runs beside arithmetic. It is lesson 04's roofline, with a link in
# place of the memory.


# %%
def flops_per_byte(axis, batch=1, **how):
    one = Layout(microbatch=batch, **{axis: 8}, **how)
    batch = batch * one.batch_parts * (8 if one.pp > 1 else 1)
    sent = traffic.step_traffic(llama, one, batch=batch, sequence=S)
    sent = sum(message.sent_bytes(one) for message in sent)
    return total(flops.step_flops(llama, batch, S)) / one.devices / sent


ways = {
    "data parallel": partial(flops_per_byte, "dp"),
    "ZeRO-3": partial(flops_per_byte, "fsdp", zero=3),
    "tensor": partial(flops_per_byte, "tp", sequence_parallel=True),
    "pipeline": partial(flops_per_byte, "pp"),
}
few, many = ({k: f(batch=size) for k, f in ways.items()} for size in (1, 4))
rows = [(name, round(few[name]), round(many[name])) for name in ways]
headers = ("strategy, 8 devices", "a sequence each", "four each")
table("FLOPs for each byte sent", headers, rows)
home = find_cluster("rtx4090")
links = {"NVLink": (h100, h100.inside), "InfiniBand": (h100, h100.between)}
links["10 Gb Ethernet"] = home, home.between
needed = {
    name: its.device.peak_flops["bf16"] / link.bytes_per_second
    for name, (its, link) in links.items()
}
rows = [(name, links[name][0].name, round(n)) for name, n in needed.items()]
table("FLOPs for each byte that links ask for", ("link", "of", "FLOPs"), rows)
nvlink, infiniband, at_home = needed.values()
assert nvlink < few["tensor"] < few["ZeRO-3"] < infiniband < many["ZeRO-3"]
assert many["tensor"] < infiniband and many["data parallel"] < at_home
assert few["pipeline"] > at_home

# %% [markdown]
# - Data parallelism and ZeRO send parameters, however many tokens come: **more tokens on a device
#   help**. ZeRO-3 has about a FLOP for each byte and token, data parallelism one and a half.
# - Tensor parallelism sends activations: four times the tokens, four times the bytes. **A wider
#   model, or fewer devices, help**: for a GPT it has 4.5 h / (tp - 1), if h is its width.
# - A pipeline sends one activation between stages of many layers. It wants no fast link, but many
#   microbatches (lesson 15).
#
# ## Implement
#
# A collective takes what its slower links take, inside nodes or between them. A stage keeps the
# activations of so many microbatches. Each formula is text, and what is printed is computed:

# %%
show(network.collective_seconds, memory.microbatches_in_flight)
bubble = next(term for term in first.time if term.name == "bubble")
print(f"{bubble.name} = {bubble.formula}\n       = {bubble.filled}")
print(f"       = {bubble.value:.3f} s\n")

# %% [markdown]
# ## Measure
#
# Do plans hold and send what the formulas say? Two ways to train our decoder on 8 devices, compiled
# here: states of the optimizer shared by ZeRO-1, or layers shared by tensor parallelism.

# %%
sizes = {"heads": 8, "kv_heads": 8}
settings = Settings(layers=4, d_model=64, d_ff=192, sequence=32, **sizes)
little = Architecture("little", 4, 64, vocab=settings.vocabulary, ffn=192, gated=True, **sizes)
B, T, n = 16, settings.sequence, 8
params = jax.eval_shape(partial(init, settings), jax.random.key(0))
tokens = jax.ShapeDtypeStruct((B, T + 1), jnp.int32)


def measure(one):
    loss = loss_fn(settings, partial(scan_layers, remat=one.remat), one.split)
    shared = partial(pad_shards, n=n) if one.stage else lambda params: params
    state = jax.eval_shape(lambda p: setup.OPTIMIZER.init(shared(p)), params)
    lie = layouts.layout(one, settings, params, setup.OPTIMIZER)
    run = step.make_step(loss, setup.OPTIMIZER, lie, make_mesh(one.sizes))
    report = inspect(run, params, state, tokens)
    return report.memory.arguments_bytes, report.wire_bytes_by_axis()


both = [plan.Plan("dp=8", zero=1), plan.Plan("dp=2,tp=4")]
measured = {one.mesh: measure(one) for one in both}

# %% [markdown]
# ## Compare
#
# Exactly: the arguments of a step are parameters, Adam's states and its count of steps, and the
# tokens; and what is sent over each axis, but for one number: the loss.

# %%
rows = []
for one in both:
    size = B // one.batch_parts
    layout = Layout(microbatch=size, zero=one.stage, **one.sizes)
    job = {"sequence": T, "batch": B, "each": ADAM_FP32}
    terms = {t.name: t.value for t in memory.training_memory(little, layout, **job)}
    arguments = terms["parameters"] + terms["optimizer"] + 4 + 4 * size * (T + 1)
    sent = {("dp",): wire_bytes("all_reduce", 4, layout.dp)}
    for m in traffic.step_traffic(little, layout, element_bytes=4, **job):
        sent[m.axes] = sent.get(m.axes, 0) + m.sent_bytes(layout)
    assert measured[one.mesh] == (arguments, sent)
    rows.append((one.mesh, *map(int, (arguments, sum(sent.values())))))
headers = ("mesh", "arguments", "sent in a step")
table("Bytes on a device, as predicted and measured", headers, rows)

# %% [markdown]
# Time is what a CPU cannot show. The library's is held against published runs:

# %%
errors = [abs(run.error()) for run in published_runs()]
print(f"{len(errors)} runs, in `docs/predictions.md`: half are off by less than")
print(f"{median(errors):.0%}, the worst by {max(errors):.0%}.\n")
assert median(errors) < 0.08 and max(errors) < 0.25

# %% [markdown]
# So plans that are nearer to each other than that are equal: try both.
#
# ## On real hardware
#
# **Many nodes of A100**, as in a data centre; **four home machines**, each with one RTX 4090.

# %%
asked = {
    "128 A100": ("llama3-70b", "a100", 128, 512, 4096),
    "4 RTX 4090": ("gpt2-xl", "rtx4090", 4, 64, 1024),
}
best = {}
for where, of in asked.items():
    found, best[where] = explore(*of)
    rows = []
    for name, one in best[where].items():
        numbers = one.plan.step_seconds, one.plan.memory_bytes / 1e9
        numbers = (round(number, 1) for number in numbers)
        rows.append((name, one.plan.layout.mesh, *numbers, one.fits))
    headers = ("strategy", "its best mesh", "seconds", "GB", "fits")
    table(f"{of[0]} on {where}", headers, rows)
a100s, homes = (
    {name: one.plan.step_seconds for name, one in known.items() if one.fits}
    for known in best.values()
)
assert {"data parallel", "ZeRO-1 or 2"}.isdisjoint(a100s)
assert a100s["3D"] < a100s["ZeRO-3, FSDP"]
assert homes["ZeRO-3, FSDP"] > 2 * homes["pipeline"]

# %% [markdown]
# - In the data centre, 3D: what sends activations of each layer stays in a node, a pipeline goes
#   over nodes. Data parallelism does not fit. ZeRO-3 does, if it computes layers again; it is near
#   enough to be the simpler choice.
# - At home, a pipeline: activations are small, and parameters are not. ZeRO-3 fits, and waits for
#   Ethernet. It is for fast links. There is no 3D: each machine has one card.
#
# **Llama 3 405B** was trained on 16,384 H100 with the mesh pp=16, dp=128, tp=8, at 400 TFLOP/s each
# (table 4 of the paper). The planner, asked what it thinks of that, and for its own:

# %%
found, _ = explore("llama3-405b", "h100", 16384, 2048, S)
own, how = found.plans[0], {"zero": 1, "remat": "selective"}
how |= {"sequence_parallel": True, "chunks": 8}  # a layer in each chunk
theirs = Layout(pp=16, dp=128, tp=8, **how)
theirs = Plan(own.job, theirs, own.failures, overlap=True)
rows = []
for name, one in {"theirs": theirs, "ours": own}.items():
    numbers = one.step_seconds, one.memory_bytes / 1e9, one.mfu * peak / 1e12
    rows.append((name, one.layout.mesh, *(round(x, 1) for x in numbers)))
headers = ("whose", "mesh", "seconds", "GB", "TFLOP/s")
table("Llama 3 405B on 16,384 H100, predicted", headers, rows)
assert abs(rows[0][-1] / 400 - 1) < 0.15  # as published
assert abs(own.step_seconds / theirs.step_seconds - 1) < 0.2

# %% [markdown]
# Both are as fast, as far as a formula can tell. By our formulas theirs needs more than the 80 GB
# that there are: the paper frees tensors early, which these do not know.
#
# **Failures.** One device that fails stops all, and work is lost, back to the last checkpoint.
# *Goodput* is the share of time that is not lost. Who saves more often loses less to failures, and
# more to saving: there is a best interval. By Daly's formula, with Llama 3's rate of failures:

# %%
show(goodput.Failures.goodput_at)
rows = []
for devices in (1024, 16384, 131072):
    mtbf = goodput.DEVICE_MTBF_HOURS * 3600 / devices
    run = goodput.Failures(mtbf, own.failures.checkpoint_seconds)
    often = run.interval_seconds
    shares = [run.goodput_at(often * times) for times in (1, 0.2, 5)]
    assert shares[0] == max(shares)
    shares = (round(100 * share, 1) for share in shares)
    rows.append((devices, round(mtbf / 3600, 1), round(often), *shares))
headers = ("devices", "hours between failures", "seconds between savings")
headers += ("goodput %", "saved 5 times as often", "a fifth as often")
table("What failures cost 405B parameters", headers, rows)
assert 3 < rows[1][1] < 3.2 and 90 < rows[1][3] < 95

# %% [markdown]
# Llama 3's run stopped every three hours, and its effective time was above 90%.
#
# - `jaxpar plan --model llama3-8b --hardware rtx4090 --devices 2` plans; `--explain` shows every
#   term, `--compare MESH` two plans, `--hardware my.toml` takes a cluster of your own.
# - The best plan on paper is where tuning begins. Measure its neighbours.
#
# ## Exercises

# %%
exercises("19")

# %% [markdown]
# ## Sources
#
# Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on GPU Clusters Using
# Megatron-LM*. Rajbhandari et al. 2020, *ZeRO*. Grattafiori et al. 2024, *The Llama 3 Herd of
# Models*, sections 3.3.1 to 3.3.4. Young 1974; Daly 2006, *A Higher Order Estimate of the Optimum
# Checkpoint Interval*. Austin et al. 2025, *How to Scale Your Model*. Tazi et al. 2025, *The
# Ultra-Scale Playbook*. What each framework calls what:
#
# | here | Megatron-LM | MaxText: `ici_` or `dcn_` and | Colossal-AI |
# |---|---|---|---|
# | `dp` | the rest | `data_parallelism` | the rest |
# | `fsdp`, ZeRO | `--use-distributed-optimizer` (1) | `fsdp_parallelism` (3) | `zero_stage` |
# | `ep` | `--expert-model-parallel-size` | `expert_parallelism` | `ep_size` |
# | `cp` | `--context-parallel-size` | `context_parallelism` | `sp_size` |
# | `tp` | `--tensor-model-parallel-size` | `tensor_parallelism` | `tp_size` |
# | `pp` | `--pipeline-model-parallel-size` | `pipeline_parallelism` | `pp_size` |
# | chunks | virtual pipeline stages | `num_pipeline_repeats` | `num_model_chunks` |
# | microbatch | `--micro-batch-size` | `num_pipeline_microbatches` | `microbatch_size` |
#
# | here | DeepSpeed | PyTorch | Accelerate: `ParallelismConfig` |
# |---|---|---|---|
# | `fsdp` | `"stage": 3` | FSDP: `fully_shard` | `dp_shard_size` |
# | `dp` beside it | `mics_shard_size` | a 2D mesh: hybrid sharding | `dp_replicate_size` |
# | `cp` | Ulysses | `context_parallel` | `cp_size` |
# | `tp` | `autotp_size` | `parallelize_module` | `tp_size` |
# | `pp` | `PipelineModule` | `torch.distributed.pipelining` | - |
#
# Horovod's `DistributedOptimizer` is `dp`. Torch-XLA gives arrays a sharding (`mark_sharding`), as
# lesson 01 does; its FSDPv2 is a mesh with an axis `fsdp`.
