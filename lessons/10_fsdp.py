# %% [markdown]
# # Lesson 10: FSDP
#
# With ZeRO-3 (lesson 09) a device holds 1/n of every parameter, but the simple form gathers all of
# them for a step. *Fully sharded data parallelism* (FSDP) gathers one layer, uses it, and drops it;
# the backward pass gathers it again. So no device ever holds the whole model.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

import tempfile
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import P, lax
from jax.sharding import NamedSharding

from jaxpar.collectives.shards import shard_specs
from jaxpar.cost import network, roofline
from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.zero import step_wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import fsdp, zero
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, OffloadedState
from jaxpar.parallel.remat import scan_layers
from jaxpar.train.step import DATA_PARALLEL, Technique, make_step, update_all
from jaxpar.train.text import batches, read_library

n, mesh = 8, make_mesh("fsdp=8")
split, replicated = P("fsdp"), P()
specs_of = partial(fsdp.fsdp_specs, axis="fsdp", n=n)


def sharded(specs, mesh=mesh):  # the shardings of partition specs
    return jax.tree.map(partial(NamedSharding, mesh), specs)


def on_devices(gradients, specs, batch=split, mesh=mesh):
    takes, gives = (specs, batch), (replicated, specs)
    return jax.jit(jax.shard_map(gradients, mesh=mesh, in_specs=takes, out_specs=gives))


# %% [markdown]
# ## The idea in one picture
#
# What device 0 holds of four layers (rows), which are sharded over four devices. The letter names
# the device whose shard it is.


# %%
def moments(title, layers):
    names, own = [f"layer {layer}" for layer in layers], [0, *[NOBODY] * 3]
    owners = [np.where(np.arange(4)[:, None] == layer, range(4), own) for layer in layers]
    return panel(title, [np.where(o < 0, ".", "w") for o in owners], owners, names=names)


ways = moments("Forward", (0, 1, 2, 3)), moments("Backward", (3, 2, 1, 0))
draw("10_gather", Panels("Gather a layer, use it, drop it", ways))

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. P is the number of bytes of all parameters, in fp32.
#
# 1. How many bytes does a device hold between two steps, with AdamW?
# 2. How many bytes does it send in a step, in multiples of P?
# 3. By how many bytes do intermediate results grow with one more layer, which has W bytes of
#    weights and an input of X bytes?
# 4. An H100 computes 989 TFLOP/s at its peak, and gathers at 450 GB/s inside a node. A layer has
#    its parameters in bf16. How many tokens must a device have so that computing the layer forward
#    takes as long as gathering it? How many, if eight network cards of 50 GB/s join each node of
#    eight to many others?

# %%
settings = Settings(layers=3, d_model=64, heads=4, mlp="gelu")
like = jax.eval_shape(partial(init, settings), jax.random.key(0))  # shapes
size = 4 * settings.parameters  # P
in_layers = sum(4 * leaf.size for leaf in jax.tree.leaves(like["layers"]))
rest = step_wire_bytes(size - in_layers, n, stage=2)  # gathered once
predicted = {"data parallel": (3 * size, step_wire_bytes(size, n, stage=0))}  # with two moments
predicted["FSDP"] = 3 * size // n, rest + step_wire_bytes(in_layers, n, stage=3)
shown = [(name, *two, round(two[1] / size, 2)) for name, two in predicted.items()]
table("Predicted", ("", "bytes held", "bytes sent", "sent / P"), shown)

# %% [markdown]
# Embedding and head belong to no layer: they are gathered once, and kept. Answer 3: X. A layer's
# own weights are held only while it is computed. Answer 4 is at the end.
#
# ## Implement
#
# **Layouts.** Each leaf is split along the first dim whose size n divides, but stacked leaves are
# never split along dim l.
#
# **Loss.** Parameters that belong to no layer are gathered before they are used. The layers are
# passed to the model as shards, and its loop over layers gathers each. That part is yours to write:
# `fsdp_apply`.

# %%
show(fsdp.fsdp_specs, fsdp.fsdp_loss)

# %% [markdown]
# The transpose of an all-gather is a reduce-scatter: the gradients have the sharding of the
# parameters and are summed over the devices, and the mean divides them. An elementwise optimizer
# need not know about any of this.
#
# ## Measure
#
# **Bytes and losses.** A decoder learns the text of lesson 05 with AdamW, with data parallelism and
# with FSDP.

