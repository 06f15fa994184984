# %% [markdown]
# # Lesson 06: low communication
#
# In data parallelism (lesson 05) the devices average their gradients in every step. In a data
# centre, most of this time is hidden behind the backward pass. Over the internet it cannot be
# hidden: with a line of 1 Gb/s, an all-reduce of the gradients of a billion parameters takes about
# a minute.
#
# So what can be left out? There are three answers. A device can send *fewer bits* of each gradient.
# It can send *less often*: devices train by themselves, and average now and then. Or it can *wait
# for fewer* devices. None of these computes exactly what data parallelism computes. So we ask two
# questions about each: what does it save, and what does it lose?

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial
from math import ceil, pi, sin

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxpar.cost.communication import Link, ring_all_reduce
from jaxpar.cost.compress import compressed_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner import Job, explore
from jaxpar.cost.sites import EVERY_STEP, Sites, Way, averaging, fewest_local_steps
from jaxpar.cost.stragglers import Fleet, step_seconds
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.losses import read_losses
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.curves import Curves, Points
from jaxpar.drawing.lanes import Lanes
from jaxpar.inspector import inspect
from jaxpar.model import Settings
from jaxpar.parallel import compress, local
from jaxpar.parallel.server import stale_server
from jaxpar.schedules.overlap import Task, run

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("dp=8")

# %% [markdown]
# ## The idea in one picture
#
# Two home machines, each with a GeForce RTX 4090, train the smallest GPT-2 (124 million
# parameters). A line of 1 Gb/s joins them. In a step, each computes 65,536 tokens at 40% of its
# peak. Then they average the gradients. The picture has four steps in three ways: with gradients in
# 32 bits, with gradients in 8 bits, and with four *local* steps, after which the parameters are
# averaged once.

# %% tags=["fold"]
gpt2, home = find_model("gpt2"), find_cluster("rtx4090")
STEP = 6 * gpt2.parameters * 65_536 / (0.4 * home.device.peak_flops["bf16"])
HOME_LINE = Link(latency_seconds=10e-3, bytes_per_second=0.125e9)


def four_steps(part, each):
    """Four steps; after every `each`-th one, `part` of the bytes of float32 is sent."""
    sending = ring_all_reduce(part * 4 * gpt2.parameters, 2).seconds(HOME_LINE)
    tasks, sent = [], ()
    for step in range(1, 5):
        tasks.append(Task("compute", f"C{step}", "compute", STEP, sent))
        if step % each == 0:
            sent = (Task("average", f"A{step}", "network", sending, (tasks[-1],)),)
            tasks += sent
    return run(tasks)


ways = {
    "32 bits, every step": four_steps(1, 1),
    "8 bits, every step": four_steps((1 + 4 / 256) / 4, 1),
    "32 bits, every fourth step": four_steps(1, 4),
}
draw("06_four_steps", Lanes("Four steps of GPT-2 on two home machines", "s", ways))

# %% [markdown]
# ## Predict
#
# Eight devices average 65,536 float32 numbers. With an all-reduce in 32 bits, each device sends
# 458,752 bytes.
#
# First, they average in 8 bits. This is done in two halves, as in an all-reduce (lesson 02). Each
# device averages one of 8 equal parts, so the others send it their numbers of this part. Then each
# device sends the means of its part to all. Both times, numbers travel as 8-bit integers, and every
# 256 of them share a *scale*, a float32 with which the integers are multiplied.

# %%
in_8_bits = ask("Sent by each of 8 devices, in 8 bits")

# %% [markdown]
# Now each device sends only its 655 largest numbers, 1% of all, to all others: their values in 32
# bits, and their places in 32 bits.

# %%
of_8 = ask("Sent by each of 8 devices, of its largest 1%")
of_64 = ask("Sent by each of 64 devices, of its largest 1%")

# %% [markdown]
# Now the devices send no gradients. After every 20 steps they average their parameters in 32 bits.
# There are as many parameters as gradients.

# %%
of_rounds = ask("Sent by each of 8 devices for each step, if every 20th is followed by an average")

# %% [markdown]
# The last question is about waiting. A device takes 1 s for a step, but 3 s in one step of 100, at
# random. Devices are late independently of each other.

# %%
of_1000 = ask("Mean time of a step in which 1,000 such devices wait for each other", "seconds")

# %% [markdown]
# ## Implement
#
# ### One step by hand: one bit of each number
#
# How few bits can a gradient have? Here is a whole step that sends one bit for each number, its
# sign. All signs of a device share one scale, which is the mean magnitude of its numbers. Much is
# lost in this way, but it is not lost for good: the device keeps what was lost as an *error*, and
# adds it to its next gradient. This is *error feedback*.
#
# The model is linear with a squared error (least squares), and each device has its own examples, x
# and y.

