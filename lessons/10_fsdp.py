# %% [markdown]
# # Lesson 10: FSDP
#
# Between two steps, ZeRO-3 leaves each of n devices only 1/n of the parameters, of the gradients
# and of the optimizer state (lesson 09). But a device cannot multiply by 1/n of a matrix. The
# simple form of lesson 09 gathers all parameters at the start of a step and keeps them to its end,
# so that for most of the time each device holds the whole model after all.
#
# *Fully sharded data parallelism* (FSDP) gathers one layer, computes it, drops it, and goes on to
# the next. The backward pass does the same in the other direction. So no device holds more than a
# layer or two at a time, and the price is that layers are gathered twice. We write this in a dozen
# lines, count what it sends and holds, and ask when the time for gathering can be hidden.

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

from jaxpar.collectives.leaves import leaf_layouts, specs_of
from jaxpar.cost import network, roofline
from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.zero import step_wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import fsdp
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, OffloadedState
from jaxpar.parallel.remat import scan_layers
from jaxpar.parallel.zero import state_specs
from jaxpar.schedules import overlap
from jaxpar.train.step import shardings
from jaxpar.train.text import batches, read_library

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("fsdp=8")

# %% [markdown]
# ## The idea in one picture
#
# A model of four layers is sharded over four devices, a to d. This is what device a holds while it
# computes each layer. A row is a layer, the letter behind its weights names the device whose shard
# it is, and a dot means that device a does not hold this shard.


# %% tags=["fold"]
def moments(title, layers):
    names, own = [f"layer {layer}" for layer in layers], [0, *[NOBODY] * 3]
    owners = [np.where(np.arange(4)[:, None] == layer, range(4), own) for layer in layers]
    weights = np.array([[f"w{layer}"] * 4 for layer in range(4)])
    return panel(title, [np.where(o < 0, ".", weights) for o in owners], owners, names=names)


ways = moments("Forward", (0, 1, 2, 3)), moments("Backward", (3, 2, 1, 0))
draw("10_gather", Panels("What device a holds: gather a layer, use it, drop it", ways))

# %% [markdown]
# The other devices do the same at the same time, with their own examples. This is still data
# parallelism, and only the place of the parameters has changed.
#
# ## Predict
#
# We will train a small decoder with AdamW on 8 devices, in float32. FSDP gathers its layers twice.
# Embedding and head belong to no layer: they are gathered once, and kept until the backward pass is
# done. As before, what a device *sends* are the bytes that it puts on its links, if each collective
# uses a ring.

# %%
settings = Settings(layers=3, d_model=64, heads=4, mlp="gelu")
like = jax.eval_shape(partial(init, settings), jax.random.key(0))  # the shapes of the parameters
size = 4 * settings.parameters
in_layers = sum(4 * leaf.size for leaf in jax.tree.leaves(like["layers"]))
print(f"The decoder has {size:,} bytes of parameters; {in_layers:,} of them are in layers.\n")
held = ask("Bytes that a device holds between two steps: parameters, and two means of AdamW")
sent = ask("Bytes that a device sends in a step: all-gathers and reduce-scatters")

# %% [markdown]
# The next question is about memory during a step of FSDP with activation checkpointing (lesson 08).
# A full layer has W = 131,072 bytes of weights, and the input of a layer has X = 1,024 bytes on
# each device. Shards of parameters and gradients are arguments and results, so they do not count as
# intermediate results.

# %%
grows = ask("Bytes that one more layer adds to the intermediate results of a device")

# %% [markdown]
# And one about time. Let a layer have p parameters, in bfloat16. Its forward pass takes 2p FLOPs
# for each token (lesson 04), and an H100 computes 989e12 FLOPs in a second at its peak. In a node
# of 8 H100, each sends 450e9 bytes in a second. With a ring, each sends 7/8 of what is gathered.

# %%
tokens_needed = ask(
    "Tokens on a device for which computing a layer takes as long as gathering it", "count"
)

# %% [markdown]
# ## Implement
#
# ### One step by hand
#
# The model is a stack of equal layers, `x + tanh(x @ up) @ down`. As in lesson 08, the weights of
# all layers are stacked: `up` is [l, d, f] and `down` is [l, f, d]. Each device has 1/n of the rows
# of every layer, and its own examples: x is [b/n, d] on a device.

# %%
d, f, OWN, RATE = 64, 256, 4, 0.5  # OWN: examples on each device


