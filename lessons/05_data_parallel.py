# %% [markdown]
# # Lesson 05: data parallelism
#
# *Data parallelism*: each device holds the whole model, a *replica*, and computes the gradient of
# its own shard of the batch. The mean of these gradients is the gradient of the whole batch, and
# all devices make the same update with it. How does the mean get to every device? We train a small
# decoder in three ways that PyTorch users know: `DataParallel`, a parameter server,
# `DistributedDataParallel` (DDP).

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program, stablehlo
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import data, sampler, server
from jaxpar.train.loop import train
from jaxpar.train.step import DATA_PARALLEL, make_step
from jaxpar.train.text import batches, read_library

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("dp=8")
equal, rows, split = spec(""), spec("n_dp"), spec("b_dp t")
sharding = partial(jax.NamedSharding, mesh)  # of a partition spec


def on_devices(f, ins, outs):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs))


# %% [markdown]
# ## The idea in one picture
#
# Four devices before a step: w are the parameters, and x are examples. The letter behind an x says
# which device computes the gradient of its loss. Our x is the source code of Python's standard
# library, in examples of 32 bytes. The decoder, of one layer, predicts each byte from those before
# it.

# %%
star = [pair for j in (1, 2, 3) for pair in ((0, j), (j, 0))]
ring = [(j, (j + 1) % 4) for j in range(4)]
all_hold = [[["w", "x"]]] * 4, [[[NOBODY, j]] for j in range(4)]
one_holds = [[["w", *"xxxx"]], *"..."], [[[NOBODY, 0, 1, 2, 3]], *[NOBODY] * 3]
three = [
    panel("One master: w, x go out, gradients back", *one_holds, arrows=star),
    panel("A server: gradients come in, new w go out", *all_hold, arrows=star),
    panel("All-reduce: sums go round, all update w", *all_hold, arrows=ring),
]
draw("05_three_ways", Panels("One step, three ways", three))
text = read_library()
STEPS, BATCH, LENGTH, RATE = 30, 32, 32, 0.2  # LENGTH: bytes of an example
settings = Settings(layers=1, d_model=32, heads=2, mlp="gelu")
params = init(settings, jax.random.key(0))  # a dict of arrays
w_start, unravel = ravel_pytree(jax.device_get(params))  # all of them in one
endless = batches(text, sharding(split), batch=BATCH, sequence=LENGTH, seed=0)
tokens = np.stack([next(endless) for _ in range(STEPS)])  # [step, b, t+1]
P, B = w_start.nbytes, tokens[0].nbytes  # bytes of parameters, of a batch
print(f"{len(text):,} bytes: {bytes(text[:30])} ... {P = :,}, {B = :,}\n")


def loss(w, tokens):
    return loss_fn(settings)(unravel(w), tokens)


# %% [markdown]
# ## Predict
#
# Your turn, before you read on. Gradients take P bytes, like the parameters.
#
# 1. What is the master's traffic in one step (the bytes it sends plus those it receives, lesson
#    02)? What is the server's?
# 2. What is the traffic of each device of an all-reduce? With 8 devices, and with 64?
# 3. Which of the three ways has the lowest loss after 30 steps?


