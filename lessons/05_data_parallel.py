# %% [markdown]
# # Lesson 05: data parallelism
#
# *Data parallelism*: each device holds the whole model, a *replica*, and computes the gradient of
# its own part of the batch. The mean of these gradients is the gradient of the whole batch, and all
# make the same update with it. How does the mean get to every device? We train a small decoder on
# real text in the three ways that PyTorch users have met: `DataParallel`, a parameter server, and
# `DistributedDataParallel` (DDP).

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding

from jaxpar.cost.communication import Link, ring_all_reduce, wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import NOBODY, draw, draw_curves, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import data, sampler, server
from jaxpar.train.step import DATA_PARALLEL, make_step
from jaxpar.train.text import batches, read_library

n, mesh = 8, make_mesh("dp=8")
equal, rows, split = (NamedSharding(mesh, spec(layout)) for layout in ("", "n_dp", "b_dp t"))


def on_devices(function, takes, gives):
    takes, gives = jax.tree.map(lambda sharding: sharding.spec, (takes, gives))
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


# %% [markdown]
# ## The idea in one picture
#
# Four devices before a step: w are the parameters, x examples. The letter behind an x (in the SVG
# file a colour, too) says which device computes the gradient of its loss. Our x is the source code
# of Python's standard library, which is on your machine, in examples of 32 bytes. The decoder, of
# one layer, predicts each byte from those before it.

# %%
star = [pair for j in (1, 2, 3) for pair in ((0, j), (j, 0))]
ring = [(j, (j + 1) % 4) for j in range(4)]
all_hold = [[["w", "x"]]] * 4, [[[NOBODY, j]] for j in range(4)]
one_holds = [[["w", *"xxxx"]], *"..."], [[[NOBODY, 0, 1, 2, 3]], *[NOBODY] * 3]
three = (
    panel("One master: w and x go out, gradients come back", *one_holds, arrows=star),
    panel("A server: gradients come in, new w go out", *all_hold, arrows=star),
    panel("All-reduce: sums of gradients go round, all update w", *all_hold, arrows=ring),
)
draw("05_three_ways", "One step, three ways", *three)
text = read_library()
STEPS, BATCH, LENGTH = 30, 32, 32  # LENGTH: bytes to predict in an example
settings = Settings(layers=1, d_model=32, heads=2, mlp="gelu")
params = jax.jit(partial(init, settings))(jax.random.key(0))  # a dict of arrays
w_start, unravel = ravel_pytree(jax.device_get(params))  # all of them in one
endless = batches(text, split, batch=BATCH, sequence=LENGTH, seed=0)
tokens = np.stack([next(endless) for _ in range(STEPS)])  # [step, b, t+1]
P, B = w_start.nbytes, tokens[0].nbytes  # bytes of parameters, of a batch
print(f"{len(text):,} bytes of text, the first {bytes(text[:30])}. P = {P:,}, B = {B:,}.\n")


def loss(w, tokens):
    return loss_fn(settings)(unravel(w), tokens)


# %% [markdown]
# ## Predict
#
# Your turn, before you read on. Gradients take P bytes, as the parameters do.
#
# 1. How many bytes pass through the master in one step, sent and received? Through the server?
# 2. How many pass through each device of an all-reduce? With 8 devices, and with 64?
# 3. Which of the three ways has the lowest loss after 30 steps?