# %%
D, RATE = 128, 0.05


def loss(w, x, y):
    return ((x @ w - y) ** 2).mean()


def step_by_hand(w, error, x, y):
    own = lax.pcast(w, "dp", to="varying")
    corrected = jax.grad(loss)(own, x, y) + error[0]  # with what was lost in the step before
    scale = jnp.abs(corrected).mean()
    signs = jnp.packbits(corrected >= 0)  # eight in a byte
    all_signs = lax.all_gather(signs, "dp", to="invarying")  # [8, D/8]
    all_scales = lax.all_gather(scale, "dp", to="invarying")[:, None]
    sent = jnp.where(jnp.unpackbits(all_signs, axis=1) == 1, all_scales, -all_scales)
    new_error = corrected - sent[lax.axis_index("dp")]
    return w - RATE * sent.mean(axis=0), new_error[None]


own_rows = P("dp")
specs = (P(), own_rows, own_rows, own_rows)
by_hand = jax.shard_map(step_by_hand, mesh=mesh, in_specs=specs, out_specs=(P(), own_rows))

# %% [markdown]
# ### The library's form: two halves
#
# Our step gathers the signs of all devices, so the bytes that each device sends grow with the
# number of devices. In the library's function they do not: like an all-reduce, it averages one part
# on each device, and then gathers the parts. But a mean of signs is not a sign. So it has to be
# rounded once more before it is gathered, and the device that averages keeps this second error as
# well.

# %%
show(compress.sign_all_reduce)

# %% [markdown]
# The two halves themselves are in `_in_two_halves`, which gets the functions that encode and
# decode. It is not printed here, because it is what you will write in `quantized_all_reduce`, which
# sends 8 or 4 bits. `top_k_all_reduce` is yours to write, too.
#
# In all of these, nothing may get lost: what goes in, plus the old errors, equals what comes out,
# plus the new errors. We check this for the library's function, with random numbers.


# %%
def in_and_out(x, error, second):
    mean, new, new_second = compress.sign_all_reduce(x, error, second, axis="dp", block=16)
    out = mean + lax.all_gather(new_second, "dp", tiled=True) + lax.pmean(new, "dp")
    return lax.pmean(x + error, "dp") + lax.all_gather(second, "dp", tiled=True), out


numbers = np.random.default_rng(0).normal(size=(3, n * D)).astype(np.float32)
args = numbers[0], numbers[1], numbers[2, :D]
checked = jax.shard_map(in_and_out, mesh=mesh, in_specs=(own_rows,) * 3, out_specs=own_rows)
np.testing.assert_allclose(*jax.jit(checked)(*args), rtol=1e-4, atol=1e-5)

# %% [markdown]
# ### Low rank
#
# A gradient that is a matrix can be approximated by the product of two factors, which have few
# columns each. *PowerSGD* sends these factors. It finds them by one step of a power iteration,
# which starts from the right factor of the step before. Both factors are means over the devices, so
# two small all-reduces are enough. Between these, the columns of the left factor are made
# orthogonal.

# %%
show(compress.powersgd_all_reduce)

# %% [markdown]
# ### Local steps
#
# In *local SGD*, each device makes h steps by itself, and has its own state of the optimizer. Then
# the parameters are averaged, so there is one all-reduce in h steps.

# %%
show(local.local_sgd_round)

# %% [markdown]
# *DiLoCo* does not take the mean as it is. It takes the difference between the old parameters and
# the mean as a gradient, and gives it to an *outer* optimizer, which is SGD with Nesterov momentum.
# This is `diloco_round`. `streaming_round` averages a part of the parameters at a time, so that
# they never have to be sent all at once. In `one_peer_average` there is no all-reduce at all: after
# each step, each device takes the mean of its own parameters and those of one other device, which
# is 1 place away, then 2, then 4, and so on. All three are yours to write.
#
# ## Measure
#
# ### What each sends
#
# The inspector counts the bytes of the library's functions, for a matrix of 256 rows and 256
# columns on eight devices. The formulas of `compressed_bytes`, which you will write, also give the
# bytes for 64 devices.