# %%
full = partial(scan_layers, remat="full")  # lesson 08: keeps each layer's input
optimizer = optax.adamw(3e-3)
params = jax.device_get(init(settings, jax.random.key(0)))
stream = batches(read_library(), sharded(split), batch=32, sequence=32, seed=0)
tokens = np.stack([next(stream) for _ in range(20)])


def sharded_loss(loss_of, like, apply_layers=full):  # a function of shards
    gathered = fsdp.gather_layers(apply_layers, like, axis="fsdp")
    return fsdp.fsdp_loss(loss_of(gathered), like, axis="fsdp")


decoder, specs = sharded_loss(partial(loss_fn, settings), like), specs_of(like)
found, state = jax.value_and_grad(decoder), optax.ScaleByAdamState(replicated, specs, specs)
state = (state, optax.EmptyState(), optax.EmptyState())  # moments are sharded like parameters
by_layers = Technique(lambda _, *given: found(*given), split, specs, state)
measured, losses = {}, {}
for name, over, technique in (
    ("data parallel", "dp=8", DATA_PARALLEL),
    ("FSDP", "fsdp=8", by_layers),
):
    step = make_step(loss_fn(settings, full), optimizer, technique, make_mesh(over))
    shardings = sharded((technique.params, technique.state), make_mesh(over))
    now = jax.device_put((params, optimizer.init(params)), shardings)
    lowered = step.lower(*now, tokens[0])
    ready = compiled.compile_program(lowered)
    report = program.inspect_compiled(lowered, ready)
    measured[name] = report.memory.arguments_bytes, *report.wire_bytes_by_axis().values()
    losses[name] = []
    for batch in jax.device_put(list(tokens), sharded(technique.batch, make_mesh(over))):
        *now, loss = ready.executable(*now, batch)
        losses[name].append(float(loss))
table("Measured", ("", "bytes held", "bytes sent"), [(k, *two) for k, two in measured.items()])

# %% [markdown]
# **Memory.** What does one more layer cost? "All at once" is the simple form of lesson 09. "Kept"
# gathers one layer at a time, but keeps what the backward pass needs, which includes the gathered
# weights.

# %%
d, f, rows = 64, 256, 4  # rows: examples on a device
W, X = 4 * 2 * d * f, 4 * rows * d
array = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
x = array((n * rows, d))


def stack(layers):
    return {"layers": {"up": array((layers, d, f)), "down": array((layers, f, d))}}


def error(apply_layers, params, x, bind=lambda x: x):
    def layer_fn(layer, x):
        hidden = bind(jnp.tanh(x @ layer["up"] / d))
        return bind(x + hidden @ layer["down"] / f)

    return jnp.mean((apply_layers(layer_fn, params["layers"], x) - 1) ** 2)


def one_at_a_time(like, apply_layers=full):
    loss = sharded_loss(partial(partial, error), like, apply_layers)
    return on_devices(jax.value_and_grad(loss), specs_of(like))


simple = partial(zero.zero3_gradients, partial(error, full), axis="fsdp")
specs_for = partial(shard_specs, axis="fsdp", n=n)
programs = {
    "all at once": lambda like: on_devices(partial(simple, like=like), specs_for(like)),
    "one at a time, kept": lambda like: one_at_a_time(like, partial(scan_layers, remat="none")),
    "FSDP": one_at_a_time,
}
more = {}
for name, make in programs.items():
    temp = [inspect(make(stack(k)), stack(k), x).memory.temp_bytes for k in (3, 6)]
    more[name] = (temp[1] - temp[0]) // 3
shown = [(name, held, round(held / W, 2)) for name, held in more.items()]
table(f"One layer more, of W = {W:,} and X = {X:,}", ("", "bytes more", "/ W"), shown)

# %% [markdown]
# ## Compare
#
# The bytes are as predicted, except for the batch, a count of steps, and the loss. The losses are
# equal except for rounding. One more layer costs FSDP the layer's input, to the byte.

# %%
beside = tokens[0].nbytes // n + 4, wire_bytes("all_reduce", 4, n)
assert measured == {name: tuple(np.add(two, beside)) for name, two in predicted.items()}
np.testing.assert_allclose(losses["FSDP"], losses["data parallel"], rtol=1e-3)
assert more["FSDP"] == X and min(more["all at once"], more["one at a time, kept"]) > W

# %% [markdown]
# **Hybrid sharding** shards the parameters over the fast links of a node, axis fsdp, and replicates
# them over the nodes, axis dp. The function of lesson 05 does the rest: between nodes there is an
# all-reduce of 1/4 of the gradients. A device holds twice as much.