def layer(x, shard):
    w = lax.all_gather(shard, "fsdp", tiled=True)  # all rows, joined
    return x + jnp.tanh(x @ w["up"]) @ w["down"], None


def loss_by_hand(shards, x, target):
    y, _ = lax.scan(jax.checkpoint(layer), x, shards)  # one layer after the other
    return lax.pmean(jnp.mean((y - target) ** 2), "fsdp")


def step_by_hand(shards, x, target):
    loss, gradients = jax.value_and_grad(loss_by_hand)(shards, x, target)
    return jax.tree.map(lambda w, g: w - RATE * g, shards, gradients), loss


split, own_rows = P("fsdp"), P(None, "fsdp")  # the batch by dim 0, weights by dim 1
takes, gives = (own_rows, split, split), (own_rows, P())
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=takes, out_specs=gives))

# %% [markdown]
# That is all of FSDP. Three of its lines do more than they say:
#
# - **`lax.scan` drops the layer.** The gathered `w` lives inside `layer`, so the next layer can use
#   its memory.
# - **`jax.checkpoint` gathers again.** It keeps only the arguments of `layer` for the backward
#   pass, which are x and the shard, and calls `layer` again there. Without it, the scan would keep
#   every gathered `w`, because the gradient needs it.
# - **Nobody calls a reduce-scatter.** It is the transpose of the all-gather (lesson 09): a shard
#   went to all devices, so its gradient is the sum of what all devices found, and belongs to the
#   device that has the shard. `pmean` has divided the loss by n, so this sum is the mean gradient.
#
# The optimizer sees shards only. Let us check a step against one device that has everything.


# %%
def stack(layers):
    up, down = jax.random.normal(jax.random.key(0), (2, layers, d, f))
    return {"up": up / 16, "down": down.swapaxes(1, 2) / 64}


def loss_alone(weights, x, target):
    for number in range(len(weights["up"])):
        x = x + jnp.tanh(x @ weights["up"][number]) @ weights["down"][number]
    return jnp.mean((x - target) ** 2)


weights = stack(3)
x, target = jax.random.normal(jax.random.key(1), (2, n * OWN, d))
after, loss = jax.device_get(by_hand(weights, x, target))
right, gradient = jax.value_and_grad(loss_alone)(weights, x, target)
print(f"FSDP finds a loss of {loss:.6f}, one device {right:.6f}.\n")

# %% tags=["fold"]
for name, w in weights.items():
    np.testing.assert_allclose(after[name], w - RATE * gradient[name], atol=1e-6)

# %% [markdown]
# ### The library's form
#
# A real model has parameters outside of its layers, and leaves whose first dim n does not divide.
# The library splits a leaf along the first dim whose size n divides, but never along dim l of
# stacked leaves. `fsdp_loss` gathers what is in no layer, and leaves the layers to the model's
# loop, in which `gathered_layer` gathers one of them.

# %%
show(fsdp.fsdp_loss, fsdp.gathered_layer)

# %% [markdown]
# Both gather each leaf by itself. But every gather has a latency (lesson 03), so a layer of many
# small leaves is better gathered at once. PyTorch's first FSDP therefore joins all parameters of a
# layer in one *flat parameter*, pads it, and gives each device 1/n of it, wherever one leaf ends
# and the next begins. Its successor, `fully_shard`, splits each parameter by itself again, and
# copies those of a layer into one buffer for the gather. The loop over layers with a flat parameter
# is `fsdp_apply`, and is for you to write.
#
# ## Measure
#
# ### What the step by hand sends

# %%
report = inspect(by_hand, weights, x, target)
lines = [
    (one.kind, one.operand_bytes, one.wire_bytes, one.times, one.total_wire_bytes)
    for one in report.collectives
]
columns = ("", "operand bytes", "sent each time", "times", "sent in all")
table("Collectives of a step with 3 layers, on each device", columns, lines)

# %% [markdown]
# `up` and `down` are gathered in each of 3 layers, once forward and once backward, and their
# gradients are reduce-scattered. The all-reduce of 4 bytes is that of the loss.
#
# ### The memory of one more layer
#
# We compare FSDP with two forms that look alike. One forgets `jax.checkpoint`, so that gathered
# weights are kept. The other is the simple form of lesson 09, which gathers everything at once.