# %%
ROWS, K, BLOCK = 256, 655, 256
N = ROWS * ROWS
zeros = np.zeros(n * N, np.float32)
errors = zeros, zeros[:N]
matrices, factor = zeros.reshape(-1, ROWS), np.zeros((ROWS, 4), np.float32)
coded = partial(compress.quantized_all_reduce, axis="dp", block=BLOCK)
low_rank = partial(compress.powersgd_all_reduce, axis="dp")
programs = {
    "fp32": (partial(lax.pmean, axis_name="dp"), zeros),
    "int8": (partial(coded, bits=8), zeros, *errors),
    "int4": (partial(coded, bits=4), zeros, *errors),
    "sign": (partial(compress.sign_all_reduce, axis="dp", block=BLOCK), zeros, *errors),
    "topk": (partial(compress.top_k_all_reduce, axis="dp", k=K), zeros, zeros),
    "powersgd": (lambda m, q, e: low_rank(m, q, e)[::2], matrices, factor, matrices),
}
sent, rows = {}, []
for scheme, (function, *args) in programs.items():
    takes = tuple(P() if arg is factor else own_rows for arg in args)
    program = jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=own_rows)
    sent[scheme] = inspect(program, *args).wire_bytes_by_axis()["dp",]
    each = partial(compressed_bytes, ROWS, ROWS, scheme=scheme, block=BLOCK, k=K, rank=4)
    assert sent[scheme] == each(n)
    rows.append((scheme, *(round(size) for size in (sent[scheme], each(64)))))
table("Bytes that a device sends", ("scheme", "8 devices", "64 devices"), rows)

# %% [markdown]
# Numbers in 8, 4 or 1 bits cost hardly more on 64 devices than on 8. The largest numbers cost nine
# times as much: each device sends numbers at other places, so they cannot be added up on the way,
# and every device receives those of all. Our step by hand has the same fault, since it gathers the
# signs of all devices.
#
# ### Where feedback helps
#
# We return to least squares. The examples of the devices disagree, so where the mean gradient is 0,
# their own gradients are not. We descend for 800 steps with and without feedback, and ask how far
# the loss stays above its smallest possible value. We call this the *gap*. The picture has the
# first 400 steps.

# %%
random = np.random.default_rng(0)
x = random.normal(size=(128 * n, D)).astype(np.float32)
y = (x @ random.normal(size=D) + 3 * np.repeat(random.normal(size=n), 128)).astype(np.float32)
best = np.linalg.lstsq(x, y)[0]

w, error = jax.jit(by_hand)(np.zeros(D, np.float32), np.zeros((n, D), np.float32), x, y)
gradient = jax.grad(loss)(jnp.zeros(D), x, y)
np.testing.assert_allclose(-w / RATE + error.mean(axis=0), gradient, rtol=1e-3, atol=1e-4)
by_signs = inspect(by_hand, w, error, x, y).wire_bytes_by_axis()["dp",]
assert by_signs == (n - 1) * (D / 8 + 4)