# %%
def predict(n):  # traffic of the busiest device, except for a few scalars
    return {
        "one master": (n - 1) * (2 * P + B // n),
        "server": (n - 1) * 2 * P,
        "all-reduce": 2 * wire_bytes("all_reduce", P, n),
    }


shown = [(way, *(predict(k)[way] for k in (2, 8, 64))) for way in predict(n)]
table("Predicted traffic, in bytes", ("busiest device", "of 2", "of 8", "of 64"), shown)

# %% [markdown]
# Answer 3: none. All three make the same update; the numbers only take different routes.
#
# ## Implement
#
# **One master.** `torch.nn.DataParallel` is one process with several GPUs. In each step it copies
# the model from the first GPU to all, splits the batch, and adds up the gradients on the first.
# Here all devices run one program, and a message from one device to another is a permute of one
# pair. w has a row for each device, but only the master's row and the master's batch are used.
# `psum` gives all devices the loss. **A server.** Workers have their own examples. They send
# gradients to the server, which has the optimizer's state, and receive new parameters.
# `parameter_server_step` is for you to write.

# %%
show(server.single_master_gradients)
sgd = partial(jax.tree.map, lambda w, gradient: w - RATE * gradient)


def with_master(row, batch):
    w, parts = row[0], batch.reshape(n, BATCH // n, LENGTH + 1)
    both = partial(server.single_master_gradients, loss, master=0, axis="dp")
    mean, gradient = both(w, parts)
    return sgd(w, gradient)[None], lax.psum(mean, "dp")


def with_server(w, batch):
    step = partial(server.parameter_server_step, loss, server=0, axis="dp")
    return step(w, batch, sgd)[None], lax.pmean(loss(w, batch), "dp")


# %% [markdown]
# **All-reduce.** JAX has a surprise for those who come from PyTorch. The parameters are the same on
# all devices, and typed so: *invariant* (lesson 02). The gradient with respect to something that
# all devices use is a sum over all of them, so JAX adds an all-reduce to the backward pass. Below,
# device j has x = j + 1, so the gradient of `mean(w * x)` over all devices is 4.5, the mean of x.


# %%
def toy(w, x):
    return (w * x).mean()


def surprise(w, x):
    grad, local = jax.grad(toy), lax.pcast(w, "dp", to="varying")
    g = grad(w, x)
    return g, lax.pmean(g, "dp"), lax.psum(g, "dp"), grad(local, x)[None]


x, outs = np.arange(1.0, 9), (equal, equal, equal, rows)
got = on_devices(surprise, (equal, rows), outs)(1.0, x)
what = ("grad(w)", "pmean(grad(w))", "psum(grad(w))", "grad(pcast(w))")
table("The gradient", ("you write", "you get"), zip(what, got, strict=True))
assert got[:3] == (n * 4.5, n * 4.5, n * n * 4.5) and all(got[3] == x)

# %% [markdown]
# `pmean` does not change what is equal on all devices, so the result is n times too large. `psum`
# makes it n * n times too large. After a `pcast`, each device has its own w. The gradient is then
# local, as in PyTorch, and the all-reduce is yours to write, in `data_parallel_gradients`.
# `make_step` makes a training step of any such function; a `Technique` holds it, and the partition
# specs of its arrays. **Prefetch.** `train` is the loop of `jaxpar train`. A step returns before
# the devices are done: meanwhile the next batch is prepared, and only `float(loss)` waits. (PyTorch
# has `DataLoader` workers for this.)
#
# ## Measure
#
# Each program is compiled once. The inspector reads it, and then it runs 30 steps of plain SGD.

# %%
show(make_step, train)
w_rows = jax.device_put(np.tile(w_start, (n, 1)), sharding(rows))
w, optimizer = jax.device_put(w_start, sharding(equal)), optax.sgd(RATE)
step = make_step(loss, optimizer, DATA_PARALLEL, mesh)
with_all = jax.jit(lambda w, x: step(w, optimizer.init(w), x)[::2])
in_rows = partial(on_devices, outs=(rows, equal))
ways = {
    "one master": (in_rows(with_master, (rows, equal)), w_rows, equal),
    "server": (in_rows(with_server, (equal, split)), w, split),
    "all-reduce": (with_all, w, split),
}
losses = {name: [] for name in ways}
through = {name: np.zeros(n) for name in ways}  # traffic: bytes sent plus received
for name, (jitted, w, layout) in ways.items():
    given = jax.device_put(list(tokens), sharding(layout))
    lowered = jitted.lower(w, given[0])
    ready = compiled.compile_program(lowered)
    report = program.inspect_compiled(lowered, ready)
    for one in (one for one in report.collectives if one.operand_bytes > 4):
        for devices in one.pairs or [range(n)] * 2:
            through[name][list(devices)] += one.wire_bytes
    for batch in given:
        w, mean = ready.executable(w, batch)
        losses[name].append(float(mean))
        if name == "server":  # all rows are the new parameters
            w = jax.device_put(np.asarray(w)[0], sharding(equal))
in_mb = {way: np.round(sent / 1e6, 2) for way, sent in through.items()}
panels = [panel(way, sent, [NOBODY] * n) for way, sent in in_mb.items()]
draw("05_bytes", Panels("Traffic of each device in one step, MB", panels))

# %% [markdown]
# ## Compare
#
# The bytes are as predicted, and the losses are equal except for rounding. Data parallelism saves
# no memory for parameters: each device holds all of them, and its shard of the batch.
# **Asynchronous.** A server can use each gradient as soon as it arrives, and need not wait for slow
# workers. But the gradient was computed at older parameters. The number of updates since then is
# its *staleness*: n - 1 for n equally fast workers. We simulate this on one device.

# %%
assert {name: sent.max() for name, sent in through.items()} == predict(n)
assert report.memory.arguments_bytes == P + B // n  # of the all-reduce
show(server.stale_server)
run = partial(server.stale_server, loss, w_start, tokens, sgd)
in_step, stale = jax.jit(lambda: [run(staleness=k)[1] for k in (0, n - 1)])()
np.testing.assert_allclose(list(losses.values()), [in_step] * 3, rtol=1e-3)
losses |= {"one device": in_step, "asynchronous": stale}
axes = "step", "loss, nats for each token"
draw("05_losses", Curves("The loss of each batch", *axes, range(len(in_step)), losses))
assert stale[-10:].mean() > in_step[-10:].mean()

# %% [markdown]
# Each loss is the one that a worker computed: the first n are those of the initial parameters.
# Stale gradients point on from old parameters, and the server overshoots. All other curves
# coincide, on one device or on eight.
#
# ## When gradients travel
#
# **Accumulation.** If activations do not fit, a device takes *microbatches*, one after the other,
# and adds up their gradients. The all-reduce belongs after the loop (DDP: `no_sync`). **Buckets.**
# Each all-reduce costs latency (lesson 03), so DDP sends several gradients together, as a *bucket*,
# and meanwhile computes the gradients of earlier layers (*overlap*, which a CPU cannot show). **The
# compiler's version.** `jax.jit` with shardings takes the step of one device, and splits it. It
# sends as many bytes as we do, but it sends each layer's gradients as soon as they are there, in 4
# all-reduces for 4 layers. Ours wait for the end.


# %%
def sent(function, takes, *args):  # the bytes of each all-reduce
    run = on_devices(partial(function, axis="dp"), takes, equal)
    found = stablehlo.read_module(run.lower(*args).compiler_ir("stablehlo"))
    sizes = [one.operand_bytes for one in found for _ in range(one.times)]
    return [size for size in sizes if size > 4]  # without the loss


four = (equal, spec("m b_dp")), np.zeros(1024), np.zeros((4, 8192))
each = partial(data.data_parallel_gradients, toy, axis="dp")
in_loop = sent(lambda w, xs, axis: lax.map(partial(each, w), xs), *four)
after = sent(partial(data.accumulate_gradients, toy), *four)
print(f"4 microbatches: {in_loop} bytes in the loop, {after} after it\n")
assert in_loop == 4 * after
wide = jax.tree.map(lambda leaf: np.concatenate([leaf] * n), params)
for size in (1, 50_000, 25 * 2**20):  # the last is DDP's
    reduce = partial(data.bucketed_all_reduce, bucket_bytes=size)
    buckets = sent(reduce, rows, wide)
    print(f"In buckets of at most {size:,} bytes: {buckets}")
    assert sum(buckets) == P
deep = Settings(layers=4, d_model=32, heads=2, mlp="gelu")
shapes = jax.eval_shape(partial(init, deep), jax.random.key(0))
both, takes = jax.value_and_grad(loss_fn(deep)), (sharding(equal), sharding(split))
automatic = jax.jit(both, in_shardings=takes, out_shardings=sharding(equal))
report = inspect(automatic, shapes, tokens[0])
times = [one.times for one in report.collectives]
print(f"\nTimes that each of the compiler's all-reduces runs: {times}\n")
assert report.wire_bytes_by_axis()["dp",] == 7 * (deep.parameters + 1)

# %% [markdown]
# ## Which examples
#
# A mean of means is the mean only if all shards are equally large. A *sampler* gives every device
# equally many examples, and repeats some if necessary. From the same seed and epoch, all devices
# compute the same order. A metric must count no example twice: *pad* the last batch, and let a mask
# say which examples are real.

# %%
deal = partial(sampler.shard_indices, 10, world_size=4, seed=0)
for epoch in (0, 1):
    print(f"Epoch {epoch}:", *(deal(rank=j, epoch=epoch) for j in range(4)))
values = np.arange(11, dtype=np.float32)  # a batch of 11 on 8 devices
padded, real = sampler.pad_batch(values, 2 * n)
masked = on_devices(partial(data.masked_mean, axis="dp"), rows, equal)
print(f"\nMean {masked(padded, real)}, with padding {padded.mean():.2f}\n")

# %% [markdown]
# ## On real hardware
#
# - **Buckets.** Below is 1 GB of gradients on 64 H100 in 8 nodes, reduced on two levels (lesson 03)
#   at what their links are built for, with all 8 network cards of each node. The last bucket is
#   never hidden; small ones cost latency.
# - **Are they hidden?** If a device has enough tokens: about 2,200 in a node of H100 and 2,500
#   beyond (lesson 10).
# - **Several servers**: with n of them, each for 1/n of w, each has the traffic of an all-reduce.
# - **Learning rate.** k times the batch, k times the rate, after a warm-up: that is a rule for SGD
#   with momentum (Goyal et al. 2017). For Adam it does not hold; the square root of k is a common
#   start (Malladi et al. 2022), and people tune it.
# - `jaxpar train --mesh dp=8` trains a larger decoder, `jaxpar launch` in several processes.
#
# ## Exercises

# %%
h100, everyone = find_cluster("h100"), Layout(dp=64)
shown = []
for mb in (1, 25, 250, 1000):
    last = 1e3 * float(collective_seconds("all_reduce", mb * 1e6, everyone, "dp", h100))
    shown.append((mb, round(1e3 / mb * last, 1), round(last, 2)))
table("All-reduces", ("MB in a bucket", "ms in all", "ms for the last"), shown)
assert shown[1][1] < 2 * shown[3][1] < shown[0][1]
exercises("05")

# %% [markdown]
# ## Sources
#
# Dean et al. 2012 (DistBelief). Li et al. 2014, *Scaling Distributed Machine Learning with the
# Parameter Server*. Goyal et al. 2017, *Accurate, Large Minibatch SGD*. Malladi et al. 2022, *On
# the SDEs and Scaling Rules for Adaptive Gradient Algorithms*. Sergeev and Del Balso 2018,
# *Horovod*. Li et al. 2020, *PyTorch Distributed* (VLDB).
#
# | here | PyTorch | others |
# |---|---|---|
# | one master, server | `nn.DataParallel`, `distributed.rpc` | DistBelief, `tf.distribute` |
# | all-reduce | DDP | Horovod, DeepSpeed, Megatron's DDP |
# | bucket | `bucket_cap_mb` | Horovod: fusion buffer; DeepSpeed: `reduce_bucket_size` |