# %%
def without_checkpoint(shards, x, target):
    y, _ = lax.scan(layer, x, shards)
    return lax.pmean(jnp.mean((y - target) ** 2), "fsdp")


def all_at_once(shards, x, target):
    def of_full(x, w):
        return x + jnp.tanh(x @ w["up"]) @ w["down"], None

    full = lax.all_gather(shards, "fsdp", axis=1, tiled=True)  # all layers
    y, _ = lax.scan(jax.checkpoint(of_full), x, full)
    return lax.pmean(jnp.mean((y - target) ** 2), "fsdp")


# %% [markdown]
# The inspector reads the intermediate results of each loss with its gradient, for 3 layers and for
# 6. A third of the difference is what one layer costs.


# %%
def gradients_of(loss_of):
    both = jax.value_and_grad(loss_of)
    return jax.jit(jax.shard_map(both, mesh=mesh, in_specs=takes, out_specs=(P(), own_rows)))


W, X = 4 * 2 * d * f, 4 * OWN * d
more = {}
for loss_of in (all_at_once, without_checkpoint, loss_by_hand):
    run = gradients_of(loss_of)
    temp = [inspect(run, stack(layers), x, target).memory.temp_bytes for layers in (3, 6)]
    more[loss_of.__name__] = (temp[1] - temp[0]) // 3

# %% tags=["fold"]
shown = [(name, held_more, round(held_more / W, 2)) for name, held_more in more.items()]
table("Intermediate results of one layer more", ("", "bytes", "/ W"), shown)

# %% [markdown]
# For each layer, both other forms take more than its weights, W. The simple form takes most,
# because it also keeps the full gradients of all layers until it reduce-scatters them. FSDP takes
# only the layer's input, X.
#
# The form without `jax.checkpoint` gathers each layer only once, so where there is memory it can be
# the better choice (in PyTorch, `reshard_after_forward=False`).
#
# ### A decoder on real text
#
# Now the library's form: a decoder learns the text of lesson 05. `gather_layers` puts the gather of
# one layer into the decoder's loop over layers, and `remat="full"` keeps only each layer's input.
# The loss is the mean over the devices, so the gradient of each shard is divided by n, too. For
# comparison, data parallelism trains the same decoder on the same mesh.

# %%
full = partial(scan_layers, remat="full")
layouts = leaf_layouts(like, sizes=mesh.shape, axes=("fsdp",), stage=3)
gathered = fsdp.gather_layers(full, layouts["layers"])
of_shards = fsdp.fsdp_loss(loss_fn(settings, gathered), layouts)
optimizer = optax.adamw(3e-3)


def decoder(shards, batch):
    return lax.pmean(of_shards(shards, batch), "fsdp")


def update(gradients, state, params):
    changes, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, changes), state


def fsdp_step(params, state, batch):
    loss, gradients = jax.value_and_grad(decoder)(params, batch)
    return *update(gradients, state, params), loss


def data_parallel_step(params, state, batch):
    found = data_parallel_gradients(loss_fn(settings, full), params, batch, axis="fsdp")
    loss, gradients = found
    return *update(gradients, state, params), loss


# %% [markdown]
# AdamW's state has two dicts like that of the parameters, its two means, and a count of steps. The
# means are split like the parameters, which is what `state_specs` says.


# %%
def on_mesh(step, layouts):
    where = specs_of(layouts, "at_rest"), state_specs(optimizer, layouts), split
    sharded = jax.shard_map(step, mesh=mesh, in_specs=where, out_specs=(*where[:2], P()))
    given = params, optimizer.init(params), tokens[0]
    return jax.jit(sharded), jax.device_put(given, shardings(mesh, where))


params = jax.device_get(init(settings, jax.random.key(0)))
endless = batches(read_library(), shardings(mesh, split), batch=32, sequence=32, seed=0)
tokens = [next(endless) for _ in range(20)]
replicated = leaf_layouts(like, sizes=mesh.shape, axes=("fsdp",), stage=0)

# %% [markdown]
# We read both programs with the inspector, and train 20 steps with each.

# %%
reports, losses = {}, {}
for step, its_layouts in ((data_parallel_step, replicated), (fsdp_step, layouts)):
    name = step.__name__
    run, (now, state, _) = on_mesh(step, its_layouts)
    lowered = run.lower(now, state, tokens[0])
    ready = compiled.compile_program(lowered)  # once, to read it and to run it
    reports[name] = program.inspect_compiled(lowered, ready)
    losses[name] = []
    for batch in tokens:
        now, state, loss = ready.executable(now, state, batch)
        losses[name].append(float(loss))