# %%
hybrid = make_mesh("dp=2,fsdp=4")
gradients = partial(data_parallel_gradients, decoder, axis="dp")
run = on_devices(gradients, specs_of(like, n=4), P(("dp", "fsdp")), hybrid)
sent = inspect(run, like, tokens[0]).wire_bytes_by_axis()
shown = [("8 in a node", measured["FSDP"][1], 0), ("2 nodes of 4", sent["fsdp",], sent["dp",])]
table("Bytes sent", ("", "over fsdp", "over dp"), shown)
assert sent["dp",] == wire_bytes("all_reduce", size // 4 + 4, 2)

# %% [markdown]
# **The compiler's FSDP.** `jax.jit` makes FSDP out of a program for one device, if shardings say
# that the parameters are sharded and the batch is split; `fsdp_shardings` finds them. "Bound" says
# also of the activations that they are split like the batch (`with_sharding_constraint`).

# %%
small = stack(3)
small_shardings = sharded(fsdp.fsdp_shardings(small, mesh=mesh, axis="fsdp", minimum_size=1))
shardings = {
    "in_shardings": (small_shardings, sharded(split)),
    "out_shardings": (sharded(replicated), small_shardings),
}
bind = partial(lax.with_sharding_constraint, shardings=sharded(split))
for_one = (jax.value_and_grad(partial(error, full, **how)) for how in ({}, {"bind": bind}))
runs = one_at_a_time(small), *(jax.jit(run, **shardings) for run in for_one)
reports = [inspect(run, small, x) for run in runs]
names = ("ours", "compiler, arguments only", "compiler, bound")
kinds = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
sent = [
    [sum(one.total_wire_bytes for one in report.collectives if one.kind == kind) for kind in kinds]
    for report in reports
]
shown = [(name, *each) for name, each in zip(names, sent, strict=True)]
table("Bytes sent", ("", *kinds), shown)
(gathered, scattered, scalars, _), _, theirs = sent
assert theirs == [gathered, 0, 2 * scattered + scalars, 0]
assert 0 < reports[2].memory.temp_bytes - reports[0].memory.temp_bytes < W

# %% [markdown]
# "Bound" gathers what we gather, also again in the backward pass. But a CPU's compiler makes no
# reduce-scatter: it all-reduces the gradients and slices the result, which takes twice the bytes,
# and holds full gradients. GPUs and TPUs make one operation out of the two. If only the arguments
# have shardings, the compiler moves some activations in place of weights, because with 4 examples
# on a device they are smaller. The result is right, but it is not FSDP.
#
# **Offload.** Even 1/n of the state may be too much. With *offload* it is kept in host memory or on
# disk between steps. Ours comes to the device leaf by leaf; DeepSpeed and PyTorch update on the
# host's CPU.

# %%
start = jax.tree.map(lambda leaf, at: jnp.full(leaf.shape, 0.5, device=at), small, small_shardings)
data, grads = jnp.ones(x.shape, device=sharded(split)), one_at_a_time(small)
update = jax.jit(lambda gradients, state, now: update_all(optimizer, gradients, now, state))


def first_state(part):  # moments are sharded like their parameters
    shapes = jax.eval_shape(optimizer.init, part)
    rows = jax.tree.map(lambda leaf: P(None, "fsdp") if leaf.ndim else replicated, shapes)
    return jax.jit(optimizer.init, out_shardings=sharded(rows))(part)


now, state = start, first_state(start)
for _ in range(3):
    now, state = update(grads(now, data)[1], state, now)
with tempfile.TemporaryDirectory() as folder:
    for store in (HostStore(), DiskStore(Path(folder))):
        there, away = start, OffloadedState(store, first_state, start)
        for _ in range(3):
            there, moved = away.update(update, grads(there, data)[1], there)
        jax.tree.map(np.testing.assert_array_equal, there, now)
        print(f"{type(store).__name__}: {moved}\n")
assert moved.to_device_bytes == moved.to_store_bytes == 2 * 3 * W // n + 2 * 4  # and two counts

# %% [markdown]
# The parameters are the same, to the bit. A device held the state of one leaf at a time. For each
# of its parameters, 16 bytes cross the link in a step; that takes time, which a CPU cannot show.
#
# ## On real hardware
#
# The next layer is gathered while this one computes (*prefetch*), if the links keep up. The number
# that engineers keep in mind is **tokens per device**. Forward, a layer of p parameters takes 2p
# FLOPs for each token, and its gather moves 2p bytes of bf16, so p cancels: the two take as long if
# a device has FLOP/s / bandwidth tokens. Backward, FSDP gathers and reduce-scatters, and plain data
# parallelism all-reduces: twice the bytes, beside twice the FLOPs. So the number is the same for
# both passes and for both techniques. Answer 4, as *How to Scale Your Model* prints it: 990e12 /
# 450e9 = 2,200 tokens in a node, and 990e12 / 400e9 = 2,475 beyond. These leave out a factor of
# (n-1)/n, for n devices in the node or n nodes. Our function has it:

# %%
show(roofline.tokens_to_hide)
h100, home = find_cluster("h100"), find_cluster("rtx4090")
meshes = {
    "one node": (h100, Layout(fsdp=8)),
    "8 nodes": (h100, Layout(fsdp=64)),
    "128 nodes": (h100, Layout(fsdp=1024)),
    "128 nodes, tensor parallelism inside": (h100, Layout(fsdp=128, tp=8)),
    "4 home machines, 10 Gb Ethernet": (home, Layout(fsdp=4)),
}
shown = []
for name, (cluster, layout) in meshes.items():
    peak = cluster.device.peak_flops["bf16"]
    least = float(roofline.tokens_to_hide(layout, "fsdp", cluster, peak))
    shown.append((name, layout.mesh, round(least)))
table("Tokens per device that hide FSDP", ("", "mesh", "tokens"), shown)
assert [row[-1] for row in shown] == [1923, 2163, 2453, 2453, 99120]

# %% [markdown]
# Between nodes it takes hardly more tokens than in one, because all network cards of a node work at
# once. Where tensor parallelism fills the nodes, a group has one device on each and so one card of
# 50 GB/s, but each device also has only 1/8 of the layer to gather. At home it takes 99,120 tokens
# per device. FSDP gathers for every microbatch, so each microbatch needs as many. Two things change
# the number in practice. Links do not reach their bandwidth, so it takes more tokens; products do
# not reach the peak, so it takes fewer: Llama 3 was trained at 400 TFLOP/s (table 4 of its paper).
# A layer of Llama 3 8B (218 M parameters), as a picture:

# %%
peak, layer_bytes = h100.device.peak_flops["bf16"], 2 * 218e6
gathers = {}
for name, nodes in (("gather in a node", 1), ("gather over 8 nodes", 8)):
    k = 8 * nodes
    layer = "all_gather", layer_bytes / k, Layout(fsdp=k), "fsdp", h100
    gathers[name] = 1e3 * float(network.collective_seconds(*layer))
counts = range(0, 6001, 500)
curves = {name: [time] * len(counts) for name, time in gathers.items()}
for name, speed in {"compute at the peak": peak, "compute at 400 TFLOP/s": 400e12}.items():
    curves[name] = [1e3 * layer_bytes * count / speed for count in counts]
axes = "tokens on a device", "ms for a layer, forward"
draw("10_hidden", Curves("When computing hides the gather (H100)", *axes, counts, curves))
shown = [(name, round(time, 2)) for name, time in gathers.items()]
shown.append(("compute 4096 tokens, 400 TFLOP/s", round(1e3 * layer_bytes * 4096 / 400e12, 2)))
table("One layer, forward", ("", "ms"), shown)
assert [row[1] for row in shown] == [0.86, 1.0, 4.46]

# %% [markdown]
# With 4096 tokens the gather hides, in a node and over 8 nodes. Hybrid sharding helps where there
# are too few tokens, few network cards, or so many devices that latency counts.
#
# Try `jaxpar train --mesh fsdp=8 --remat full --offload host`, or `--mesh dp=2,fsdp=4`.
#
# ## Exercises

# %%
exercises("10")

# %% [markdown]
# ## Sources
#
# Rajbhandari et al. 2020, *ZeRO*. Zhao et al. 2023, *PyTorch FSDP*. Xu et al. 2021, *GSPMD*. Ren et
# al. 2021, *ZeRO-Offload*. Rajbhandari et al. 2021, *ZeRO-Infinity*. Austin et al. 2025, *How to
# Scale Your Model*, "GPUs" (tokens per device).
#
# | here | PyTorch | others |
# |---|---|---|
# | FSDP | `fully_shard` | DeepSpeed: `stage: 3`; Megatron-FSDP |
# | gather again | `reshard_after_forward=True` | DeepSpeed: `stage3_max_live_parameters` |
# | hybrid | `fully_shard` on a 2D mesh, `HYBRID_SHARD` | DeepSpeed: MiCS, hpZ; MaxText: dp, fsdp |
# | offload | `CPUOffloadPolicy` | DeepSpeed: `offload_optimizer`, to `cpu` or `nvme` |