# %%
def predict(n):  # bytes through the busiest device in a step, a few scalars left out
    master, both_ways = (n - 1) * (2 * P + B // n), 2 * wire_bytes("all_reduce", P, n)
    return {"one master": master, "server": (n - 1) * 2 * P, "all-reduce": both_ways}


shown = [(name, *(predict(k)[name] for k in (2, 8, 64))) for name in predict(n)]
table("Predicted bytes", ("busiest device", "2 devices", "8 devices", "64 devices"), shown)

# %% [markdown]
# Answer 3: none. All three make the same update; the numbers only travel another way.
#
# ## Implement
#
# **One master.** `torch.nn.DataParallel` is one process with several GPUs. In each step it copies
# the model from the first GPU to all, deals out the batch, and adds up the gradients on the first.
# Here it is one program for all, and what goes from one device to another is a permute of one pair.
# In our step w is an array with a row for each device, and only the master's row is right. All are
# given the whole batch, and only the master's is used. `psum` shows us the loss.
#
# **A server.** Workers have their own examples. They send gradients to the server, which has the
# optimizer's state, and get new parameters. `parameter_server_step` is for you to write.

# %%
show(server.single_master_gradients)


def sgd(w, gradients):
    return w - 0.2 * gradients


def with_master(row, batch):
    w, parts = row[0], batch.reshape(n, BATCH // n, LENGTH + 1)
    mean, g = server.single_master_gradients(loss, w, parts, axis="dp", master=0)
    return sgd(w, g)[None], lax.psum(mean, "dp")


def with_server(w, batch):
    new = server.parameter_server_step(loss, w, batch, sgd, axis="dp", server=0)
    return new[None], lax.pmean(loss(w, batch), "dp")


# %% [markdown]
# **All-reduce.** JAX has a surprise for those who come from PyTorch. The parameters are the same
# on all devices, and typed so: *invariant* (lesson 02). The derivative by what all devices use is a
# sum over all of them, so JAX adds an all-reduce to the backward pass. Below, device j has
# x = j + 1, so the gradient of `mean(w * x)` over all devices is 4.5, the mean of x.


# %%
def toy(w, x):
    return (w * x).mean()


def surprise(w, x):
    grad = jax.grad(toy)
    local = grad(lax.pcast(w, "dp", to="varying"), x)
    return grad(w, x), lax.pmean(grad(w, x), "dp"), lax.psum(grad(w, x), "dp"), local[None]


surprised = on_devices(surprise, (equal, rows), (equal, equal, equal, rows))
*wrong, local = (np.asarray(result) for result in surprised(1.0, np.arange(1.0, 9)))
what = ("grad(w)", "pmean(grad(w))", "psum(grad(w))", "grad(pcast(w))")
table("The gradient", ("what you write", "what you get"), zip(what, [*wrong, local], strict=True))
assert wrong == [n * 4.5, n * 4.5, n * n * 4.5] and local.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]

# %% [markdown]
# `pmean` leaves what is equal as it is: n times too much. `psum` makes it n * n times. After a
# `pcast` w counts as each device's own. Its gradient is local, as in PyTorch, and the all-reduce
# is yours to write, in `data_parallel_gradients`. `make_step`, printed below, makes a step of any
# such function; a `Layout` holds it, and says how arrays lie on the mesh.
#
# ## Measure
#
# Each program is compiled once. The inspector reads it, then it trains: 30 steps of plain SGD.

# %%
show(make_step)
w, optimizer = jax.device_put(w_start, equal), optax.sgd(0.2)
w_rows = jax.device_put(np.tile(w_start, (n, 1)), rows)
step, state = make_step(loss, optimizer, DATA_PARALLEL, mesh), optimizer.init(w)
ways = {
    "one master": (on_devices(with_master, (rows, equal), (rows, equal)), w_rows, equal),
    "server": (on_devices(with_server, (equal, split), (rows, equal)), w, split),
    "all-reduce": (jax.jit(lambda w, batch: step(w, state, batch)[::2]), w, split),
}
losses = {name: [] for name in ways}
through = {name: np.zeros(n) for name in ways}  # bytes that each device sends and receives
for name, (jitted, w, layout) in ways.items():
    given = jax.device_put(list(tokens), layout)
    lowered = jitted.lower(w, given[0])
    ready = compiled.compile_program(lowered)
    report = program.inspect_compiled(lowered, ready)
    for one in (one for one in report.collectives if one.operand_bytes > 4):
        for devices in one.pairs or [range(n)] * 2:
            through[name][list(devices)] += one.wire_bytes
    for batch in given:
        w, mean = ready.executable(w, batch)
        losses[name].append(float(mean))
        if name == "server":  # the rows are equal: this says so, and sends nothing
            held = [one.data[0] for one in w.addressable_shards]
            w = jax.make_array_from_single_device_arrays(w_start.shape, equal, held)
panels = (panel(name, np.round(sent / 1e6, 2), [NOBODY] * n) for name, sent in through.items())
draw("05_bytes", "MB through each device in one step", *panels)

# %% [markdown]
# ## Compare
#
# Bytes are as predicted. The losses are the same, but for rounding. Data parallelism saves no
# memory for parameters: each device holds them all, and its part of the batch.
#
# **Asynchronous.** A server can use each gradient when it comes, and wait for no slow worker. But
# meanwhile others came: the gradient is by parameters of some updates ago, its *staleness*. With n
# equally fast workers that is n - 1. We simulate it on one device.

# %%
assert {name: sent.max() for name, sent in through.items()} == predict(n)
assert report.memory.arguments_bytes == P + B // n  # of the all-reduce
show(server.stale_server)
run = partial(server.stale_server, loss, w_start, tokens, sgd)
(_, in_step), (_, stale) = jax.jit(lambda: (run(staleness=0), run(staleness=n - 1)))()
np.testing.assert_allclose(list(losses.values()), [in_step] * 3, rtol=1e-3)
curves = {**losses, "one device": in_step, "asynchronous, 7 updates late": stale}
draw_curves("05_losses", "The loss of each batch", "step", curves)
assert np.ptp(stale[:n]) < np.ptp(in_step[:n]) and stale[-10:].mean() > in_step[-10:].mean()

# %% [markdown]
# A loss here is what a worker saw: the first n are of the starting parameters. Late gradients lead
# on from old places, and the server overshoots. The other curves are one, on one device or eight.
#
# ## When gradients travel
#
# **Accumulation.** If activations do not fit, a device takes *microbatches*, one after the other,
# and adds up their gradients. The all-reduce belongs after the loop (DDP: `no_sync`). **Buckets.**
# Each all-reduce costs latency (lesson 03), so DDP sends several gradients in one, a *bucket*, and
# meanwhile computes the gradients of earlier layers (*overlap*, which a CPU cannot show). **The
# compiler's version.** `jax.jit` with shardings takes the step of one device, and splits it. It
# sends as many bytes as we do, but a layer's gradients as soon as they are there, in the loop over
# layers. Ours wait for the end of the backward pass.


# %%
def sent(function, takes, *args):
    found = inspect(on_devices(partial(function, axis="dp"), takes, equal), *args).collectives
    return [one.operand_bytes for one in found for _ in range(one.times) if one.operand_bytes > 4]


four = (equal, NamedSharding(mesh, spec("m b_dp"))), jnp.zeros(1024), jnp.zeros((4, 8192))
each = partial(data.data_parallel_gradients, toy)
in_loop = sent(lambda w, x, axis: lax.map(partial(each, w, axis=axis), x), *four)
after = sent(partial(data.accumulate_gradients, toy), *four)
print(f"4 microbatches: {in_loop} bytes in the loop, {after} after it\n")
assert in_loop == 4 * after
leaves = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * n), params)
for size in (1, 50_000, 25 * 2**20):  # the last is DDP's
    buckets = sent(partial(data.bucketed_all_reduce, bucket_bytes=size), rows, leaves)
    print(f"Buckets of {size:,} bytes: {len(buckets)}, the largest {max(buckets):,} bytes")
    assert sum(buckets) == P