# %% tags=["fold"]
beside = tokens[0].nbytes // n + 4  # a device's shard of the batch, and AdamW's count of steps
measured = {}
for name, report in reports.items():
    (wires,) = report.wire_bytes_by_axis().values()
    measured[name] = report.memory.arguments_bytes - beside, wires - wire_bytes("all_reduce", 4, n)
shown = [(name, *measured[name], *np.round(losses[name], 3)[[0, -1]]) for name in measured]
columns = ("", "bytes held", "bytes sent", "first loss", "last loss")
table("A decoder, on each of 8 devices", columns, shown)

# %% [markdown]
# ## Compare

# %%
in_parts = {"parameters / 8": size / n, "two means / 8": 2 * size / n}
held.compare(measured["fsdp_step"][0], in_parts)
by_collective = sent_by(reports["fsdp_step"])
sent.compare(sum(by_collective.values()), by_collective)
grows.compare(more["loss_by_hand"], {"the input of the layer": X})
tokens_needed.compare(7 / 8 * 989e12 / 450e9)

# %% [markdown]
# FSDP holds 1/8 of what data parallelism holds, sends 1.4 times as much, and has the same losses
# except for rounding. In units of (n-1)/n times the bytes of the parameters, data parallelism sends
# 2: an all-reduce is a reduce-scatter and an all-gather. FSDP sends 3 for layers, two gathers and a
# reduce-scatter, and 2 for embedding and head.
#
# One more layer costs exactly X, because a layer's weights are held only while it is computed, and
# then the next one uses the same memory. The layer's p cancelled in the last question: T tokens
# take 2pT FLOPs at 989e12 in a second, as long as 7/8 of 2p bytes at 450e9 in a second, if T is
# 1,923.

