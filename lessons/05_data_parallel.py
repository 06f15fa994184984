# %% [markdown]
# # Lesson 05: data parallelism
#
# One device is too slow. Llama 3 8B was trained on 15 trillion tokens (Grattafiori et al. 2024).
# With 6 FLOPs for each parameter and token (lesson 04), a single H100 at 40% of its peak would need
# 58 years. The simplest remedy is *data parallelism*. Each device holds the whole model, a
# *replica*, and computes the gradient of the mean loss of its own shard of the batch. If all shards
# are equally large, the mean of these gradients is the gradient of the whole batch. All devices
# make the same update with it, so the replicas stay equal.
#
# How does the mean get to every device? There are three ways, which PyTorch users know as
# `DataParallel`, a *parameter server*, and `DistributedDataParallel` (DDP). All three compute the
# same. We count what each of them sends.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import data, sampler, server
from jaxpar.schedules.overlap import Task, exposed_seconds, run, step_seconds
from jaxpar.train.loop import train
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import technique_of
from jaxpar.train.step import make_step
from jaxpar.train.text import batches, read_library

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("dp=8")

# %% [markdown]
# ## The idea in one picture
#
# Four devices before a step: w are the parameters, and each x is an example. The letter after an x
# says which device computes with it: a means device 0, b device 1, and so on. An arrow is a
# message.

# %% tags=["fold"]
star = [pair for j in (1, 2, 3) for pair in ((0, j), (j, 0))]
ring = [(j, (j + 1) % 4) for j in range(4)]
all_hold = [[["w", "x"]]] * 4, [[[NOBODY, j]] for j in range(4)]
one_holds = [[["w", *"xxxx"]], *"..."], [[[NOBODY, 0, 1, 2, 3]], *[NOBODY] * 3]
three = [
    panel("One master: w and x go out, gradients come back", *one_holds, arrows=star),
    panel("A server: gradients come in, new w go out", *all_hold, arrows=star),
    panel("All-reduce: sums of gradients go round, all update w", *all_hold, arrows=ring),
]
draw("05_three_ways", Panels("One step, three ways", three))

# %% [markdown]
# - **One master.** `DataParallel` is one process with several GPUs. In each step it copies the
#   model from the first GPU to all others, splits the batch, and adds up the gradients on the first
#   GPU, which makes the update.
# - **A server.** Each *worker* has its own examples. It sends its gradient to a server, which makes
#   the update and sends new parameters back. Here device 0 is server and worker.
# - **All-reduce.** No device is special. All of them get the sum of the gradients (lesson 02), and
#   each makes the update. This is DDP.
#
# ### What we train
#
# A decoder of one layer predicts each byte of a text from the bytes before it. The text is the
# source code of Python's standard library. A batch has 32 examples, 4 for each device. An example
# is 33 bytes long: the first is only an input, and the other 32 are predicted. So the shape of a
# batch is [32, 33]. All parameters are in one vector `w`, which `unravel` turns back into the dict
# of arrays that the model takes.

# %%
STEPS, BATCH, LENGTH, RATE = 30, 32, 32, 0.2
settings = Settings(layers=1, d_model=32, heads=2, mlp="gelu")
params = jax.device_get(init(settings, jax.random.key(0)))
w_start, unravel = ravel_pytree(params)
by_examples = NamedSharding(mesh, P("dp"))  # dim 0, the examples, is split over the devices
endless = batches(read_library(), by_examples, batch=BATCH, sequence=LENGTH, seed=0)
tokens = [np.asarray(next(endless)) for _ in range(STEPS)]
w_bytes, batch_bytes = w_start.nbytes, tokens[0].nbytes
print(f"w: {w_start.shape} of {w_start.dtype}, {w_bytes:,} bytes")
print(f"a batch: {tokens[0].shape} of {tokens[0].dtype}, {batch_bytes:,} bytes\n")


def loss(w, tokens):  # the mean over all predicted bytes
    return loss_fn(settings)(unravel(w), tokens)


# %% [markdown]
# ## Predict
#
# A gradient takes as many bytes as the parameters. The *traffic* of a device is what it sends plus
# what it receives (lesson 02). Type a number for each question; a calculation will do.

