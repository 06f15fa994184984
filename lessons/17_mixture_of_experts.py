# %% [markdown]
# # Lesson 17: mixture of experts
#
# A larger model learns more. But each token goes through all of its parameters, so each token also
# costs more. A *mixture of experts* (MoE) has the parameters without that cost. In place of one
# MLP, a layer has several, the *experts*, and a small matrix, the *router*, chooses a few of them
# for each token. Mixtral 8x7B has 46.7 billion parameters, of which a token uses 12.9. DeepSeek-V3
# has 671 billion, of which a token uses 37.6. (Its report says 37, which is the number without the
# table of embeddings.)
#
# The compute is that of a small model, but the memory is that of a large one. So each device of an
# axis `ep` gets some of the experts. This is *expert parallelism*. The same axis splits the batch.
# Therefore a token is on one device, and its experts are mostly on other ones. Nobody knows on
# which ones before the router has chosen. This is the first technique of the course in which the
# data decide what travels where.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, vary

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar import experts
from jaxpar.cost import flops, traffic
from jaxpar.cost.experts import dispatch_bytes, expert_capacity
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.zero import ADAM_MIXED
from jaxpar.course.lesson import exercises as to_write
from jaxpar.course.lesson import show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect
from jaxpar.layout import Layout
from jaxpar.parallel import expert
from jaxpar.parallel.exchange import moe_exchange
from jaxpar.schedules import overlap
from jaxpar.train.text import read_library

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
rng = np.random.default_rng(0)
mixtral, deepseek = find_model("mixtral-8x7b"), find_model("deepseek-v3")

# %% tags=["fold"]
sizes = [(model.parameters, model.active_parameters) for model in (mixtral, deepseek)]
assert [[round(count / 1e9, 1) for count in pair] for pair in sizes] == [[46.7, 12.9], [671, 37.6]]

# %% [markdown]
# ## The idea in one picture
#
# Four devices have four tokens each, and one expert each. Each token chooses one expert. Array
# shapes are fixed before the router chooses, so each expert has a fixed number of rows for the
# tokens of each device. This number is its *capacity*, here 2. If more than two tokens of a device
# choose the same expert, the first two get the rows, and the others are *dropped* (x): the layer
# adds nothing to them, and the residual connection passes them on unchanged. Then an all-to-all
# sends all rows to the devices of their experts, and the empty rows (-) travel with them.