# %% tags=["fold"]
assert measured["data_parallel_step"] == (3 * size, step_wire_bytes(size, n, stage=0))
rest = step_wire_bytes(size - in_layers, n, stage=2)
assert measured["fsdp_step"] == (3 * size // n, rest + step_wire_bytes(in_layers, n, stage=3))
assert round(measured["fsdp_step"][1] / measured["data_parallel_step"][1], 1) == 1.4
np.testing.assert_allclose(losses["fsdp_step"], losses["data_parallel_step"], rtol=1e-3)
assert more["loss_by_hand"] == X and min(more["all_at_once"], more["without_checkpoint"]) > W
by_kind = {}
for kind, *_, in_all in lines:
    by_kind[kind] = by_kind.get(kind, 0) + in_all
gather = wire_bytes("reduce_scatter", 3 * W, n)
assert by_kind == {"all_gather": 2 * gather, "reduce_scatter": gather, "all_reduce": 7}

# %% [markdown]
# ## Hybrid sharding
#
# The links inside a node are faster than those between nodes; how much faster depends on the
# machine (see "On real hardware"). *Hybrid sharding* keeps the gathers inside: the parameters are
# sharded over the devices of a node, axis `fsdp`, and replicated over the nodes, axis `dp`. Here
# are 2 nodes of 4 devices, a node in each row. Devices with the same letter hold the same shard.

# %% tags=["fold"]
names = [f"device {i}" for i in range(8)]
eight = [[[f"w{i}"]] for i in range(8)]
four = [[[f"w{2 * (i % 4)}", f"w{2 * (i % 4) + 1}"]] for i in range(8)]
both = [
    panel("Sharded over 8 devices", eight, range(8), names=names, columns=4),
    panel("Hybrid: sharded over 4", four, [i % 4 for i in range(8)], names=names, columns=4),
]
draw("10_hybrid", Panels("Who holds which eighth of the weights", both))

# %% [markdown]
# A device holds twice as much. A gather now stays inside a node, and so does the reduce-scatter of
# the gradients. What remains is to average each device's shard of the gradients with the device of
# the other node that has the same shard.

# %%
across = ask("Bytes that each device then sends to the other node in a step")

# %% [markdown]
# `data_parallel_gradients` of lesson 05 averages over `dp`, and its loss is the one from above:

# %%
hybrid = make_mesh("dp=2,fsdp=4")
specs4 = specs_of(leaf_layouts(like, sizes=hybrid.shape, axes=("fsdp",), stage=3), "at_rest")
mean = partial(data_parallel_gradients, decoder, axis="dp")
batch_spec = P(("dp", "fsdp"))
run = jax.shard_map(mean, mesh=hybrid, in_specs=(specs4, batch_spec), out_specs=(P(), specs4))
report = inspect(jax.jit(run), params, tokens[0])
over = report.wire_bytes_by_axis()
across.compare(over["dp",], {"all-reduce of 1/4 of the gradients": size / 4, "of the loss": 4})

# %% tags=["fold"]
shown = [
    ("8 in one group", sum(by_collective.values()), 0),
    ("hybrid", over["fsdp",], over["dp",]),
]
table("Bytes that a device sends in a step", ("", "over fsdp", "over dp"), shown)
assert over["dp",] == wire_bytes("all_reduce", size // 4 + 4, 2)

# %% [markdown]
# With several microbatches the difference grows. FSDP gathers and reduces for each of them, but the
# all-reduce between nodes can wait for the last. `hybrid_gradients` is for you to write.
#
# ## The compiler's FSDP
#
# `jax.jit` can make FSDP out of a program for one device, with no gather in it. We only say how its
# arguments and results are sharded: weights by rows, the batch by examples. The compiler inserts
# the collectives. `fsdp_shardings`, which is for you to write, finds the partition specs.

# %%
like_model = {"layers": weights}  # stacked: dim l is not split
specs_for = fsdp.fsdp_shardings(like_model, mesh=mesh, axis="fsdp", minimum_size=1)["layers"]
inside, outside = shardings(mesh, (specs_for, split, split)), shardings(mesh, (P(), specs_for))


def one_device(bind):
    def layer(x, w):
        hidden = bind(jnp.tanh(x @ w["up"]))
        return bind(x + hidden @ w["down"]), None

    def loss(weights, x, target):
        y, _ = lax.scan(jax.checkpoint(layer), x, weights)
        return jnp.mean((y - target) ** 2)

    return jax.jit(jax.value_and_grad(loss), in_shardings=inside, out_shardings=outside)


# %% [markdown]
# In the first program `bind` does nothing. In the second it is `with_sharding_constraint`, which
# says that the activations, too, are split by examples.

# %%
by_examples = partial(lax.with_sharding_constraint, shardings=shardings(mesh, split))
programs = {
    "by hand": gradients_of(loss_by_hand),
    "compiler, arguments only": one_device(lambda activations: activations),
    "compiler, activations too": one_device(by_examples),
}
found = {name: inspect(run, weights, x, target) for name, run in programs.items()}

# %% tags=["fold"]
kinds = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
shown = []
for name, report in found.items():
    collectives = [(one.kind, one.total_wire_bytes) for one in report.collectives]
    shown.append((name, *(sum(wire for kind, wire in collectives if kind == k) for k in kinds)))
table("Bytes that a device sends", ("", *kinds), shown)
(_, gather2, scattered, scalar, _), _, (_, *theirs) = shown
assert theirs == [gather2, 0, 2 * scattered + scalar, 0]
held_temp = {name: report.memory.temp_bytes for name, report in found.items()}
assert 0 < held_temp["compiler, activations too"] - held_temp["by hand"] < W
assert shown[1][4] > 0 and shown[1][1] < gather2

# %% [markdown]
# In the second program, the compiler gathers what we gather, and again in the backward pass. But
# XLA for CPUs makes no reduce-scatter. It all-reduces the gradients and slices the result, which
# sends twice as many bytes, and holds the full gradients of a layer. XLA for GPUs has a pass that
# makes one reduce-scatter out of the two (`ReduceScatterCreator`).
#
# In the first program, where only the arguments have shardings, the compiler decides by itself what
# to move. Here it moves some activations in place of weights, because 4 examples on a device are
# smaller than a matrix. The result is right, but it is no longer FSDP. So say how the activations
# are split.
#
# ## Offload
#
# Even 1/n of the optimizer's state may be too much. *Offload* keeps it in the memory of the host,
# or on disk, between two updates. An elementwise optimizer (lesson 09) needs the state of one leaf
# at a time. So the library fetches the state of a leaf, updates the leaf, writes the state back,
# and goes on to the next leaf.

# %%
start = jax.device_put(weights, shardings(mesh, specs_for))
data = jax.device_put((x, target), shardings(mesh, (split, split)))
gradients = gradients_of(loss_by_hand)
update = jax.jit(update)


def first_state(part):  # its means are sharded like the parameters
    shapes = jax.eval_shape(optimizer.init, part)
    where = jax.tree.map(lambda leaf: own_rows if leaf.ndim else P(), shapes)
    return jax.jit(optimizer.init, out_shardings=shardings(mesh, where))(part)


now, state = start, first_state(start)  # without offload
for _ in range(3):
    now, state = jax.block_until_ready(update(gradients(now, *data)[1], state, now))

# %% [markdown]
# The same three steps with the state on the host, and then on disk:

# %%
ends = [jax.device_get(now)]
with tempfile.TemporaryDirectory() as folder:
    for store in (HostStore(), DiskStore(Path(folder))):
        there, away = start, OffloadedState(store, first_state, start)
        for _ in range(3):
            found_there = jax.block_until_ready(gradients(there, *data)[1])
            there, moved = away.update(update, found_there, there)
        ends.append(jax.device_get(there))
        print(f"{type(store).__name__}: {moved}\n")

# %% tags=["fold"]
assert moved.to_device_bytes == moved.to_store_bytes == 2 * 3 * W // n + 2 * 4  # and two counts
assert moved.held_bytes == moved.to_device_bytes // 2  # one of two leaves
jax.tree.map(np.testing.assert_array_equal, ends[1], ends[2])
jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), ends[0], ends[1])