# %%
of_master = ask("Traffic of the one master in a step, with 8 devices")
of_each = ask("Traffic of each device of an all-reduce, with 8 devices")
of_64 = ask("Traffic of each device of an all-reduce, with 64 devices")

# %% [markdown]
# An *asynchronous* server does not wait for all gradients. It makes an update with each one as soon
# as it arrives, and sends the new parameters to the worker that it came from.

# %%
late = ask("Updates that it makes while one of 8 equal workers computes a gradient", "count")

# %% [markdown]
# A backward pass has 8 parts, each of which takes 1.01 ms to compute. Once a part is computed, its
# gradients can be all-reduced, which takes 1.79 ms. The device computes the next parts meanwhile,
# but the network does one all-reduce at a time.

# %%
wait = ask("Time from the end of the backward pass to the end of the last all-reduce", "seconds")

# %% [markdown]
# ## Implement
#
# ### One step by hand
#
# Here is a whole data-parallel step, with stochastic gradient descent (SGD). The function runs on
# every device. `w` is the whole vector, and `batch` is this device's shard, of shape [4, 33].


# %%
def step_by_hand(w, batch):
    own = lax.pcast(w, "dp", to="varying")  # each device differentiates its own copy
    gradient = jax.grad(loss)(own, batch)  # of the loss of its own examples
    mean = lax.pmean(gradient, "dp")  # the only message: an all-reduce
    return w - RATE * mean  # the same update on every device


specs = (P(), P("dp"))  # w is replicated, the batch is split
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=specs, out_specs=P()))

# %% [markdown]
# In PyTorch, DDP does the same behind `loss.backward()`. The exercise `data_parallel_gradients`
# asks for more: any pytree of parameters, and the mean of the loss.
#
# Why the `pcast`? Without it, JAX sums the gradient over all devices by itself, because all of them
# use the same `w` (lesson 02, "Types that vary, and types that do not"). `pmean` does not change
# what is equal on all devices, so the update would be 8 times too large, without any error.

# %% tags=["fold"]
slope = jax.grad(lambda w, x: (w * x).mean())  # with x = j + 1 on device j, the mean of all is 4.5


def without_pcast(w, x):
    return lax.pmean(slope(w, x), "dp")


f = jax.jit(jax.shard_map(without_pcast, mesh=mesh, in_specs=(P(), P("dp")), out_specs=P()))
assert f(1.0, np.arange(1.0, 9)) == n * 4.5

# %% [markdown]
# ### The library's form
#
# A *recipe* says how a decoder is trained, here by data parallelism on 8 devices. `technique_of`
# makes of it a function that computes the gradients, and the partition specs of all arrays, and
# `make_step` adds an optimizer of optax. `train` is the loop. A call of the step returns before the
# devices have finished, so the loop prepares the next batch meanwhile. This is *prefetch*; in
# PyTorch the workers of a `DataLoader` do it. Only `float` waits for the loss, and for the norm of
# the gradients.

# %%
show(train)
sgd = optax.sgd(RATE)
technique = technique_of(settings, make_recipe("dp=8", batch=BATCH))
library_step = make_step(technique, sgd, mesh)
library_losses = [
    result.loss for result in train(library_step, params, sgd.init(params), iter(tokens))
]

# %% [markdown]
# ### One master
#
# All devices run the same program here, too. A message from one device to another is a permute with
# one pair. `w` has a row for each device, and only the master may use its own. So we fill the other
# rows with NaN: if one of them were used, the loss would be NaN.

# %%
show(server.single_master_gradients)