# %% tags=["fold"]
four, room = np.arange(4), 2
chosen = np.array([[0, 1, 0, 2], [0, 0, 3, 0], [1, 2, 0, 3], [0, 0, 0, 1]])  # by device and token
before, owners, after = [], [], np.full((4, 4, room), "-", object)
for device, picks in enumerate(chosen):
    slots = np.asarray(experts.assign_slots(jnp.array(picks)[:, None], count=4, capacity=room))[
        :, 0
    ]
    dropped = slots == 4 * room
    cells = np.full((4, 4), ".", object)
    cells[four, picks] = np.where(dropped, "x", [f"t{token}" for token in four])
    before.append(cells)
    kept = (picks[:, None] == four) & ~dropped[:, None]
    owners.append(np.where(kept, four, NOBODY))
    for token, slot in enumerate(slots):
        if not dropped[token]:
            after[slot // room, device, slot % room] = f"t{token}"
whose = [np.where(rows == "-", NOBODY, four[:, None]) for rows in after]
names = [f"device {i}, expert {i}" for i in four]
title = "Before: a row is a token, a column the expert that it chose; a letter names its device"
first = panel(title, before, owners)
title = "After: what each expert has received, a row from each device; letters as above"
draw(
    "17_tokens",
    Panels("16 tokens and four experts", [first, panel(title, list(after), whose, names=names)]),
)
assert [int((cells == "x").sum()) for cells in before] == [0, 1, 0, 1]
assert (after == "-").sum() == 4 * 4 * room - 14 == 18
assert np.bincount(chosen.ravel()).tolist() == [9, 3, 2, 2]

# %% [markdown]
# Two tokens are dropped, and yet 18 of the 32 rows are empty, since expert 0 was chosen 9 times and
# expert 3 only twice. More capacity would drop fewer tokens, but send more empty rows. What helps
# against both is *balance*, which means that all experts are chosen about equally often.
#
# ## Predict
#
# A layer has 8 experts on `ep=4`. Each device has 64 tokens of 32 numbers, and each token goes to 2
# experts, which are gated MLPs (three matrices) with hidden size 64. All is float32. The capacity
# is 1.25 times what is needed if all experts are chosen equally often. This 1.25 is the *capacity
# factor*.

# %%
rows_asked = ask("Rows that an expert has for the tokens of one device", "count")
held = ask("Bytes of experts' matrices that a device holds")
exchanged = ask("Bytes that a device sends for all rows by all-to-alls, there and back")

# %% [markdown]
# There is another way, in which nothing is dropped. Every device *gathers* the tokens of all
# devices. For each choice that a token has made, it also gathers the expert's number and the weight
# of the expert's result (4 bytes each). Then it computes the results of its own experts for these
# tokens. A reduce-scatter adds up the results of all devices, and returns to each device the sums
# for its own tokens. Which way sends less depends on the number of choices k, on the capacity
# factor, and on the number of devices.

# %%
gathered = ask("Bytes that a device sends for the gather and the reduce-scatter")
border = ask("Of 2, 4 and 8 devices: the fewest with which the all-to-alls send less", "count")

# %% [markdown]
# ## Implement
#
# ### Who chooses whom
#
# The router has a column for each expert, and gives each token a *score* for each of them: the
# softmax of `x @ router`, or the sigmoid of each number (DeepSeek-V3). In *token choice*, each
# token goes to the k experts with the best scores. Their results are added up with weights, which
# are the chosen scores divided by their sum. The choice itself has no derivative, so the router
# learns through the weights. Mixtral and DeepSeek use token choice. `route` and `moe_token_choice`
# do it in the library, and you will write them. DeepSeek's models also have *shared experts*, which
# are an MLP that every token goes through, beside the experts that it has chosen.
#
# In *expert choice* it is the other way round: each expert fills its rows with the tokens that have
# the best scores for it. So no row is empty, and no expert has more to do than another. But whether
# a token is taken depends on the tokens after it, and these do not exist yet when a decoder
# generates text. Both kinds send buffers of the same shape, and expert choice needs less code. So
# this is the one that we write by hand.
#
# ### One step by hand
#
# A device has a buffer `[e, c, d]`: for each of the e experts, c rows of d numbers. The first
# all-to-all cuts dim 0 into n parts, one for each device, and joins what arrives along dim 1. Then
# each of the e/n experts of a device has the rows from all n devices: `[e/n, n*c, d]`. The second
# all-to-all does the opposite. (Many call the first one *dispatch*, and the second one *combine*.)
# The gradient of an all-to-all is the all-to-all in the other direction, so the backward pass sends
# as much as the forward pass.
#
# The gradients of the experts need no all-reduce, since the tokens of *all* devices came to them.
# The router is replicated, and each device computes a part of its gradient from its own tokens. So
# these parts are summed over ep. (Lesson 18 makes a rule of this.) In the code, `vary` is the cast
# of lesson 02, `lax.pcast`. Without it, JAX would insert the sum by itself.

# %%
mesh, RATE = make_mesh("ep=4"), 0.5
n, e, k, t, d, f = 4, 8, 2, 64, 32, 64
capacity = expert_capacity(t, experts=e, top_k=k, capacity_factor=1.25)
SPECS = {"router": P(), "gate": P("ep"), "up": P("ep"), "down": P("ep")}


def layer(w, x):  # x: this device's tokens, [t, d]; w: the router and this device's experts
    scores = jax.nn.softmax(x @ w["router"])  # [t, e]
    best, tokens = lax.top_k(scores.T, capacity)  # [e, c]: for each expert, its best tokens
    rows = lax.all_to_all(x[tokens], "ep", 0, 1, tiled=True)  # [e/n, n*c, d]
    hidden = jax.nn.silu(rows @ w["gate"]) * (rows @ w["up"])
    y = lax.all_to_all(hidden @ w["down"], "ep", 1, 0, tiled=True)  # [e, c, d]
    return jnp.zeros_like(x).at[tokens].add(y * best[..., None])


def step(w, x, target):
    def part_of_loss(w):
        return jnp.mean((x + layer(w, x) - target) ** 2) / n

    local = w | {"router": vary(w["router"], ("ep",))}  # its gradient stays this device's part
    part, found = jax.value_and_grad(part_of_loss)(local)
    found |= {"router": lax.psum(found["router"], "ep")}
    return jax.tree.map(lambda w, g: w - RATE * g, w, found), lax.psum(part, "ep")


# %%
shapes = {"router": (d, e), "gate": (e, d, f), "up": (e, d, f), "down": (e, f, d)}
weights = {name: rng.normal(size=s).astype("f") / s[-2] ** 0.5 for name, s in shapes.items()}
x, target = rng.normal(size=(2, n * t, d)).astype("f")
given = (SPECS, P("ep"), P("ep"))
by_hand = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=given, out_specs=(SPECS, P())))
updated, loss = by_hand(weights, x, target)