# %% [markdown]
# Each step moves 98,312 bytes to a device, its two means of 49,152 bytes and two counts, and as
# many back. A device holds half of that at a time. The parameters are the same as without offload,
# except for rounding.
#
# So 16 bytes cross the link to the host for each parameter: two means of 4 bytes, in both
# directions. ZeRO-Offload moves less. There the host's processors make the update, so only the
# gradient goes to the host, and the new parameter comes back, 2 bytes each (Ren et al. 2021,
# section 3).
#
# ## On real hardware
#
# ### Prefetch
#
# In the step by hand, each gather waits for the layer before it, and each layer for its gather.
# *Prefetch* gathers the next layer while this one is computed. It takes memory for a second layer.
#
# Our CPU cannot show what this saves, but the formulas of lesson 03 can. Here are three layers of
# Llama 3 8B, of 218 million parameters each, on 64 H100 in 8 nodes, in bfloat16. Products run at
# 400 TFLOP/s, the rate at which Llama 3 405B was trained on 16,384 H100 (table 4 of its paper). F0
# is the forward pass of layer 0 and B0 its backward pass, G0 gathers it, and R0 reduce-scatters its
# gradients. Recomputation is left out.


# %% tags=["fold"]
h100, layer_bytes, SPEED = find_cluster("h100"), 2 * 218e6, 400e12
of_64 = partial(network.collective_seconds, layout=Layout(fsdp=64), axis="fsdp", cluster=h100)
gather_seconds = float(of_64("all_gather", layer_bytes / 64))
scatter_seconds = float(of_64("reduce_scatter", layer_bytes))


def three_layers(tokens, prefetch):
    seconds = layer_bytes * tokens / SPEED  # 2 FLOPs for each parameter and token
    tasks, computed, scatter = [], [], []
    order = [("forward", 0), ("forward", 1), ("forward", 2)]
    order += [("backward", 2), ("backward", 1), ("backward", 0)]
    for place, (way, number) in enumerate(order):
        before = place - 2 if prefetch else place - 1  # the layer whose memory this one takes
        after = (computed[before],) if before >= 0 else ()
        gather = overlap.Task("all-gather", f"G{number}", "links", gather_seconds, after)
        name, times = (f"F{number}", 1) if way == "forward" else (f"B{number}", 2)
        computed.append(overlap.Task(way, name, "compute", times * seconds, (gather,)))
        tasks += [gather, *scatter, computed[-1]]
        if way == "backward":
            reduced = "reduce-scatter", f"R{number}", "links", scatter_seconds, (computed[-1],)
            scatter = [overlap.Task(*reduced)]
    return sorted(overlap.run(tasks + scatter), key=lambda span: span.task.lane)  # compute first