deep = Settings(layers=4, d_model=64, heads=4, mlp="gelu")
shape = jax.eval_shape(partial(init, deep), jax.random.key(0))
both = jax.value_and_grad(loss_fn(deep))
report = inspect(jax.jit(both, in_shardings=(equal, split), out_shardings=equal), shape, tokens[0])
times = [one.times for one in report.collectives]
print(f"\nThe compiler: {times.count(1)} all-reduces outside the loop, {times.count(4)} in it\n")
assert report.wire_bytes_by_axis()["dp",] == wire_bytes("all_reduce", 4 * deep.parameters + 4, n)

# %% [markdown]
# ## Which examples
#
# A mean of means is the mean only if all parts are equally large. A *sampler* gives every device as
# many examples, some of them twice if need be. From the same seed and epoch, all find the same
# order. A metric counts nothing twice: *pad* the last batch, and let a mask say what is real.

# %%
for epoch in (0, 1):
    deal = partial(sampler.shard_indices, 10, world_size=4, epoch=epoch, seed=0)
    print(f"10 examples on 4 devices, epoch {epoch}:", *(deal(rank=j) for j in range(4)))
values = np.arange(11, dtype=np.float32)
padded, real = sampler.pad_batch(values, 2 * n)  # 2 for each device
mean = on_devices(partial(data.masked_mean, axis="dp"), rows, equal)(padded, real)
of_means = np.mean([values[j : j + 2].mean() for j in range(0, 11, 2)])
print(f"0 to 10: mean {mean}, of means {of_means:.2f}, with padding {padded.mean():.2f}\n")
assert mean == values.mean()

# %% [markdown]
# ## On real hardware
#
# - **Buckets** of 1 GB of gradients on 64 GPUs: see below. The last is never hidden.
# - **Prefetch.** JAX returns before the devices are done; meanwhile `train` reads the next batch.
# - **Servers** are many: n of them, each for 1/n of w, pass an all-reduce's bytes each.
# - **Learning rate.** k times the batch, k times the rate, after a warm-up (Goyal et al. 2017).
# - `jaxpar train --mesh dp=8` trains a larger decoder, `jaxpar launch` on several processes.
#
# ## Exercises

# %%
link = Link(latency_seconds=10e-6, bytes_per_second=50e9)
last = {size: 1e3 * ring_all_reduce(size * 1e6, 64).seconds(link) for size in (1, 25, 250, 1000)}
shown = [(size, round(1000 / size * ms, 1), round(ms, 1)) for size, ms in last.items()]
table("All-reduces", ("MB in a bucket", "ms in all", "ms for the last"), shown)
exercises("05")

# %% [markdown]
# ## Sources
#
# Dean et al. 2012, *Large Scale Distributed Deep Networks*. Li et al. 2014, *Scaling Distributed
# Machine Learning with the Parameter Server*. Goyal et al. 2017, *Accurate, Large Minibatch SGD*.
# Sergeev and Del Balso 2018, *Horovod*. Li et al. 2020, *PyTorch Distributed* (VLDB).
#
# | here | PyTorch | others |
# |---|---|---|
# | one master, server | `nn.DataParallel`, `distributed.rpc` | DistBelief, `tf.distribute` |
# | all-reduce | DDP | Horovod, DeepSpeed, Megatron's DDP |
# | bucket | `bucket_cap_mb` | Horovod: fusion buffer; DeepSpeed: `reduce_bucket_size` |