def on_one_device(w, x, target):
    def of_group(x):  # one device's tokens: an expert takes as many of each device
        scores = jax.nn.softmax(x @ w["router"])
        best, tokens = lax.top_k(scores.T, capacity)
        y = experts.apply_experts(x[tokens], w["gate"], w["up"], w["down"])
        return x + jnp.zeros_like(x).at[tokens].add(y * best[..., None])

    y = jax.vmap(of_group)(x.reshape(n, t, d)).reshape(x.shape)
    return jnp.mean((y - target) ** 2)


right, gradients = jax.value_and_grad(on_one_device)(weights, x, target)
print(f"loss {loss:.6f}, one device {right:.6f}\n")

# %% tags=["fold"]
np.testing.assert_allclose(loss, right, rtol=1e-5)
for name, w in weights.items():
    np.testing.assert_allclose(updated[name], w - RATE * gradients[name], rtol=1e-4, atol=1e-5)

# %% [markdown]
# ### The library's form

# %%
show(expert.expert_choice)

# %% [markdown]
# ### Without a capacity
#
# After a gather, a device sorts the choices of its own experts, expert after expert. So it has a
# group of rows for each expert, to be multiplied by that expert's matrix. The sizes of the groups
# are known only when the program runs. To multiply every row by every matrix, and then mask what is
# not needed, would be e times the work. MegaBlocks (Gale et al. 2022) instead pads each group to
# full *blocks* of rows. Then all rows of a block are multiplied by the same matrix. For t rows and
# any sizes of the groups, at most t/block + e blocks are needed. `grouped_matmul` does this, and
# `moe_dropless` calls it. Both are exercises. Here are the FLOPs of one product for the 512 choices
# of our 256 tokens.