ways = {
    "2,048 tokens, no prefetch": three_layers(2048, prefetch=False),
    "2,048 tokens, prefetch": three_layers(2048, prefetch=True),
    "512 tokens, prefetch": three_layers(512, prefetch=True),
}
draw("10_prefetch", Lanes("Three layers of Llama 3 8B on 64 H100", "ms", ways))
waited = [round(1e3 * overlap.exposed_seconds(spans), 1) for spans in ways.values()]
total = [round(1e3 * overlap.step_seconds(spans), 1) for spans in ways.values()]
assert (waited, total) == ([7.0, 2.0, 4.2], [27.1, 22.1, 9.2])

# %% [markdown]
# Without prefetch, computing waits 7.0 of 27.1 ms. With it, computing waits only for the first
# gather and the last reduce-scatter: 2.0 ms for these three layers, and no more for 32. But with
# 512 tokens a layer takes less time than the next gather, and computing waits 4.2 of 9.2 ms.
#
# PyTorch's FSDP gathers ahead by itself. In JAX this is the compiler's work, and on GPUs it takes
# two flags. `--xla_gpu_enable_latency_hiding_scheduler=true` lets XLA start a gather earlier than
# the program says. But the layers are rounds of one loop, and the scheduler moves nothing from one
# round to another. `--xla_gpu_enable_pipelined_all_gather=true` does that: it puts the next layer's
# gather into this layer's round. By default both are off (OpenXLA documentation, *Effort levels*).
#
# ### Tokens per device
#
# How many tokens are enough? In the forward pass p cancels, as in the question above: a device
# needs FLOP/s / bandwidth tokens. In the backward pass FSDP gathers and reduce-scatters, and plain
# data parallelism all-reduces: twice the bytes, beside twice the FLOPs. So one number holds for
# both passes and for both techniques, and engineers keep it in mind as the *tokens per device*.
#
# *How to Scale Your Model* gives 990e12 / 450e9 = 2,200 tokens in a node of H100, and 990e12 /
# 400e9 = 2,475 beyond it, where eight network cards of 50 GB/s join a node to others. These leave
# out the factor (n-1)/n, for n devices in the node or n nodes. Our function has it:

# %%
show(roofline.tokens_to_hide)

# %% tags=["fold"]
home = find_cluster("rtx4090")
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
table("Tokens per device that hide FSDP, at the peak", ("", "mesh", "tokens"), shown)
assert [row[-1] for row in shown] == [1923, 2163, 2453, 2453, 99120]
assert round(989e12 * 7 / 8 / 450e9) == 1923

# %% [markdown]
# Over several nodes it takes hardly more tokens than inside one, because all network cards of a
# node work at once. Where tensor parallelism (lesson 11) fills the nodes, a group of FSDP has one
# device on each node, and so one card. But each device also has only 1/8 of the layer to gather, so
# the number is the same. (There, tokens per device are the tokens of the batch divided by all
# devices.)
#
# In practice links do not reach their bandwidth, so it takes more tokens, and products do not reach
# the peak, so it takes fewer:

# %% tags=["fold"]
peak = h100.device.peak_flops["bf16"]
gathers = {}
for name, nodes in (("gather in a node", 1), ("gather over 8 nodes", 8)):
    k = 8 * nodes
    one_layer = "all_gather", layer_bytes / k, Layout(fsdp=k), "fsdp", h100
    gathers[name] = 1e3 * float(network.collective_seconds(*one_layer))
counts = range(0, 6001, 500)
curves = {name: [time] * len(counts) for name, time in gathers.items()}
for name, speed in {"compute at the peak": peak, "compute at 400 TFLOP/s": SPEED}.items():
    curves[name] = [1e3 * layer_bytes * count / speed for count in counts]
axes = "tokens on a device", "ms for a layer, forward"
draw("10_hidden", Curves("When computing hides the gather (H100)", *axes, counts, curves))
shown = [(name, round(time, 2)) for name, time in gathers.items()]
shown.append(("compute 4096 tokens, 400 TFLOP/s", round(1e3 * layer_bytes * 4096 / SPEED, 2)))
table("One layer, forward", ("", "ms"), shown)
assert [row[1] for row in shown] == [0.86, 1.0, 4.46]
assert max(gathers.values()) < 1e3 * layer_bytes * 1000 / SPEED

# %% [markdown]
# At 400 TFLOP/s the lines cross below 1,000 tokens, in a node and over 8 nodes. FSDP gathers for
# every microbatch, so what counts are the tokens of one microbatch. Where they are too few, hybrid
# sharding helps: between nodes it sends once in a step, and not for every microbatch.
#
# Try `jaxpar train --mesh fsdp=8 --remat full --offload host`, or `--mesh dp=2,fsdp=4`.
#
# ## Exercises