def with_master(row, batch):
    w = row[0]  # this device's row
    shards = batch.reshape(n, BATCH // n, LENGTH + 1)
    _, gradient = server.single_master_gradients(loss, w, shards, axis="dp", master=0)
    return (w - RATE * gradient)[None]


specs = (P("dp"), P())
one_master = jax.jit(jax.shard_map(with_master, mesh=mesh, in_specs=specs, out_specs=P("dp")))


def master_step(w, batch):
    rows = np.full((n, w.size), np.nan, np.float32)
    rows[0] = w
    return one_master(rows, batch)[0]


# %% [markdown]
# ### A server
#
# `parameter_server_step` is yours to write. All devices receive the same new parameters, but the
# result of a permute is typed as varying (lesson 02). So they leave `shard_map` as eight equal
# rows, of which we take the first.


# %%
def descend(w, gradient):
    return w - RATE * gradient


def with_server(w, batch):
    return server.parameter_server_step(loss, w, batch, descend, axis="dp", server=0)[None]


specs = (P(), P("dp"))
one_server = jax.jit(jax.shard_map(with_server, mesh=mesh, in_specs=specs, out_specs=P("dp")))


def server_step(w, batch):
    return one_server(w, batch)[0]


# %% [markdown]
# ## Measure
#
# ### The traffic of each device
#
# The inspector reads from each program how many bytes a collective sends, and for a permute from
# which device to which. Losses, of 4 bytes, are left out.

# %%
reports = {
    "master": inspect(one_master, np.tile(w_start, (n, 1)), tokens[0]),
    "server": inspect(one_server, w_start, tokens[0]),
    "all-reduce": inspect(by_hand, w_start, tokens[0]),
}
sent = {way: np.zeros(n) for way in reports}
received = {way: np.zeros(n) for way in reports}
for way, report in reports.items():
    for one in report.collectives:
        if one.operand_bytes > 4 and one.pairs:  # a permute
            for source, target in one.pairs:
                sent[way][source] += one.wire_bytes
                received[way][target] += one.wire_bytes
        elif one.operand_bytes > 4:  # an all-reduce: all devices are alike
            sent[way] += one.wire_bytes
            received[way] += one.wire_bytes

# %% tags=["fold"]
bars = {}
for way in reports:
    of = {0: "each"} if way == "all-reduce" else {0: "device 0", 1: "others"}
    for device, who in of.items():
        both = {"sent": sent[way][device] / 1e6, "received": received[way][device] / 1e6}
        bars[f"{way}, {who}"] = both
    assert len(set(sent[way][max(of) :])) == len(set(received[way][max(of) :])) == 1
draw("05_bytes", Bars("Traffic of a device in one step", "MB", bars))

# %% [markdown]
# A master or a server has seven times the traffic of the others, and they wait for it. In an
# all-reduce each device has a quarter of a server's traffic.
#
# ### Thirty steps
#
# Each way trains 30 steps from the same parameters, and so does a single device. We note the loss
# of each batch before its update.


# %%
@jax.jit
def on_one_device(w, batch):
    return w - RATE * jax.grad(loss)(w, batch)


whole_loss = jax.jit(loss)
steps = {
    "one master": master_step,
    "server": server_step,
    "all-reduce": by_hand,
    "one device": on_one_device,
}
losses = {}
for way, step in steps.items():
    w, losses[way] = w_start, []
    for batch in tokens:
        losses[way].append(float(whole_loss(w, batch)))
        w = jax.device_get(step(w, batch))

# %% [markdown]
# ### An asynchronous server
#
# While a worker computes a gradient, an asynchronous server makes updates with those of the others.
# So each gradient was computed at old parameters. The number of updates since then is its
# *staleness*. First we count it, for workers that take turns. Then we train with it, simulated on
# one device.

# %%
fetched = [0] * n  # for each worker, how many updates its parameters contain
for updates in range(3 * n):
    worker = updates % n
    staleness = updates - fetched[worker]
    fetched[worker] = updates + 1  # its gradient is used, and it fetches the result
print(f"Staleness at the end: {staleness}\n")

# %%
show(server.stale_server)
simulate = partial(server.stale_server, loss, w_start, np.stack(tokens), descend)
losses["asynchronous"] = jax.jit(partial(simulate, staleness=staleness))()[1]

# %% tags=["fold"]
axes = "step", "loss, nats for each token"
draw("05_losses", Curves("The loss of each batch", *axes, range(STEPS), losses))

# %% [markdown]
# Four of the five curves coincide: a master, a server, an all-reduce and a single device have the
# same losses, except for rounding. So has the library's step. The asynchronous server is worse. Its
# losses are those that the workers compute, at old parameters, so the first eight are those of the
# initial parameters. Each later gradient belongs to the parameters of seven updates ago, and at
# this learning rate the server overshoots.
#
# ## Compare

# %%
traffic = {way: sent[way] + received[way] for way in reports}
others = n - 1
parts = {"parameters sent": others * w_bytes, "examples sent": others * batch_bytes // n}
of_master.compare(traffic["master"].max(), parts | {"gradients received": others * w_bytes})
halves = {"sent": sent["all-reduce"][0], "received": received["all-reduce"][0]}
of_each.compare(traffic["all-reduce"].max(), halves)
half = wire_bytes("all_reduce", w_bytes, 64)
of_64.compare(2 * half, {"sent": half, "received": half})
late.compare(staleness)

# %% [markdown]
# The traffic of a master or a server grows with the number of devices. That of an all-reduce hardly
# grows: by an eighth from 8 devices to 64, and never beyond 4 times the bytes of the gradients.
# PyTorch's documentation recommends DDP over `DataParallel` even inside one node.
#
# Data parallelism divides the work and the activations, but saves no memory for parameters,
# gradients or the optimizer's state: each device holds them all. Lesson 09 is about that.

# %% tags=["fold"]
assert traffic["master"].max() == others * (2 * w_bytes + batch_bytes // n)
assert traffic["server"].max() == others * 2 * w_bytes
assert traffic["all-reduce"].max() == 2 * wire_bytes("all_reduce", w_bytes, n)
assert 1.12 < 2 * half / traffic["all-reduce"].max() < 1.13
assert 4 * w_bytes > 2 * half
assert reports["all-reduce"].memory.arguments_bytes == w_bytes + batch_bytes // n
assert 6.8 < traffic["server"][0] / traffic["server"][1] < 7.1
assert traffic["all-reduce"][0] == traffic["server"][1] * 1.75 == traffic["server"][0] / 4
alike = [losses[way] for way in steps] + [library_losses]
np.testing.assert_allclose(alike, [losses["one device"]] * len(alike), rtol=1e-3)
assert staleness == n - 1
initial = [whole_loss(w_start, batch) for batch in tokens[:n]]
np.testing.assert_allclose(losses["asynchronous"][:n], initial, rtol=1e-3)
assert losses["asynchronous"][-10:].mean() > np.mean(losses["one device"][-10:])

# %% [markdown]
# ## When gradients are sent
#
# ### Accumulation
#
# If activations do not fit into memory, a device takes *microbatches*, one after the other, and
# adds up their gradients: *gradient accumulation*. The all-reduce belongs after the loop. Inside
# it, every microbatch would send as much as a whole step. (In DDP, `no_sync` turns the all-reduce
# off for all microbatches but the last.) `accumulate_gradients` is yours to write.
#
# Here is a toy with 1,024 weights, and four microbatches of 1,024 numbers on each device.

# %%
weights = np.zeros(1024, np.float32)
four_microbatches = np.zeros((4, n * 1024), np.float32)


def toy(w, x):
    return (w * x).mean()


def in_the_loop(w, xs):
    each = partial(data.data_parallel_gradients, toy, w, axis="dp")
    return lax.map(each, xs)


def after_the_loop(w, xs):
    return data.accumulate_gradients(toy, w, xs, axis="dp")


def all_reduces(function, takes, *args):
    """The operand bytes of each all-reduce, without those of losses."""
    f = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=P()))
    found = inspect(f, *args).collectives
    return [one.operand_bytes for one in found for _ in range(one.times) if one.operand_bytes > 4]


# %%
takes = (P(), P(None, "dp"))
inside = all_reduces(in_the_loop, takes, weights, four_microbatches)
after = all_reduces(after_the_loop, takes, weights, four_microbatches)
print(f"All-reduces in the loop: {inside} bytes; after it: {after} bytes\n")
assert inside == 4 * after

# %% [markdown]
# ### Buckets
#
# Our `w` is one vector; a model has many arrays. An all-reduce for each pays the latency (lesson
# 03) many times, and one for all has to wait for the end of the backward pass. So DDP fills
# *buckets*: several gradients are sent together as soon as all of them are computed. By default a
# bucket has about 25 MiB, and the first one 1 MiB, so that sending begins early. Here are the
# all-reduces of our parameters, in the place of gradients, for three limits.
# `bucketed_all_reduce` is yours to write.

# %%
one_copy_each = jax.tree.map(lambda leaf: np.concatenate([leaf] * n), params)  # for P("dp")
for limit in (1, 50_000, 25 * 2**20):
    in_buckets = partial(data.bucketed_all_reduce, axis="dp", bucket_bytes=limit)
    sizes = all_reduces(in_buckets, P("dp"), one_copy_each)
    print(f"Buckets of at most {limit:,} bytes: {sizes}")
    assert sum(sizes) == w_bytes
print()

# %% [markdown]
# With the first limit each array has its own all-reduce. With the last, our small model needs only
# one.
#
# ### The compiler's version
#
# There is a way without `shard_map`: `jax.jit` takes the gradient function of one device and the
# shardings of its arguments and results. The compiler splits the work and inserts the all-reduces.
# We try it on a decoder of 4 layers, and ask how often each all-reduce runs.

# %%
deep = Settings(layers=4, d_model=32, heads=2, mlp="gelu")
shapes = jax.eval_shape(partial(init, deep), jax.random.key(0))
replicated = NamedSharding(mesh, P())
automatic = jax.jit(
    jax.value_and_grad(loss_fn(deep)),
    in_shardings=(replicated, by_examples),
    out_shardings=replicated,
)
report = inspect(automatic, shapes, tokens[0])
print("Times that each all-reduce runs:", [one.times for one in report.collectives], "\n")

# %% tags=["fold"]
times = [one.times for one in report.collectives]
assert sorted(times) == [1] * 4 + [4] * 8
sent_by_hand = wire_bytes("all_reduce", 4 * (deep.parameters + 1), n)
assert report.wire_bytes_by_axis()["dp",] == sent_by_hand

# %% [markdown]
# Eight of them stand in the loop over layers and run 4 times: a layer's gradients are reduced as
# soon as the backward pass has computed them. The other four are those of embedding, last norm,
# head and loss. All twelve together send as many bytes as one all-reduce by hand, which could begin
# only after the backward pass.
#
# ## Which examples
#
# ### A sampler
#
# A *sampler* says which examples a device takes. From the same seed and *epoch* (one pass over all
# examples), all devices compute the same random order, so nothing has to be sent. The mean of the
# devices' means is the mean of the batch only if all have equally many examples, so the sampler
# repeats some if it must. Below, 10 examples go to 4 devices, 3 to each, so in every epoch two
# examples appear twice. `shard_indices` is yours to write. `seeded_split` sets examples apart to
# test with.

# %%
for epoch in (0, 1):
    of_rank = partial(sampler.shard_indices, 10, world_size=4, epoch=epoch, seed=0)
    print(f"Epoch {epoch}:", *(of_rank(rank=j) for j in range(4)))
print("To train and to test:", *sampler.seeded_split(10, [0.8, 0.2], seed=0), "\n")

# %% [markdown]
# ### A metric
#
# A metric must count each example once. So the last batch is *padded*, and a mask says which
# examples are real. Here a batch of the numbers 0 to 10 is padded to 16, 2 for each of 8 devices:
# five devices have two real examples, one has one, and two have none. `masked_mean` is yours to
# write.

# %%
values = np.arange(11, dtype=np.float32)
padded, real = sampler.pad_batch(values, 2 * n)
mean = partial(data.masked_mean, axis="dp")
masked = jax.jit(jax.shard_map(mean, mesh=mesh, in_specs=P("dp"), out_specs=P()))(padded, real)
of_means = np.mean([values[j : j + 2].mean() for j in range(0, 11, 2)])
print(f"mean {masked}, mean with padding {padded.mean():.2f}, mean of means {of_means:.2f}\n")
assert masked == values.mean()

# %% [markdown]
# Only the first of these means is right. In the last one, the device with a single example counts
# as much as one with two.
#
# ## On real hardware
#
# ### The last bucket
#
# GPUs send while they compute. This *overlap* is what simulated devices cannot show. So here is a
# step of GPT-2 XL (1.56 billion parameters) by the cost model: 64 H100 in 8 nodes, links at their
# full bandwidth, gradients in 16 bits, 1,024 tokens on each device. Products run at 40% of the
# peak, about what Llama 3 405B reached (Grattafiori et al. 2024, table 4). As in lesson 03, a
# `Task` has a kind, a label, a lane, its seconds, and the tasks that it waits for. The backward
# pass begins with the last layers: B8 computes the gradients of their bucket, and R8 reduces them.

# %%
h100, everyone = find_cluster("h100"), Layout(dp=64)
PARAMETERS, SPEED = 1_557_611_200, 0.4 * h100.device.peak_flops["bf16"]
GRADIENT_BYTES = 2 * PARAMETERS


def all_reduce_seconds(size):
    return float(collective_seconds("all_reduce", size, everyone, "dp", h100))


def timeline(tokens, buckets):
    forward = 2 * PARAMETERS * tokens / SPEED  # 2 FLOPs for each parameter and token
    backward = 2 * forward / buckets  # twice as many, in as many parts as there are buckets
    reduction = all_reduce_seconds(GRADIENT_BYTES / buckets)
    tasks = [Task("forward", "forward", "compute", forward)]
    for number in range(buckets, 0, -1):
        computed = Task("backward", f"B{number}", "compute", backward)
        tasks += [computed, Task("all-reduce", f"R{number}", "network", reduction, (computed,))]
    return run(tasks)


lanes = {
    "one bucket": timeline(1024, 1),
    "8 buckets": timeline(1024, 8),
    "8 buckets, half as many tokens": timeline(512, 8),
}

# %% tags=["fold"]
draw("05_overlap", Lanes("A step of GPT-2 XL on 64 H100", "ms", lanes))
exposed = {name: 1e3 * exposed_seconds(spans) for name, spans in lanes.items()}
wait.compare(exposed["8 buckets, half as many tokens"] / 1e3)
assert round(6 * 8.03e9 * 15e12 / SPEED / (365.25 * 24 * 3600)) == 58  # years of Llama 3 8B
in_ms = [1e3 * step_seconds(spans) for spans in lanes.values()]
assert [round(ms, 1) for ms in in_ms] == [37.9, 26.0, 19.3]
assert [round(ms, 1) for ms in exposed.values()] == [13.7, 1.8, 7.2]
last = [1e3 * span.task.seconds for span in lanes["8 buckets, half as many tokens"][-2:]]
assert [round(ms, 2) for ms in last] == [1.01, 1.79]

# %% [markdown]
# With one bucket, the devices wait 13.7 ms for the whole all-reduce. With eight, they wait 1.8 ms
# for the last one. It is *exposed*: nothing is left to compute meanwhile. With half as many
# tokens, computing takes half as long, but the gradients are as large as before. These are the
# times of the last prediction: now the network is the slower lane, and the devices wait 7.2 ms.
#
# How large should a bucket be? A small one leaves less exposed, but each all-reduce costs latency.
# Here is 1 GB of gradients on the same 64 devices.

# %% tags=["fold"]
shown = []
for mb in (1, 25, 250, 1000):
    last = 1e3 * all_reduce_seconds(mb * 1e6)
    shown.append((mb, round(1e3 / mb * last, 1), round(last, 2)))
table("All-reduces", ("MB in a bucket", "ms in all", "ms for the last"), shown)
assert [row[1] for row in shown] == [65.6, 7.7, 4.7, 4.5]
many = timeline(1024, GRADIENT_BYTES // (25 * 2**20) + 1)
assert round(1e3 * exposed_seconds(many), 1) == 7.5

# %% [markdown]
# By this model, buckets of 25 MB take 1.7 times as long as one of 1 GB. In the step above, buckets
# of 25 MiB would make the devices wait 7.5 ms. Megatron-LM's buckets grow with the number of
# devices: a million parameters for each device, and at least 40 million
# (`DistributedDataParallelConfig.bucket_size`).
#
# ### What else is different
#
# - **Enough tokens** hide the sending of gradients. At the peak of an H100 these are about 2,200 on
#   each device of a node, and 2,475 over many nodes (Austin et al. 2025, chapter on GPUs). At 40%
#   of the peak, 40% of them are enough. Lesson 10 derives this.
# - **Equal replicas.** DDP broadcasts the parameters of rank 0 at the start. In JAX, the same key
#   gives the same parameters everywhere.
# - **Several servers**, each for 1/n of the parameters, divide the traffic (Li et al. 2014).
# - **Asynchronous training** was used for large models by Dean et al. 2012. Synchronous training
#   with a few spare workers reached a better model sooner (Chen et al. 2016).
# - **Learning rate.** With k times the batch, use k times the rate, after a warm-up: this is a rule
#   for SGD (Goyal et al. 2017, section 2). For Adam it is the square root of k (Malladi et al.
#   2022). Begin with these, and tune from there.
# - **Try it:** `jaxpar train --mesh dp=8`, or `jaxpar launch` with several processes.
#
# ## Exercises

# %%
exercises("05")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 8B has 8.03 billion parameters, which are sent in 16 bits. A server has a network card
#    of 50 GB/s, and 64 workers on other nodes. How long does it take to receive all gradients, and
#    then to send all parameters? (The cost model gives 70 ms for the all-reduce of 64 H100.)
#
# <details><summary>Answer</summary>
#
# Each way 64 times 16.06 GB, which is 1,028 GB and takes 20.6 seconds: 41 seconds in all, nearly
# 600 times as long as the all-reduce.
#
# </details>
#
# 2. GPT-2 XL was trained with batches of 512 examples of 1,024 tokens. How many H100 can data
#    parallelism use at most, if products run at 40% of the peak and the network must stay hidden?
#
# <details><summary>Answer</summary>
#
# Hiding takes 40% of 2,475, so 990 tokens on each device. The batch has 524,288, enough for 529
# devices. But data parallelism splits no example, so there is work for 512 devices, with one
# example each. A larger batch raises both limits.
#
# </details>
#
# 3. The same batch on 8 devices, with memory for the activations of 16 examples each. How many
#    microbatches does a device take? How many bytes does it send in a step, in 16 bits, with one
#    all-reduce after the loop, and with one for each microbatch?
#
# <details><summary>Answer</summary>
#
# 512 / (8 times 16) = 4 microbatches. An all-reduce sends 2 times 7/8 of 3.12 GB, which is 5.45 GB;
# in the loop it is four times that, 21.8 GB.
#
# </details>
#
# ## Sources
#
# Austin et al. 2025, *How to Scale Your Model*. Chen et al. 2016, *Revisiting Distributed
# Synchronous SGD*. Dean et al. 2012, *Large Scale Distributed Deep Networks* (DistBelief). Goyal et
# al. 2017, *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*. Grattafiori et al. 2024,
# *The Llama 3 Herd of Models*. Langford, Smola and Zinkevich 2009, *Slow Learners are Fast*. Li et
# al. 2014, *Scaling Distributed Machine Learning with the Parameter Server*. Li et al. 2020,
# *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, section 3.2 (buckets,
# overlap, accumulation). Malladi et al. 2022, *On the SDEs and Scaling Rules for Adaptive Gradient
# Algorithms*. Radford et al. 2019, *Language Models are Unsupervised Multitask Learners* (GPT-2).
# Sergeev and Del Balso 2018, *Horovod: fast and easy distributed deep learning in TensorFlow*.
#
# | here | PyTorch | others |
# |---|---|---|
# | one master | `nn.DataParallel` | - |
# | server | `distributed.rpc` | DistBelief, `tf.distribute.ParameterServerStrategy` |
# | all-reduce | DDP | Horovod, DeepSpeed, Megatron-LM |
# | bucket | `bucket_cap_mb` | Horovod: fusion buffer; DeepSpeed: `reduce_bucket_size` |
# | accumulation | `no_sync` | DeepSpeed: `gradient_accumulation_steps` |
# | sampler | `DistributedSampler` | Megatron-LM: `MegatronPretrainingRandomSampler` |