# %%
choices = n * t * k
x_rows, w_all = np.zeros((choices, d), "f"), np.zeros((e, d, f), "f")
ways = {
    "every row by every expert": lambda x, w, sizes: jnp.einsum("td,edf->etf", x, w),
    "lax.ragged_dot, on a CPU": lax.ragged_dot,
    "capacity factor 1.25": lambda x, w, sizes: jnp.zeros((e, choices * 5 // 4 // e, d)) @ w,
    "blocks of 16 rows": partial(experts.grouped_matmul, block=16),
}
even = jnp.full(e, choices // e)
flops_of = {name: inspect(way, x_rows, w_all, even).flops for name, way in ways.items()}

# %% tags=["fold"]
least = 2 * choices * d * f
rows = [(name, count, round(count / least, 2)) for name, count in flops_of.items()]
table("One product of 512 choices", ("way", "FLOPs", "times the least"), rows)
assert [row[2] for row in rows] == [8, 8, 1.25, round((choices + e * 15) // 16 * 16 / choices, 2)]

# %% [markdown]
# ### Balance
#
# An expert that the router prefers is trained more. So it gets better, and the router prefers it
# even more. There are two common remedies.
#
# The first one is an *auxiliary loss* (Switch Transformer), `e * sum(f * p)`. For each expert, f is
# the fraction of all choices that fall on it, and p is its mean score over all tokens. If the load
# is even, this loss is 1. f is a count, and has no gradient. The gradient with respect to p is `e *
# f`, so training lowers the scores of the busiest experts most. The loss is multiplied by a small
# coefficient, and added to that of the model.
#
# The second one is a *bias* for each expert (DeepSeek-V3). It is added to the scores where experts
# are chosen, but not where their results are weighted. After each step, the bias of each expert
# whose load was below the mean is raised by a small fixed number, and that of each expert above the
# mean is lowered by it. So no second loss disturbs the model. (DeepSeek-V3 also keeps an auxiliary
# loss with a tiny coefficient, against sequences that choose few experts.)
#
# Both need the load of the tokens of *all* devices. `load_balance_loss` and `update_expert_bias`
# are yours to write. Many models have one more loss for the router, the *z-loss*. It keeps the
# logits small, because large ones are rounded coarsely in 16 bits:

# %%
show(expert.router_z_loss)

# %% [markdown]
# ## Measure
#
# ### What is sent
#
# This is the layer of the questions, with the library's functions.

# %%
ep = P("ep")
matrices = (weights["gate"], weights["up"], weights["down"])
routed = experts.route(x, weights["router"], top_k=k)
arguments = (x, routed.weights, routed.experts, *matrices)


def counted(function, devices=n, **how):
    """What a device sends forward."""
    specs = {"in_specs": (ep,) * 6, "out_specs": ep, "mesh": make_mesh(f"ep={devices}")}
    program = jax.jit(jax.shard_map(partial(function, axis="ep", **how), **specs))
    report = inspect(program, *arguments)
    return sum(one.total_wire_bytes for one in report.collectives), report


by_exchange, report = counted(expert.moe_token_choice, capacity=capacity)
by_gather, _ = counted(expert.moe_dropless, block=16)
rows_asked.compare(capacity)
held.compare(sum(w.nbytes for w in matrices) / n)
one_way = (n - 1) / n * e * capacity * d * 4
exchanged.compare(by_exchange, {"rows to experts": one_way, "results": one_way})
sums = (n - 1) * t * d * 4
gathered.compare(by_gather, {"tokens": sums, "weights, numbers": (n - 1) * t * k * 8, "sums": sums})

# %% [markdown]
# ### What is dropped
#
# A device has 512 tokens. How many of their choices find no row? One router chooses at random, and
# all experts are equally likely. The other one mildly prefers some experts: it adds a fixed offset
# to the logits of each expert, drawn from a normal distribution with a standard deviation of 0.5.

# %%
FACTORS = [1, 1.25, 1.5, 2, 3, 4]
TOKENS = 512


def dropped_percent(count, top_k, deviation):
    """For each capacity factor, the percentage of choices without a row."""
    offsets = deviation * rng.normal(size=count)
    logits = rng.gumbel(size=(TOKENS, count)) + offsets[None]
    picks = jnp.asarray(np.argsort(-logits, axis=1)[:, :top_k])
    found = []
    for factor in FACTORS:
        room = expert_capacity(TOKENS, experts=count, top_k=top_k, capacity_factor=factor)
        slots = experts.assign_slots(picks, count=count, capacity=room)
        found.append(100 * float((slots == count * room).mean()))
    return found


curves = {
    f"{count} experts, {top_k} chosen, {name}": dropped_percent(count, top_k, deviation)
    for count, top_k in ((8, 2), (64, 6))
    for name, deviation in (("even", 0), ("preferred", 0.5))
}

# %%
draw("17_dropped", Curves("Choices that are dropped", "capacity factor", "%", FACTORS, curves))

# %% tags=["fold"]
for name, percent in curves.items():
    assert percent == sorted(percent, reverse=True)
    assert 10 < percent[1] < 12 and 0 < percent[3] < 2 if "preferred" in name else percent[1] < 1

# %% [markdown]
# Where the load is uneven by chance only, a factor of 1.25 is enough: less than 1% of the choices
# are dropped. But once the router has preferences, the same factor drops 10 to 12%, and even a
# factor of 2 drops some. So a capacity works only if something keeps the load in balance.
#
# ### Load over training
#
# A small model learns to predict the next byte of real text (the sources of Python's library) from
# the three bytes before it, with 8 experts on `ep=4`, 2 for each token, and a capacity factor of
# 1.5. It is trained three times: with nothing for balance, with the loss, and with the bias.

# %%
STEPS, BATCH, BALANCE = 100, 256, {"none": (0, 0), "loss": (0.1, 0), "bias": (0, 0.01)}
room = expert_capacity(BATCH // n, experts=e, top_k=k, capacity_factor=1.5)
text = np.asarray(read_library()[:400_000])
at = rng.integers(3, len(text), (STEPS, BATCH))
ids, targets = np.stack([text[at - i] for i in (1, 2, 3)], -1).astype("i"), text[at].astype("i")
outer = {"table": (256, d), "mix": (3 * d, d), "head": (d, 256)}
start = weights | {name: rng.normal(size=s).astype("f") / d**0.5 for name, s in outer.items()}
LAID = SPECS | dict.fromkeys(outer, P())


def model_loss(w, bias, ids, target, coefficient):
    x = w["table"][ids].reshape(len(ids), -1) @ w["mix"]
    to = experts.route(x, w["router"], bias, top_k=k)
    expert_weights = (w["gate"], w["up"], w["down"])
    routes = (to.weights, to.experts, *expert_weights)
    logits = (x + expert.moe_token_choice(x, *routes, capacity=room, axis="ep")) @ w["head"]
    chosen = jnp.take_along_axis(logits, target[:, None], axis=1)[:, 0]
    error = (jax.nn.logsumexp(logits, axis=1) - chosen).mean()
    balance = expert.load_balance_loss(to.scores, to.experts, axis="ep")
    return (error + coefficient * balance) / n, (error, to.experts)


# %%
def trained(w, ids, targets, coefficient, rate):
    def one(carry, batch):
        w, bias = carry
        local = {name: vary(leaf, ("ep",)) for name, leaf in w.items()}
        grad = jax.grad(model_loss, has_aux=True)
        found, (error, picks) = grad(local, bias, *batch, coefficient)
        found = {k: g if LAID[k] == ep else lax.psum(g, "ep") for k, g in found.items()}
        bias = expert.update_expert_bias(bias, picks, rate=rate, axis="ep")
        load = lax.psum(jnp.bincount(picks.reshape(-1), length=e), "ep")
        return (jax.tree.map(lambda w, g: w - RATE * g, w, found), bias), (
            lax.pmean(error, "ep"),
            load,
        )

    return lax.scan(one, (w, jnp.zeros(e)), (ids, targets))[1]


batches = P(None, "ep")
run = jax.jit(
    jax.shard_map(trained, mesh=mesh, in_specs=(LAID, batches, batches, P(), P()), out_specs=P())
)
results = {name: run(start, ids, targets, *map(float, how)) for name, how in BALANCE.items()}

# %% tags=["fold"]
WINDOW, BUSY = 20, 1.5
grids, rows = [], []
for name, (errors, loads) in results.items():
    shares = np.asarray(loads).reshape(-1, WINDOW, e).sum(axis=1)
    grids.append(shares / shares.mean(axis=1, keepdims=True))
    rows.append((name, float(grids[-1][-1].max()), float(np.asarray(errors)[-WINDOW:].mean())))
title = f"A row is {WINDOW} steps, a column an expert; the letter a marks more than {BUSY}"
cells = [np.vectorize("{:.1f}".format)(grid) for grid in grids]
whose = [np.where(grid > BUSY, 0, NOBODY) for grid in grids]
picture = panel(title, cells, whose, names=[*results], columns=1)
draw("17_load", Panels("Load of each expert over the mean load, over 100 steps", [picture]))
headers = ("balance", "busiest expert over the mean", "error")
shown = [(name, round(busiest, 2), round(error, 2)) for name, busiest, error in rows]
table(f"The last {WINDOW} steps", headers, shown)
last = {name: busiest for name, busiest, _ in rows}
assert last["none"] > 2 and last["loss"] < 2 and last["bias"] < 1.3
assert max(row[2] for row in rows) - min(row[2] for row in rows) < 0.15

# %% [markdown]
# With nothing for balance, the busiest expert ends with more than twice the mean load, and some
# experts get hardly any token. With the bias, the busiest one ends below 1.3 times the mean. How
# well the loss works depends on its coefficient, and a large coefficient costs quality. This is the
# argument for the bias (Wang et al. 2024). In 100 steps of so small a model, the errors (the mean
# cross-entropy) hardly differ.
#
# ## Compare
#
# ### Formulas
#
# `dispatch_bytes` of `jaxpar.cost` says what both ways send, and is yours to write. The two
# all-to-alls send `2*e*c*d*(n-1)/n` elements, where `e*c` is `k*t` times the capacity factor. The
# gather and the reduce-scatter send `2*t*d*(n-1)`, and a little for weights and numbers. So the
# all-to-alls send less if k times the factor is below n. Here k times the factor is 2.5.

# %%
rows = []
for devices in (2, 4, 8):
    tokens = n * t // devices  # so that all have the same tokens together
    how = {"experts": e, "top_k": k, "capacity_factor": 1.25, "devices": devices}
    formula = dispatch_bytes(tokens, d, **how, element_bytes=4)
    room = expert_capacity(tokens, experts=e, top_k=k, capacity_factor=1.25)
    exchange, _ = counted(expert.moe_token_choice, devices, capacity=room)
    gather, _ = counted(expert.moe_dropless, devices, block=16)
    assert formula == (exchange, gather)
    rows.append((devices, int(exchange), int(gather)))
table("Bytes that a device sends forward", ("devices", "all-to-alls", "gather"), rows)
border.compare(next(devices for devices, exchange, gather in rows if exchange < gather))

# %% [markdown]
# ### The mean of losses is another loss
#
# Each device could compute the balance loss of its own tokens, and these losses could be averaged.
# But that is not the loss of all tokens. Suppose that each device has text in a language of its
# own, and that the tokens of each language choose two experts which no other language chooses. Then
# the load of all tokens is even, but that of no single device is.

# %%
kinds = np.repeat(np.eye(n), t, axis=0) @ np.repeat(np.eye(n), 2, axis=1)  # [n*t, e]
logits = 3 * kinds + rng.normal(size=(n * t, e))
to = experts.route(jnp.asarray(logits, "float32"), jnp.eye(e), top_k=k)
own = [
    e * float((np.bincount(picks.ravel(), minlength=e) / picks.size * scores.mean(axis=0)).sum())
    for picks, scores in zip(np.split(to.experts, n), np.split(to.scores, n), strict=True)
]
of_all = jax.shard_map(
    partial(expert.load_balance_loss, axis="ep"), mesh=mesh, in_specs=(ep, ep), out_specs=P()
)(to.scores, to.experts)
print(f"mean of the devices' losses {np.mean(own):.2f}, loss of all tokens {of_all:.2f}\n")
assert np.mean(own) > 2 and of_all < 1.05

# %% [markdown]
# The mean of the devices' losses punishes experts for being specialists, and it changes with the
# number of devices. Qiu et al. 2025 (*Demons in the Detail*) found that models which were trained
# with it are worse than models which were trained with the loss of all tokens.
#
# ## On real hardware
#
# ### Rows that are not empty
#
# With fixed shapes, either empty rows are sent or tokens are dropped. On GPUs and TPUs there are
# other ways.
#
# - `lax.ragged_all_to_all` takes the number of rows for each device at run time, and sends only
#   these, so that nothing is dropped and no empty row travels. Its buffers must still have room for
#   the worst case, in which all tokens choose experts of one device. `moe_exchange` uses it.
# - `lax.ragged_dot` multiplies each group of rows by its own matrix. On GPUs and TPUs it does so by
#   kernels that read one matrix for a block of rows. (On a CPU it multiplies all rows by all
#   matrices, as the table above shows.) In PyTorch, MegaBlocks and `torch.nn.functional.grouped_mm`
#   have such kernels.
# - DeepEP is DeepSeek's library for the two all-to-alls. It sends a token over the network only
#   once to each node, and inside the node by NVLink to each of the token's experts.
#
# On a CPU, `lax.ragged_all_to_all` does not compile. There `moe_exchange` sends rows of fixed
# numbers: to each device as many as the sender has choices. What does this padding cost?

# %%
padded, _ = counted(moe_exchange, block=16)
chosen = (n - 1) / n * 2 * t * k * d * 4  # rows to other devices, and their results
print(f"Sent by a device: {padded:,.0f} B padded, {chosen:,.0f} B of rows that are chosen.")
assert round(padded / chosen, 1) == n

# %% [markdown]
# It costs a factor of n, so on a CPU the gather is the better way, and `jaxpar train` takes it.
#
# ### How much a layer sends
#
# How much does a device send in the forward pass of one layer? Devices have 4,096 tokens each, in
# 16 bits, and a capacity factor of 1.25.

# %% tags=["fold"]
rows, network = [], find_cluster("h100").between.bytes_per_second
for model, devices in ((mixtral, 2), (mixtral, 8), (deepseek, 8), (deepseek, 64)):
    how = {"experts": model.experts.count, "top_k": model.experts.per_token}
    how |= {"capacity_factor": 1.25, "devices": devices, "element_bytes": 2}
    sent = [round(size / 1e9, 2) for size in dispatch_bytes(4096, model.hidden, **how)]
    rows.append((model.name, model.experts.per_token * 1.25, devices, *sent))
headers = ("model", "k times factor", "devices", "GB, all-to-alls", "GB, gather")
table("Sent by a device in a layer", headers, rows)
assert [row[3:] for row in rows] == [(0.08, 0.07), (0.15, 0.47), (1.03, 0.82), (1.16, 7.42)]

# %% [markdown]
# The border is where the number of devices is k times the factor: at 2.5 for Mixtral, and at 10 for
# DeepSeek-V3. With more devices than that, the all-to-alls send less. With 8 choices, a token goes
# to most of 8 devices anyway, so that a gather wastes little.
#
# ### Two layouts, by the planner's formulas
#
# DeepSeek-V3 was trained on 2,048 H800 with 16 stages of a pipeline, experts over 64 GPUs and
# ZeRO-1 (section 3.2 of its report), in batches of 15,360 sequences of 4,096 tokens (section 4.2):
# in our words that is `pp=16,dp=2,ep=64`, where dp and ep together split the batch. We compare it
# with Mixtral 8x7B on 64 GPUs, as `pp=4,dp=2,ep=8` and with 1,024 such sequences. The formulas of
# lesson 19 give what a GPU sends in a step over each axis, with an even load and without empty
# rows.

# %%
LAYOUTS = {
    deepseek: (Layout(pp=16, dp=2, ep=64, zero=1), 15_360),
    mixtral: (Layout(pp=4, dp=2, ep=8, zero=1), 1024),
}
sent_over = {}
for model, (layout, batch) in LAYOUTS.items():
    job = {"batch": batch, "sequence": 4096, "each": ADAM_MIXED, "element_bytes": 2}
    of_model = sent_over[model.name] = {}
    for one in traffic.step_traffic(model, layout, **job):
        if one.stage == "all":
            size = of_model.get(one.axes, 0) + float(one.sent_bytes(layout)) / 1e9
            of_model[one.axes] = size

# %% tags=["fold"]
axes = (("ep",), ("dp", "ep"), ("dp",), ("pp",))
rows = [(name, *(round(sent[one], 1) for one in axes)) for name, sent in sent_over.items()]
title = "GB that a GPU sends in a step"
table(title, ("model", *(" and ".join(one) for one in axes)), rows)
assert rows[0][1:] == (887.9, 7.4, 1.4, 14.1) and rows[1][1:] == (120.3, 1.8, 2.8, 4.3)

# %% [markdown]
# The column ep has the tokens on their way to experts and back. Gradients of experts are summed
# over dp, and all other gradients over dp and ep, but both are small compared with the tokens. At
# the 50 GB/s of a GPU's network card, the 887.9 GB of DeepSeek-V3 would take 17.8 s of a step. So
# its authors sent less, and hid most of the rest behind compute. A token goes to at most 4 nodes
# (section 3.2.2), and travels in 8 bits on its way to the experts (section 3.3). And two
# microbatches take turns: one is computed while the tokens of the other travel. (In *DualPipe*,
# lesson 16, one of them is in its forward pass and the other in its backward pass.)
#
# The picture shows the forward pass of one layer for two microbatches of 4,096 tokens, with
# products at 400 TFLOP/s. In the first timeline, 8 copies of each token are sent in 16 bits, one
# for each choice, and one microbatch follows the other. The second timeline has all three remedies:
# 4 copies, 8 bits on the way to the experts, and microbatches that take turns.

# %% tags=["fold"]
terms = {one.name: float(one.value) / 400e12 for one in flops.layer_flops(deepseek, 1, 4096)}
in_experts = sum(terms[name] for name in ("router", "experts", "shared expert"))
in_attention = sum(terms.values()) - in_experts
per_copy = 4096 * deepseek.hidden / network  # seconds of one byte for each number of each token


def forward(there, back, *, turns):
    """Two microbatches, whose tokens take `there` and `back` bytes for each of their numbers."""
    tasks, last = [], ()
    for name in "AB":
        attention = overlap.Task("attention", name, "compute", in_attention, last)
        send = overlap.Task("to experts", name, "network", there * per_copy, (attention,))
        compute = overlap.Task("experts", name, "compute", in_experts, (send,))
        result = overlap.Task("back", name, "network", back * per_copy, (compute,))
        tasks.append((attention, send, compute, result))
        last = () if turns else (result,)
    order = zip(*tasks, strict=True) if turns else tasks
    return overlap.run([task for group in order for task in group])


timelines = {
    "8 copies, one after the other": forward(8 * 2, 8 * 2, turns=False),
    "4 copies, 8 bits there, in turns": forward(4, 4 * 2, turns=True),
}
draw("17_layer", Lanes("A layer of DeepSeek-V3, forward", "ms", timelines))
assert round(in_experts * 1e3, 1) == 8.2 and round(8 * 2 * per_copy * 1e3, 1) == 9.4

# %% [markdown]
# In the first timeline the tokens travel for 9.4 ms to the experts, and as long back, and the
# products of the experts take 8.2 ms. The report, too, speaks of a ratio of compute to
# communication of about 1 to 1 (section 3.2.1). In the second timeline, most of the communication
# is hidden.
#
# Try it: `jaxpar train --mesh ep=4,dp=2 --experts 8`, with `--balance bias` or `none`, and with a
# `--capacity-factor`. Each step shows the largest load, and with a capacity the share of choices
# that were dropped.
#
# ## Exercises

# %%
to_write("17")

# %% [markdown]
# ## On paper
#
# 1. Mixtral 8x7B has 32 layers with 8 experts each, of which a token chooses 2. An expert has three
#    matrices of 4,096 by 14,336. How many parameters do all experts have together? How many bytes
#    of them does a GPU hold in 16 bits, with ep=8? And how many of these parameters does a token
#    use?
#
# <details><summary>Answer</summary>
#
# An expert has 3 * 4,096 * 14,336 = 176 million parameters, a layer eight times as many, and all
# layers 45.1 billion. With ep=8 a GPU holds one expert of each layer: 5.6 billion parameters, or
# 11.3 GB. A token uses 2 of 8: 11.3 billion.
#
# </details>
#
# 2. Switch Transformer has k=1, and a capacity factor of 1.25. What is the smallest number of
#    devices with which all-to-alls send less than a gather? And what is it for DeepSeek-V2-Lite,
#    where a token chooses 6 of 64 experts, with the same factor? (The number of devices divides
#    that of experts.)
#
# <details><summary>Answer</summary>
#
# All-to-alls send less where k times the factor is below the number of devices. For Switch
# Transformer that is 1 * 1.25 = 1.25, so it is 2 devices. For DeepSeek-V2-Lite it is 6 * 1.25 =
# 7.5, so it is 8 devices, which divides 64.
#
# </details>
#
# 3. In a layer of DeepSeek-V3, a token goes to 8 of 256 experts, which are spread over 64 GPUs.
#    Each GPU has 4,096 tokens. If the load is even, how many tokens does an expert get from one
#    GPU, and how many from all? Now suppose that the busiest expert gets 1.3 times the mean load
#    from every GPU, and that the capacity is just large enough to drop nothing. Which fraction of
#    all rows is empty?
#
# <details><summary>Answer</summary>
#
# 4,096 * 8 / 256 = 128 rows from one GPU, and 64 * 128 = 8,192 in all. The capacity must be 1.3
# times the mean, so 0.3 of 1.3 rows are empty: 23%.
#
# </details>
#
# ## Sources
#
# Shazeer et al. 2017, *Outrageously Large Neural Networks*. Lepikhin et al. 2020, *GShard*. Fedus,
# Zoph and Shazeer 2021, *Switch Transformers*. Zoph et al. 2022, *ST-MoE*: the z-loss. Zhou et al.
# 2022, *Mixture-of-Experts with Expert Choice Routing*. Gale et al. 2022, *MegaBlocks*. Jiang et
# al. 2024, *Mixtral of Experts*. Wang et al. 2024, *Auxiliary-Loss-Free Load Balancing Strategy for
# Mixture-of-Experts*. DeepSeek-AI 2024, *DeepSeek-V2*, appendix B. DeepSeek-AI 2024, *DeepSeek-V3
# Technical Report*, sections 2.1.2, 3.2, 3.3 and 4.2. Qiu et al. 2025, *Demons in the Detail*.
# deepseek-ai/DeepEP. JAX documentation: `lax.ragged_dot`, `lax.ragged_all_to_all`.
#
# | here | Megatron-LM | DeepSpeed, torchtitan, MaxText |
# |---|---|---|
# | `ep` | `--expert-model-parallel-size` | `ep_size`; `expert_parallel_degree`; `expert` axis |
# | `route` | `--moe-router-topk` | the gate, `TopKGate` (DeepSpeed) |
# | `lax.all_to_all` | `torch.distributed.all_to_all_single` | the same (DeepSpeed, torchtitan) |
# | `grouped_matmul` | `--moe-grouped-gemm` | `torch._grouped_mm` (torchtitan) |
# | `moe_token_choice` | `--moe-token-dispatcher-type alltoall` | `MoE` (DeepSpeed) |
# | its capacity | `--moe-expert-capacity-factor` | `capacity_factor` (DeepSpeed, MaxText) |
# | `moe_dropless` | `--moe-token-dispatcher-type allgather` | ring of experts (MaxText) |
# | `load_balance_loss` | type `global_aux_loss`, `--moe-aux-loss-coeff` | `l_aux` (DeepSpeed) |
# | `update_expert_bias` | `--moe-router-enable-expert-bias` | `load_balance_coeff` (torchtitan) |