def descend(average, feedback, rate, x, y):
    def step(carry, _):
        w, errors = carry
        gradient = jax.grad(loss)(lax.pcast(w, "dp", to="varying"), x, y)
        mean, *new = average(gradient, *errors)
        w = w - rate * mean
        gap = lax.pmean(((x @ (w - best)) ** 2).mean(), "dp")
        return (w, tuple(new) if feedback else errors), gap

    errors = lax.pcast((jnp.zeros(D), jnp.zeros(D // n)), "dp", to="varying")
    return lax.scan(step, (jnp.zeros(D), errors), length=800)[1]


def exact(gradient, *errors):
    return lax.pmean(gradient, "dp"), *errors


# %%
in_4_bits = partial(compress.quantized_all_reduce, axis="dp", block=16, bits=4)
as_signs = partial(compress.sign_all_reduce, axis="dp", block=16)
tried = {
    "32 bits": (exact, True),
    "4 bits, no feedback": (in_4_bits, False),
    "4 bits, feedback": (in_4_bits, True),
    "signs, no feedback": (as_signs, False),
    "signs, feedback": (as_signs, True),
}
gaps = {}
for name, (average, feedback) in tried.items():
    function = partial(descend, average, feedback)
    specs = (P(), own_rows, own_rows)
    descent = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P()))
    for rate in (RATE, RATE / 4):
        gaps[name, rate] = np.maximum(descent(rate, x, y), 1e-9)

# %% tags=["fold"]
curves = {name: np.log10(gaps[name, RATE][:400]) for name in tried}
axes = "step", "log10 of the gap"
draw("06_feedback", Curves("Loss above its smallest value", *axes, range(400), curves))
ends = {
    name: [float(f"{gaps[name, rate][-1]:.1g}") for rate in (RATE, RATE / 4)]
    for name in tried
    if name != "32 bits"
}
rows = [(name, *(f"{end:g}" for end in both)) for name, both in ends.items()]
table("The gap after 800 steps", ("", f"rate {RATE}", f"rate {RATE / 4}"), rows)

# %% [markdown]
# Without feedback, the loss stops falling at some gap: where the devices disagree, their rounding
# errors do not cancel. In 4 bits, this gap is nearly the same with a quarter of the learning rate.
# (With signs and a quarter of the rate, 800 steps are too few to reach it.) With feedback, a
# quarter of the rate makes the gap more than ten times smaller. This holds for any noise that
# averages out over the steps.
#
# ### On a decoder
#
# What about a language model, and Adam? A decoder of two layers was trained for 480 steps on eight
# devices by each method, from the same parameters and with the same batches. This takes minutes, so
# we read what `python -m benchmarks.losses_for_bytes --write` has measured. The loss is on held-out
# text, which is not trained on.

# %%
found = read_losses()
short = {name: one for name, one in found.items() if one.steps[-1] == 480}
points = {name: (one.bytes_per_step, one.losses[-1]) for name, one in short.items()}
axes = "bytes that a device sends in a step", "held-out loss after 480 steps, nats for each token"
draw("06_losses", Points("Losses for bytes", *axes, points))

# %% tags=["fold"]
of_adam = {name: one.losses[-1] for name, one in short.items()}
held = ceil(Settings(layers=2, d_model=64).parameters / (n * BLOCK)) * n * BLOCK  # full blocks
of_decoder = partial(compressed_bytes, held, 1, n, block=BLOCK, k=round(held / 100), rank=1)
for name, scheme in {
    "data parallel": "fp32",
    "int8, feedback": "int8",
    "int4, feedback": "int4",
    "signs, feedback": "sign",
    "top 1%, feedback": "topk",
}.items():
    assert short[name].bytes_per_step == of_decoder(scheme=scheme)

# %% [markdown]
# Each method ran once, so differences of a few hundredths mean nothing. Larger ones do:
#
# - **Few bits.** Eight bits lose nothing here, and four bits hardly anything, for an eighth of the
#   bytes. PowerSGD, for a tenth of the bytes, loses 0.1.
# - **Feedback does not always help** under Adam. Where the largest 1% are sent, it does: the loss
#   is 2.0 instead of 2.4. Where signs are sent, it hurts: 2.8 instead of 2.3. Feedback repairs sums
#   of gradients, but Adam also divides by the root of their mean square, which the errors enlarge.
#   Therefore 1-bit Adam sends the gradients of the first steps in full, measures the mean square
#   there, and keeps it as it is afterwards (Tang et al. 2021).
# - **Local steps.** Local SGD with rounds of 8 steps loses 0.22, for an eighth of the bytes. With
#   rounds of 24 steps it loses 0.34, for a 24th of the bytes.
# - **One peer.** It sends more than half as much as an all-reduce, and loses 0.15. What it saves is
#   not bytes but waiting, since each device waits for one other only. An average with both
#   neighbours on a ring, in each step, sends 1.14 times as much as an all-reduce, and loses 0.17.
#
# ### DiLoCo's momentum needs many rounds
#
# Douillard et al. 2023 found an outer learning rate of 0.7 with a momentum of 0.9 very robust
# (section 3.1). Here, these end at a loss of 2.57 after 60 rounds, where a plain average ends at
# 1.94. A momentum of 0.5 ends at 1.90, and at 2.00 with a rate of 1. A momentum of 0.9 with a rate
# of 0.4 ends at 2.31. With a momentum of 0.9, an outer step adds up what the devices did in about
# ten rounds, times 0.7, so the parameters run far ahead of where the devices agree. The paper's
# runs had 128 rounds of 500 steps, after 24,000 steps of ordinary training. Without those 24,000
# steps, but with more rounds, they ended nearly as well. Our runs start from random parameters. We
# let some of them go on for 1,920 steps.

# %%
rounds = {name.removesuffix(", long"): one for name, one in found.items() if "long" in name}
steps = rounds["DiLoCo, 8 steps"].steps
shown = {name: one.losses for name, one in rounds.items()}
draw("06_rounds", Curves("Rounds of local steps", "step", "held-out loss", steps, shown))

# %% tags=["fold"]
behind = np.subtract(shown["DiLoCo, 8 steps"], shown["local SGD, 8 steps"])
assert round(behind[steps.index(480)], 2) == 0.63
assert steps[-1] == 8 * 240 and round(behind[-1], 2) == 0.29
ahead = np.subtract(shown["local SGD, 8 steps"], shown["DiLoCo, 8 steps, momentum .5"])
assert ahead[-1] > 0 and round(max(ahead[steps.index(288) :]), 2) == 0.05

# %% tags=["fold"]
data_parallel = of_adam["data parallel"]
assert abs(of_adam["int8, feedback"] - data_parallel) < 0.03
assert 0 < of_adam["int4, feedback"] - data_parallel < 0.03
assert round(of_adam["PowerSGD, rank 4, feedback"] - data_parallel, 1) == 0.1
assert round(of_adam["top 1%, feedback"], 1) == 2.0
assert round(of_adam["top 1%, no feedback"], 1) == 2.4
assert round(of_adam["signs, feedback"], 1) == 2.8
assert round(of_adam["signs, no feedback"], 1) == 2.3
assert round(of_adam["local SGD, 8 steps"] - data_parallel, 2) == 0.22
assert round(of_adam["local SGD, 24 steps"] - data_parallel, 2) == 0.34
assert round(of_adam["one peer"] - data_parallel, 2) == 0.15
assert 0.5 < short["one peer"].bytes_per_step / short["data parallel"].bytes_per_step < 0.6
assert round(of_adam["DiLoCo, 8 steps"], 2) == 2.57
assert round(of_adam["local SGD, 8 steps"], 2) == 1.94
assert round(of_adam["DiLoCo, 8 steps, momentum .5"], 2) == 1.90
assert round(of_adam["DiLoCo, 8 steps, rate 1, momentum .5"], 2) == 2.00
assert round(of_adam["DiLoCo, 8 steps, rate .4"], 2) == 2.31
assert round(of_adam["both neighbours"] - data_parallel, 2) == 0.17
neighbours = short["both neighbours"].bytes_per_step / short["data parallel"].bytes_per_step
assert round(neighbours, 2) == 1.14

# %% [markdown]
# With a momentum of 0.9, DiLoCo catches up, but slowly: it is 0.63 behind the plain average after
# 60 rounds, and 0.29 after 240. With a momentum of 0.5 it is ahead, by 0.05 at most. From a small
# model and a short run, we conclude no more than this: begin with plain averages or a small outer
# momentum, and use a large one where there are hundreds of rounds for it.
#
# ### Who waits
#
# Bytes are not all that takes time. Devices that wait for each other are as slow as the slowest
# one. With 100 workers, Chen et al. 2016 had all gradients within 2 seconds in only 30% of the
# steps. If workers are late independently of each other, each is late in 1.2% of its steps. We
# simulate workers that take 1 s for a step, or 2 s and more when they are late. How late they are
# has a heavy tail, which is an assumption. (Chen et al. waited up to 310 s.) At first the workers
# send nothing. We compare three things: steps in which all wait for all, rounds of 20 local steps,
# and steps that leave out the last 2% of the workers. (A mean without these is `mean_of_arrived`,
# which is yours to write.)

# %%
LATENCY, FEW = 50e-3, {"waits_for": 0.98}
at_once = Link(latency_seconds=0, bytes_per_second=1)
rows = []
for workers in (64, 256, 1024, 4096, 10_000):
    fleet = Fleet(workers, at_once)
    times = [step_seconds(fleet, 0, **how) for how in ({}, {"local_steps": 20}, FEW)]
    rows.append((workers, *(round(time, 1) for time in times)))
heads = "workers", "all, every step", "all, every 20 steps", "98%, every step"
table("Mean seconds of a step", heads, rows)
assert rows[-1][1] > 120 and rows[-1][3] == 1.0

# %% [markdown]
# With 10,000 workers some are always late, and on average all wait more than two minutes for the
# last of them. Local steps help less than one would think: a late step is only one of 20, but a
# round has 20 times as many steps that can be late. If the last 2% are left out, nobody waits for
# long, and 2% of the examples are lost. (With 64 workers the last 2% are one worker, and sometimes
# two are late.)
#
# Over the internet workers also wait for slow lines. The averages of INTELLECT-1 took five times as
# long across continents as inside one country (Jaghouar et al. 2024), so we let the fastest of
# all lines be five times as fast as the slowest. The workers train a billion parameters.

# %%
BILLION, CODES = 4e9, 1e9 * (1 + 4 / 256)  # bytes of a billion numbers, in 32 and in 8 bits
ROUND = {"local_steps": 100, "rounds": 4}
rows = []
for gigabits in (0.1, 1, 10):
    for workers in (64, 1024, 10_000):
        fleet = Fleet(workers, Link(LATENCY, gigabits * 1e9 / 8))
        times = [step_seconds(fleet, size) for size in (BILLION, CODES)]
        times += [step_seconds(fleet, CODES, **how) for how in (FEW, ROUND, ROUND | FEW)]
        rows.append((gigabits, workers, *(round(time, 1) for time in times)))
heads = "Gb/s", "workers", "32 bits", "8 bits", "8 bits, 98%"
table(
    "Mean seconds of a step that computes for 1 s",
    (*heads, "8 bits, every 100", "8 bits, 98%, every 100"),
    rows,
)
at_home = {workers: times for gigabits, workers, *times in rows if gigabits == 0.1}
assert at_home[10_000][0] > 1000 and at_home[64][4] < at_home[10_000][4] < 5

# %% [markdown]
# On lines of 100 Mb/s bytes decide, however many workers there are; on 10 Gb/s late workers do.
# Each answer helps against its own kind of waiting, and only all three together, few bits, local
# steps and no wait for the last, bring 10,000 home workers below 5 s for a step.
#
# ### Who does not wait
#
# An asynchronous server waits for nobody (lesson 05). Its price was staleness: with n equal workers
# each gradient is n-1 updates old. How much does that cost? On a parabola of curvature 1, gradient
# descent converges up to a learning rate of 2. With gradients that are s updates old, it converges
# up to a rate of 2 sin(pi / (4 s + 2)) (Levin and May 1976). We let lesson 05's `stale_server` try
# rates a tenth below this limit, and a tenth above it.


# %%
def ends_at(rate, staleness, steps):
    def update(w, gradient):
        return w - rate * gradient

    def parabola(w, batch):
        return w**2 / 2 + batch

    return stale_server(parabola, 1.0, jnp.zeros(steps), update, staleness=staleness)[0]


rows = []
for staleness in (0, 1, 7, 63):
    limit = 2 * sin(pi / (4 * staleness + 2))
    ends = [float(abs(ends_at(part * limit, staleness, 8000))) for part in (0.9, 1.1)]
    assert ends[0] < 0.01 and not ends[1] < 100
    rows.append((staleness + 1, staleness, round(limit, 4)))
table("The largest learning rate", ("workers", "staleness", "rate"), rows)
assert limit < 0.025 and 64 * limit < 2

# %% [markdown]
# While one of 64 workers computes a gradient, there are 64 updates, but with rates below 0.025.
# Together they go less far than one synchronous step with a rate of 2. So, on this parabola,
# staleness takes back what is gained by not waiting. Local steps have no staleness: between two
# averages nobody waits, and all that is averaged is equally old.
#
# ## Compare

# %%
of_numbers = 2 * (n - 1) / n * N
parts = {"codes": of_numbers, "scales": of_numbers * 4 / BLOCK}
in_8_bits.compare(sent["int8"], parts)
halves = {"values": sent["topk"] / 2, "places": sent["topk"] / 2}
of_8.compare(sent["topk"], halves)
largest = compressed_bytes(ROWS, ROWS, 64, scheme="topk", block=BLOCK, k=K, rank=4)
of_64.compare(largest, {"values": largest / 2, "places": largest / 2})
of_rounds.compare(sent["fp32"] / 20)
one_is_late = 1 - 0.99**1000
of_1000.compare(1 + 2 * one_is_late, {"without late ones": 1, "waiting": 2 * one_is_late})

# %% [markdown]
# So the three answers have three prices. Few bits save a factor of 4 to 28 here, and make the loss
# worse where they are very few. Local steps can save any factor, and make the loss worse, too. Both
# can be combined, since an average of parameters can also be sent in few bits. Leaving out the last
# devices costs their examples.
#
# ## On real hardware
#
# ### Over the internet
#
# How many seconds does it take to average a billion parameters, for each step? The table has them
# for lines of 100 Mb/s to 10 Gb/s with a latency of 50 ms (assumed), and for an all-reduce of 2
# log2 n messages (Thakur et al. 2005, section 4).

# %%
rows = []
for gigabits in (0.1, 1, 10):
    for workers in (64, 10_000):
        sites = Sites(workers, Link(LATENCY, gigabits * 1e9 / 8))
        ways = (Way(scheme, steps) for steps in (1, 100) for scheme in ("fp32", "int8"))
        times = (averaging(10**9, sites, way).value for way in ways)
        rows.append((gigabits, workers, *(round(time, 2) for time in times)))
heads = "Gb/s", "workers", "32 bits", "8 bits", "32 bits, every 100 steps", "8 bits, every 100"
table("Seconds of averaging for each step", heads, rows)

# %% [markdown]
# From 64 to 10,000 workers, the bytes that each worker sends hardly grow, and its messages grow
# only from 12 to 28. A home line of 100 Mb/s needs ten minutes for an average in 32 bits, but with
# 100 local steps and 8 bits 1.6 s for each step.
#
# ### When local steps beat data parallelism
#
# A step in which fewer bytes travel is shorter, but more steps may be needed. How many more, our
# decoder tells: how long does each method take to the loss that data parallelism has after 480
# steps? Codes of 8 bits take as many steps.

# %%
LOCAL = {
    "local SGD, 8 steps": Way("fp32", 8),
    "local SGD, 24 steps": Way("fp32", 24),
    "DiLoCo, 8 steps, momentum .5": Way("fp32", 8),
    "DiLoCo, 8 steps": Way("fp32", 8),
}
needed = {name: rounds[name].steps_to(data_parallel) / 480 for name in LOCAL}
assert needed["DiLoCo, 8 steps"] == float("inf")
rows = [(name, f"{times:.2f}" if times < 10 else "above 4") for name, times in needed.items()]
table("Steps to the same loss, times those of data parallelism", ("", "times"), rows)

# %% [markdown]
# Now two places: two home machines with a GPU each, which train the smallest GPT-2, and four data
# centres of 64 H100 each, which train Llama 3 8B. The planner finds the best plan of one of them
# (lesson 19), and how long its step takes. We add what they average over lines of several speeds,
# multiply by the steps that are needed, and divide by the time of data parallelism.

# %%
places = {
    "2 homes": (Job(gpt2, home, 1, 64, 1024), 2, (0.1, 1, 10)),
    "4 centres": (
        Job(find_model("llama3-8b"), find_cluster("h100"), 64, 256, 8192), 4, (1, 10, 100)
    ),
}  # fmt: skip
beat = {"int8, every step": (Way("int8"), 1.0)}
beat |= {name: (way, needed[name]) for name, way in LOCAL.items() if needed[name] < 10}
rows, found_times = [], {}
for place, (job, count, speeds) in places.items():
    seconds, parameters = explore(job, {}).plans[0].step_seconds, job.architecture.parameters
    for gigabits in speeds:
        sites = Sites(count, Link(LATENCY, gigabits * 1e9 / 8))
        plain = seconds + averaging(parameters, sites, EVERY_STEP).value
        times = [
            (seconds + averaging(parameters, sites, way).value) * more / plain
            for way, more in beat.values()
        ]
        fewest = fewest_local_steps(seconds, plain - seconds, needed=needed["local SGD, 8 steps"])
        found_times[place, gigabits] = dict(zip(beat, times, strict=True))
        shown_steps = "never" if fewest == float("inf") else ceil(fewest)
        rows.append((place, gigabits, *(round(time, 2) for time in times), shown_steps))
heads = "sites", "Gb/s", "int8", "local 8", "local 24", "DiLoCo .5"
table("Time to the same loss, of data parallelism's", (*heads, "h from"), rows)

# %% tags=["fold"]
every, local_8, local_24, _ = beat
assert all(times < 0.6 for times in found_times["2 homes", 1].values())
for times in (found_times["2 homes", 0.1], found_times["4 centres", 1]):
    assert times[local_24] < times[local_8] < times[every]
for times in (found_times["2 homes", 1], found_times["4 centres", 100]):
    assert min(times, key=times.get) == every
assert found_times["2 homes", 10][every] < 1 < found_times["2 homes", 10][local_8]
assert needed["local SGD, 8 steps"] < 1.7

# %% [markdown]
# The last column says from how many local steps on they win, if they need 1.7 times as many steps.
# Where averaging takes many times as long as computing, local steps win, and more of them win by
# more. Where it takes a few times as long, or as long, 8 bits in every step are better, since they
# lose nothing; and between two homes with 10 Gb/s local steps lose. With an outer momentum of 0.9
# DiLoCo never wins here. How many more steps are needed depends on the run: where this is less, as
# the paper reports of a model that was trained before, local steps win sooner. `jaxpar plan --sites
# 2 --line 1` computes the times for any model, and how many times as many steps each way may need.
#
# - **INTELLECT-1**, a model of 10 billion parameters, was trained in this way by up to 14 nodes on
#   three continents, with 100 local steps and averages sent in 8 bits. It sent 400 times fewer
#   bytes than data parallelism, and the nodes computed for 83% to 96% of the time (Jaghouar et al.
#   2024).
# - **Streaming DiLoCo** averages a part of the parameters at a time, in 4 bits, while the devices
#   compute the next steps (Douillard et al. 2025). `streaming_round` does this without the overlap,
#   which simulated devices cannot show.
# - **Errors take memory**, 4 bytes for each parameter on each device. ZeRO cannot shard them over
#   dp, because each device has its own.
# - **Inside a data centre**, ZeRO++ sends parameters in 8 bits and gradients in 4 bits, and each
#   node holds all parameters once more. So between nodes it sends a quarter of the bytes of ZeRO-3
#   (Wang et al. 2023).
# - **DeMo** (Peng, Quesnelle and Kingma 2024) sends the largest numbers of a cosine transform of
#   the momentum, and keeps the rest on the device.
# - **Try it:** `jaxpar train --mesh dp=8 --compress int8` or `--compress powersgd=4`, or
#   `--sync-every 10`, with `--outer nesterov` for DiLoCo and `--compress int4` for averages in 4
#   bits.
#
# ## Exercises

# %%
exercises("06")

# %% [markdown]
# ## On paper
#
# 1. Four data centres train Llama 3 8B (8.03 billion parameters) as replicas. Each has a line of 10
#    Gb/s to the others, and computes a step in 10 s. How long does an average in 32 bits take, and
#    how long does one in 8 bits with blocks of 256? From how many local steps on does the average
#    in 32 bits take at most a tenth of the time?
#
# <details><summary>Answer</summary>
#
# A data centre sends 2 times 3/4 of 32.1 GB, which is 48.2 GB and takes 38.5 s. In 8 bits a number
# takes 1 + 4/256 bytes, so it sends 12.2 GB in 9.8 s. The average takes a tenth of the time if the
# steps take nine times as long as the average, 347 s: from 35 steps on.
#
# </details>
#
# 2. A matrix of an MLP of GPT-3 has 12,288 rows and 49,152 columns. How many bytes does each of 64
#    devices send for its gradient in float32, and how many with PowerSGD of rank 32? How much
#    memory does error feedback take for it?
#
# <details><summary>Answer</summary>
#
# In float32 a device sends 2 times 63/64 of 2.416 GB, which is 4.756 GB. PowerSGD sends factors of
# 12,288 and 49,152 rows with 32 columns, which take 7.864 MB. That is 15.48 MB in the two
# all-reduces, 307 times less. The error is as large as the gradient, 2.416 GB on each device.
#
# </details>
#
# 3. Each device sends its largest 1% to all others, values and places in 32 bits each. From how
#    many devices on is this more than an all-reduce in float32? And more than in 8 bits, with
#    blocks of 256?
#
# <details><summary>Answer</summary>
#
# For N numbers, a device sends (n-1) times 0.08 N bytes of the largest, and 2 (n-1)/n times 4 N
# bytes in an all-reduce. These are equal if 0.08 = 8/n, so from 101 devices on the largest are
# more. In 8 bits, 4 N becomes 1.016 N, and 26 devices are enough.
#
# </details>
#
# ## Sources
#
# Alistarh et al. 2017, *QSGD*. Assran et al. 2019, *Stochastic Gradient Push*. Chen et al. 2016,
# *Revisiting Distributed Synchronous SGD*. Dettmers et al. 2022, *8-bit Optimizers via Block-wise
# Quantization*. Douillard et al. 2023, *DiLoCo*. Douillard et al. 2025, *Streaming DiLoCo*.
# Jaghouar et al. 2024, *INTELLECT-1 Technical Report*. Karimireddy et al. 2019, *Error Feedback
# Fixes SignSGD* (algorithm 1). Levin and May 1976, *A Note on Difference-Delay Equations*. Lin et
# al. 2020, *Don't Use Large Mini-Batches, Use Local SGD*. Peng, Quesnelle and Kingma 2024, *DeMo:
# Decoupled Momentum Optimization*. Seide et al. 2014, *1-Bit Stochastic Gradient Descent*. Stich
# 2019, *Local SGD Converges Fast and Communicates Little*. Stich, Cordonnier and Jaggi 2018,
# *Sparsified SGD with Memory*. Tang et al. 2019, *DoubleSqueeze*. Tang et al. 2021, *1-bit Adam*.
# Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
# MPICH*. Vogels, Karimireddy and Jaggi 2019, *PowerSGD*. Wang et al. 2023, *ZeRO++*. Ying et al.
# 2021, *Exponential Graph is Provably Efficient for Decentralized Deep Training*.
#
# | here | PyTorch | others |
# |---|---|---|
# | low rank | DDP hook `powerSGD_hook` | - |
# | signs | - | DeepSpeed: `OneBitAdam`, `ZeroOneAdam` |
# | 8 and 4 bits | hook `quantization_perchannel_hook` | DeepSpeed: `zero_quantized_gradients` |
# | local steps | `PeriodicModelAverager`, `post_localSGD_hook` | OpenDiLoCo, torchft: `DiLoCo` |
# | one peer | - | BlueFog: `neighbor_allreduce` |