# %%
exercises("10")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B has 70.6 billion parameters, 80 layers of 856 million, and d = 8192. Its embedding
#    and its head have 1.05 billion each. You train it with FSDP over 64 H100 of 80 GB, in mixed
#    precision (16 bytes for each parameter, lesson 07), with prefetch. Each GPU has a sequence of
#    8,192 tokens and keeps only the inputs of layers, in bfloat16. What does it hold, and does it
#    fit?
#
# <details><summary>Answer</summary>
#
# States: 70.6e9 * 16 / 64 = 17.6 GB. Two gathered layers in bfloat16: 2 * 1.71 = 3.4 GB. The full
# gradient of a layer, before it is reduce-scattered: 1.7 GB. Embedding and head, gathered once, and
# their full gradients: 4.2 GB each. Inputs of layers: 80 * 8192 * 8192 * 2 = 10.7 GB. Together 42
# GB. It fits, with 38 GB left for what is inside one layer, and for the logits.
#
# </details>
#
# 2. You train Llama 3 8B with FSDP alone, at 400 TFLOP/s and with 4 million tokens in a step, one
#    microbatch. On how many H100 do the gathers still hide? What else goes wrong on so many?
#
# <details><summary>Answer</summary>
#
# Over many nodes a device needs 400e12 / 400e9 = 1,000 tokens, so 4 million are enough for 4,000
# GPUs, 500 nodes. But a ring over 500 nodes also has 499 steps, and at 4 us each (our cost model,
# from NCCL's) their latency adds 2 ms to each gather, where a layer of 1,000 tokens is computed in
# 1.1 ms. Hybrid sharding gathers inside a node, in 7 steps. And sequences must be short: of 8,192
# tokens there are only 488, enough for 488 GPUs.
#
# </details>
#
# 3. A model of 1.3 billion parameters trains on 16 nodes of eight A100 each. All eight share one
#    network card of 25 GB/s. A step has 4 microbatches, and everything is sent in bfloat16. How
#    many bytes leave a node in a step with FSDP over all 128 devices, and with hybrid sharding
#    inside the nodes? How long does that take, and what does the second one cost?
#
# <details><summary>Answer</summary>
#
# The parameters have 2.6 GB. Each gather or reduce-scatter sends 15/16 of that out of a node, 2.44
# GB. FSDP does 3 for each of 4 microbatches: 29 GB, or 1.2 s. Hybrid sharding has one all-reduce of
# the gradients, if it adds up the shards of 4 microbatches first: 4.9 GB, or 0.2 s. It costs
# memory: 1.3e9 * 16 / 8 = 2.6 GB of states on each device in place of 0.16 GB, which is little.
#
# </details>
#
# ## Sources
#
# Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*,
# section 5.3. Zhao et al. 2023, *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*,
# sections 3 and 4.2 (flat parameters). Xu et al. 2021, *GSPMD: General and Scalable Parallelization
# for ML Computation Graphs*, section 3.2. Ren et al. 2021, *ZeRO-Offload: Democratizing
# Billion-Scale Model Training*, section 3. Rajbhandari et al. 2021, *ZeRO-Infinity: Breaking the
# GPU Memory Wall for Extreme Scale Deep Learning*, section 5. Austin et al. 2025, *How to Scale
# Your Model*, chapter "GPUs" (tokens per device). Grattafiori et al. 2024, *The Llama 3 Herd of
# Models*, table 4. openxla/xla: the page *Effort levels* of its documentation, and
# `gpu_compiler.cc`, which runs `ReduceScatterCreator`.
#
# | here | PyTorch | others |
# |---|---|---|
# | FSDP | `fully_shard` | DeepSpeed: `stage: 3`; Megatron-FSDP |
# | gather again | `reshard_after_forward=True` | DeepSpeed: `stage3_max_live_parameters` |
# | prefetch | `set_modules_to_forward_prefetch` | DeepSpeed: `stage3_prefetch_bucket_size` |
# | hybrid | `fully_shard` on a 2D mesh, `HYBRID_SHARD` | DeepSpeed: MiCS, hpZ; MaxText: dp, fsdp |
# | offload | `CPUOffloadPolicy` | DeepSpeed: `offload_optimizer`, to `cpu` or `nvme` |
