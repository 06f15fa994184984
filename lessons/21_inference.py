# %% [markdown]
# # Lesson 21: inference
#
# A trained model is asked questions. It writes its answer token by token, because each token
# depends on those before it, and many users wait at once. In training, a device computes thousands
# of tokens in a step, and time goes into products of large matrices. In inference, most steps
# compute one token for each user. Then the time goes into *reading*: all the weights are read in
# each step, however few tokens are computed with them.
#
# So inference is about two things. What was computed before must not be computed again, which takes
# a *cache*. And the weights must be read for as many users at once as possible, which takes a
# *scheduler*. This lesson builds both, splits them over devices, and simulates a server.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar import nn
from jaxpar.batching.pages import PagePool
from jaxpar.batching.schedule import continuous_schedule
from jaxpar.batching.scheduler import Scheduler
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.roofline import attainable_flops
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.curves import Roofline
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import inspect
from jaxpar.model import Settings, init, logits
from jaxpar.parallel import context, decode
from jaxpar.parallel.decode import slot_attention, write_tokens
from jaxpar.serve.engine import Engine, Request, Sizes
from jaxpar.serve.measures import Objectives, summary
from jaxpar.serve.simulate import Server, pages_that_fit, simulate, step_time
from jaxpar.serve.workload import Load, plan

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("tp=8")
rng = np.random.default_rng(0)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32)


# %% [markdown]
# ## The idea in one picture
#
# The roofline of lesson 04: a program that does few FLOPs for each byte that it reads is limited by
# the memory, and one that does many by arithmetic. A weight of 2 bytes takes part in one product
# and one sum, 2 FLOPs, for each token. So a step with b tokens does b FLOPs for each byte of the
# weights.

# %% tags=["fold"]
h100 = find_cluster("h100")
peak, bandwidth = h100.device.peak_flops["bf16"], h100.device.memory_bytes_per_second
points = {
    "a token of 1 request": 1,
    "attention, 32 heads, 8 kv heads": 4,
    "a token of 64 requests": 64,
    "512 tokens of a prompt": 512,
}
roof = partial(attainable_flops, peak_flops=peak, memory_bytes_per_second=bandwidth)
draw("21_two_roofs", Roofline("Inference on an H100", roof, peak / bandwidth, points))
assert round(peak / bandwidth) == 295

# %% [markdown]
# A request has two phases, one under each roof. *Prefill* computes the tokens of the prompt, all at
# once, and is limited by arithmetic. *Decode* computes one token after another, and is limited by
# the memory: on an H100, up to 295 requests could decode in a step at nearly the price of one.
#
# Attention stays on the left, whatever the batch, because each request reads its own keys and
# values. With 4 query heads for each kv head, it does 4 FLOPs for each byte. That is why GQA
# matters so much in inference.
#
# ## Predict
#
# Llama 3 8B has 8.03 billion parameters, 32 layers, and 8 kv heads of 128 numbers. All numbers have
# 16 bits. One H100 reads 3.35 TB/s, and computes 989 TFLOP/s at best. Each of b requests has 1,000
# tokens in its cache.

# %%
read_by_one = ask("Bytes that a decode step reads, b = 1")
speed_of_one = ask("Tokens in a second at most, b = 1", "count")
speed_of_64 = ask("Tokens in a second at most, all requests together, b = 64", "count")
chunk_seconds = ask("Seconds at least for 512 tokens of a prompt, without attention", "seconds")

# %% [markdown]
# Now 8 devices of axis tp decode one layer of attention for 16 requests, in float32. d is 64, and
# there are 8 heads of 16 numbers for queries, and as many for keys and values. The cache can be
# split by heads, or by positions.

# %%
sent_by_heads = ask("Bytes that a device sends, the cache split by heads")
sent_by_positions = ask("Bytes that it sends for attention alone, the cache split by positions")

# %% [markdown]
# ## Implement
#
# ### A decode step by hand
#
# Only the newest token is computed. Of the tokens before it, attention needs nothing but their keys
# and values, and these never change, because no token sees a later one. So each layer keeps them:
# the *KV cache*. Here is a whole decode step of a model with one layer of attention. 16 requests
# are split over 8 devices, as replicas would do, so nothing is sent. All have equally many tokens.

# %%
HEADS, KV, SIZE, ROOM = 4, 2, 16, 48


def step_by_hand(weights, cache, tokens, length):  # tokens [b], all of which come at `length`
    x = weights["table"][tokens]  # [b, d]
    q, k, v = (
        (x @ weights[name]).reshape(len(x), heads, 1, SIZE)
        for name, heads in (("query", HEADS), ("key", KV), ("value", KV))
    )
    q, k = nn.rotary(q, length[None]), nn.rotary(k, length[None])
    keys, values = (  # [b, KV, ROOM, SIZE]
        lax.dynamic_update_slice_in_dim(old, new, length, axis=2)
        for old, new in zip(cache, (k, v), strict=True)
    )
    q = q.reshape(len(x), KV, HEADS // KV, SIZE)
    scores = jnp.where(jnp.arange(ROOM) <= length, q @ keys.mT / SIZE**0.5, -jnp.inf)
    o = jax.nn.softmax(scores) @ values
    x = x + o.reshape(len(x), -1) @ weights["output"]
    return (keys, values), jnp.argmax(x @ weights["table"].T, axis=1)


rows = P("dp")
decode_by_hand = jax.jit(
    jax.shard_map(
        step_by_hand,
        mesh=make_mesh("dp=8"),
        in_specs=(P(), rows, rows, P()),
        out_specs=(rows, rows),
    ),
    donate_argnums=1,
)

# %% [markdown]
# `donate_argnums` gives the old cache to the program, which writes into it instead of copying it.
# The prompt goes in token by token here; its answers are ignored. As a check, we compute the whole
# text again for each token, without a cache:


# %%
def whole_text(weights, text):  # [b, t] -> the most likely token after each place
    x = weights["table"][text]
    q, k, v = (
        jnp.swapaxes((x @ weights[name]).reshape(*text.shape, -1, SIZE), 1, 2)
        for name in ("query", "key", "value")
    )
    places = jnp.arange(text.shape[1])
    o = nn.attention(nn.rotary(q, places), nn.rotary(k, places), v)
    x = x + jnp.swapaxes(o, 1, 2).reshape(*text.shape, -1) @ weights["output"]
    return jnp.argmax(x @ weights["table"].T, axis=2)


# %% tags=["fold"]
d = HEADS * SIZE
weights = {"table": random(64, d) / 4, "output": 4 * random(d, d) / 8}
weights |= {"query": random(d, d) / 8, "key": random(d, d // 2) / 8, "value": random(d, d // 2) / 8}
cache = tuple(jnp.zeros((16, KV, ROOM, SIZE)) for _ in range(2))
prompt = rng.integers(0, 64, (16, 12))
text = [*prompt.T]
for length in range(ROOM - 1):
    cache, chosen = decode_by_hand(weights, cache, jnp.asarray(text[length]), jnp.int32(length))
    if length >= 11:
        text.append(np.asarray(chosen))
text = np.stack(text, axis=1)
expected = np.asarray(jax.jit(whole_text)(weights, text[:, :-1]))
np.testing.assert_array_equal(text[:, 12:], expected[:, 11:])
distinct = len(np.unique(text[:, 12:]))
assert distinct > 16
print(f"{text[:, 12:].size} tokens, {distinct} different ones, equal those without a cache.\n")

# %% [markdown]
# ### Rows of different lengths
#
# Real requests have different lengths. So each row of the batch has a place of its own in the
# cache, a *slot*, and its own position. A new token is written at the position of its row, and sees
# the places up to its own. What is behind them may be left from an earlier request.

# %%
show(write_tokens, slot_attention)

# %% [markdown]
# With t new tokens in a row, this is all of inference: a decode step has t = 1, and prefill has the
# whole prompt, or a chunk of it. `cached_attention`, a decode step of one layer whose heads are
# split over devices, is your first exercise.
#
# ### Pages
#
# A slot must have room for the longest answer that is allowed, and most answers are shorter. Kwon
# et al. (2023) found that servers held states of tokens in only 20.4% to 38.2% of their cache.
# Their remedy is that of operating systems: cut the cache into *pages* of a few tokens, give each
# request a page when it needs one, and keep a *page table* for each request. Which part of the
# reserved room is used, if lengths are uniform up to 2,048?

# %%
lengths = rng.integers(1, 2049, 10_000)
reserved = {"slots of 4,096": np.full_like(lengths, 4096), "slots of 2,048": lengths * 0 + 2048}
reserved |= {f"pages of {size}": -(-lengths // size) * size for size in (256, 64, 16)}
used = {name: lengths.sum() / room.sum() for name, room in reserved.items()}

# %% tags=["fold"]
table(
    "The used part of the cache", ("", "used"), [(k, round(float(u), 3)) for k, u in used.items()]
)
assert [round(float(u), 2) for u in used.values()] == [0.25, 0.5, 0.89, 0.97, 0.99]

# %% [markdown]
# Pages can also be shared. Two requests that begin with the same tokens have the same keys and
# values there, so the second one needs no prefill for them: *prefix caching*. Only full pages are
# shared, for nothing more is written into them.

# %%
pool = PagePool(pages=12, page_size=4)
rules, question, other = [*range(100, 109)], [1, 2, 3], [4, 5]
pool.add("first", rules + question)
pool.filled("first", rules + question, computed=12)
saved = pool.add("second", rules + other)
print(f"{pool.tables}; {saved} of {len(rules + other)} tokens need no computing.\n")
assert saved == 8 and pool.tables["first"][:2] == pool.tables["second"][:2]

# %% [markdown]
# If several answers to one prompt are wanted, even the page that is not full is shared, until one
# of them writes: *copy on write*. `page_tables` and `paged_attention`, a loop over pages that reads
# the tables, are yours to write.
#
# ### The scheduler
#
# In *static batching*, requests are taken in batches, and a batch ends with its longest answer. In
# *continuous batching* (Orca, Yu et al. 2022) the scheduler decides anew in each step. A request
# leaves as soon as it ends, and the next takes its slot.
#
# Then prompts come while others decode. A long prompt would make all of these wait for one long
# step. So it is cut into *chunks*: a step has a *budget* of tokens, decodes come first, and what is
# left goes to prompts (Sarathi-Serve, Agrawal et al. 2024). A method of the library's scheduler
# decides this:

# %%
show(Scheduler.next)

# %% [markdown]
# A request can need a page in the middle of its answer when none is free. Then the request that
# arrived last is *preempted*: it loses its pages, waits, and is computed again later. The one that
# arrived first is never preempted, so each ends. Here are both ways for eight requests, three slots
# and a budget of 8. A row is a request, a column is a step, and a cell has the tokens computed.


# %%
def static_schedule(requests, slots):
    waiting, steps = sorted(range(len(requests)), key=lambda i: requests[i][0]), []
    while waiting:
        here = [i for i in waiting if requests[i][0] <= len(steps)][:slots]
        waiting = [i for i in waiting if i not in here]
        steps.append([(i, requests[i][1]) for i in here])  # all prompts at once
        longest = max((requests[i][2] for i in here), default=1)
        steps += [[(i, 1) for i in here if t < requests[i][2]] for t in range(1, longest)]
    return steps


stream = [(0, 8, 3), (0, 4, 12), (0, 6, 3), (0, 9, 4), (1, 3, 11), (2, 5, 2), (3, 6, 3), (4, 4, 4)]
ways = {
    "static": static_schedule(stream, slots=3),
    "continuous": continuous_schedule(stream, slots=3, budget=8),
}


# %% tags=["fold"]
def timeline(name):
    cells = np.full((len(stream), max(map(len, ways.values()))), ".", dtype=object)
    for step, row in enumerate(ways[name]):
        for i, count in row:
            cells[i, step] = count
    owners = np.where(cells != ".", np.arange(len(stream))[:, None], NOBODY)
    title = f"{name}: {len(ways[name])} steps"
    return panel(title, [cells.astype(str)], [owners], names=[""])


draw("21_schedule", Panels("Eight requests in three slots", [timeline(name) for name in ways]))
assert [len(steps) for steps in ways.values()] == [27, 17]
assert max(sum(c for _, c in row) for row in ways["continuous"]) == 8
assert max(sum(c for _, c in row) for row in ways["static"]) == 18

# %% [markdown]
# In static batches, 27 steps are needed, and one of them computes 18 tokens at once. The continuous
# way takes 17 steps, none with more than 8 tokens, and lets requests begin in the order of
# arrival. You will write `continuous_schedule`, without looking at a model.
#
# ### The engine
#
# An engine joins these parts. It compiles two programs, one for a chunk of a prompt and one for a
# token of each slot, and no others later, whatever comes. We let it serve ten requests on two
# devices, with fewer pages than they would need at once. Then each request is served alone.

# %%
settings = Settings(vocabulary=64, layers=2, d_model=32, heads=4, kv_heads=2)
params = init(settings, jax.random.key(0))
params["head"] = 30 * params["head"]  # so that no two tokens are nearly equal
sizes = Sizes(slots=4, context=48, chunk=8, page_size=4, pages=20)
engine = Engine(settings, params, sizes, mesh=make_mesh("tp=2"))


def serve(requests):
    answers = {request.name: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.busy:
        for event in engine.step():
            answers[event.name] += event.tokens
    return answers


asked = [
    Request(f"request {i}", tuple(rng.integers(0, 64, 3 + 3 * i).tolist()), tokens=15)
    for i in range(10)
]
together = serve(asked)
stats = engine.stats
alone = {request.name: serve([request])[request.name] for request in asked}

# %% tags=["fold"]
assert together == alone
assert stats.generated == 150 and stats.preempted > 0 and stats.programs == 2
assert engine.stats.pages_free == 20
first = asked[0]
text = [*first.prompt, *together[first.name]]
whole = np.asarray(jax.jit(partial(logits, settings))(params, jnp.asarray([text])))
assert whole[0, 2:-1].argmax(1).tolist() == together[first.name]
shown = [(name, getattr(stats, name)) for name in ("steps", "prefilled", "generated", "preempted")]
table("Ten requests together", ("", "count"), shown)

# %% [markdown]
# Every request has the same answer alone and in company, though some were preempted. That takes
# care. In 16 bits, another order of sums may choose another token where two are nearly equal, so
# real servers repeat an answer only roughly.
#
# ### Choosing a token at random
#
# With a *temperature* T, token i is drawn with the probabilities softmax(logits / T). There is a
# trick: add *Gumbel noise*, `-log(-log(u))` for uniform u, to each `logit / T`. The largest sum is
# a sample of the softmax. So a sample is an argmax, and devices that each have a part of the
# vocabulary need not gather logits: `sample_parallel` is an exercise.

# %%
some = jnp.asarray([2.0, 1.0, 0.0, -1.0])
noise = jax.random.gumbel(jax.random.key(0), (40_000, 4))
drawn = np.bincount(np.argmax(some / 0.7 + noise, axis=1), minlength=4) / 40_000
np.testing.assert_allclose(drawn, jax.nn.softmax(some / 0.7), atol=0.01)

# %% [markdown]
# ### Several tokens in a step
#
# At b = 1, a step could compute a few hundred tokens in the same time. In *speculative decoding*
# (Leviathan et al. 2023) a small model, the *draft*, guesses g tokens, and the large one checks
# them all in one step. If the draft has the probabilities q and the large model p, a guess x is
# accepted with probability min(1, p(x)/q(x)). After a refusal, the next token is drawn from max(0,
# p - q), divided by its sum. Then all tokens are distributed exactly as those of the large model.
# One guess is accepted with the probability `alpha = sum(min(p, q))`. A round gives
# `(1 - alpha**(g+1)) / (1 - alpha)` tokens. The rule is your exercise `speculative_accept`; let us
# see that it does what the formula says, with g = 4.

# %%
g, trials = 4, 20_000
p, q = (np.asarray(jax.nn.softmax(1.5 * random(12))) for _ in range(2))
guesses = rng.choice(12, (trials, g), p=q / q.sum())
uniforms = rng.random((trials, g)).astype(np.float32)
spread = lambda x, count: jnp.broadcast_to(x, (trials, count, 12))  # noqa: E731
accepted, after = jax.jit(decode.speculative_accept)(
    guesses, spread(q, g), spread(p, g + 1), uniforms
)

# %% tags=["fold"]
alpha = float(np.minimum(p, q).sum())
formula = (1 - alpha ** (g + 1)) / (1 - alpha)
measured = float(accepted.mean()) + 1
print(f"alpha = {alpha:.2f}: {measured:.2f} tokens in a round, by the formula {formula:.2f}.\n")
assert abs(measured - formula) < 0.05
begins = np.where(np.asarray(accepted) > 0, guesses[:, 0], 12)
first_tokens = np.bincount(begins, minlength=13)[:12] / trials
refused = np.asarray(after)[np.asarray(accepted) == 0].sum(0) / trials
np.testing.assert_allclose(first_tokens + refused, p, atol=0.015)

# %% [markdown]
# The draft takes time, too. And with many requests a step has no room to spare: 64 requests with 4
# guesses each are 320 tokens, beyond the ridge of the roofline.
#
# ## Measure
#
# ### Is the cache copied?
#
# A program that copies the cache in each step reads and writes all of it once more, and nobody sees
# that in the results. Here are three ways through four layers. As an input and output of a scan, as
# in training; in the carry of a scan; and as a list of layers in a Python loop. The cache is
# donated each time.

# %%
LAYERS, b, room = 4, 16, 256
at = jnp.arange(b)[:, None]


def layer(x, kept, weight, lengths):
    new = (x @ weight).reshape(b, 2, KV, 1, SIZE)
    kept = [write_tokens(old, new[:, i], at, lengths[:, None]) for i, old in enumerate(kept)]
    o = slot_attention(x.reshape(b, HEADS, 1, SIZE), *kept, lengths + 1)
    return x + o.reshape(x.shape), kept


def scanned(cache, x, weights, lengths):
    return lax.scan(lambda x, given: layer(x, *given, lengths), x, (cache, weights))


def carried(cache, x, weights, lengths):
    def body(state, given):
        x, cache = state
        own = [lax.dynamic_index_in_dim(c, given[0], keepdims=False) for c in cache]
        x, own = layer(x, own, given[1], lengths)
        put = lax.dynamic_update_index_in_dim
        return (x, [put(c, o, given[0], 0) for c, o in zip(cache, own, strict=True)]), None

    return lax.scan(body, (x, cache), (jnp.arange(LAYERS), weights))[0]


def listed(cache, x, weights, lengths):
    kept = []
    for own, weight in zip(cache, weights, strict=True):
        x, own = layer(x, own, weight, lengths)
        kept.append(own)
    return x, kept


# %% tags=["fold"]
zeros = lambda *lead: [jnp.zeros((*lead, b, KV, room, SIZE)) for _ in range(2)]  # noqa: E731
x, stacked, lengths = random(b, d), random(LAYERS, d, d), jnp.arange(b) * 10
in_lists = [zeros() for _ in range(LAYERS)]
temp = {
    name: inspect(jax.jit(way, donate_argnums=0), cache, x, ws, lengths).memory.temp_bytes
    for name, way, cache, ws in (
        ("scanned, as input and output", scanned, zeros(LAYERS), stacked),
        ("scanned, in the carry", carried, zeros(LAYERS), stacked),
        ("a list of layers", listed, in_lists, list(stacked)),
    )
}
cache_bytes = 2 * LAYERS * b * KV * room * SIZE * 4
table(f"Temp bytes of a decode step, cache of {cache_bytes:,} bytes", ("", "bytes"), temp.items())
of_scan, of_carry, of_list = temp.values()
assert of_scan > cache_bytes > of_carry > cache_bytes / LAYERS > 4 * of_list

# %% [markdown]
# The first way copies all of the cache, the second one a layer at a time, and the third one
# nothing. So the library unrolls its layers here, and only here, though the program grows with
# their number.
#
# ### Pages: gathered or looped over
#
# The simplest attention to pages first gathers all pages of each row into one array. That is a copy
# of the cache again. A loop over pages, with the online softmax of lesson 14, holds one page of
# each row.


# %%
def gathered(q, k_pages, v_pages, tables, lengths):
    keys, values = (
        jnp.moveaxis(pages[tables], 2, 1).reshape(b, KV, -1, SIZE) for pages in (k_pages, v_pages)
    )
    return slot_attention(q, keys, values, lengths)


# %% tags=["fold"]
pages = random(256, KV, 16, SIZE)
tables = rng.permutation(256).reshape(b, 16)
given = random(b, HEADS, 1, SIZE), pages, pages, tables, jnp.arange(b) * 17 + 1
ways = {"all pages gathered": gathered, "a loop over pages": decode.paged_attention}
temp = {name: inspect(jax.jit(way), *given).memory.temp_bytes for name, way in ways.items()}
table("Temp bytes of attention to 16 rows of 16 pages", ("", "bytes"), temp.items())
np.testing.assert_allclose(*(jax.jit(way)(*given) for way in ways.values()), rtol=1e-4, atol=1e-5)
assert temp["all pages gathered"] > 10 * temp["a loop over pages"]

# %% [markdown]
# ### What a split cache sends
#
# Split by heads, a device has the keys and values of its own heads, and attention sends nothing:
# only the product with w_o is summed, as in training. That works while there are kv heads to give
# out. Split by positions, each device attends to its part of every row's keys, and the parts are
# merged (lesson 14): `attention_over_shards`. That works for a single kv head, too, and for a row
# too long for one device.

# %%
heads, kv_heads, s, h, d = 8, 8, 64, 16, 64
columns, its_rows, its_heads, its_places = (
    P(None, "tp"),
    P("tp"),
    P(None, "tp"),
    P(None, None, "tp"),
)
by_heads = jax.shard_map(
    partial(decode.cached_attention, num_heads=heads, num_kv_heads=kv_heads, axis="tp"),
    mesh=mesh,
    in_specs=(P(), columns, columns, columns, its_rows, its_heads, its_heads, P()),
    out_specs=(P(), its_heads, its_heads),
)
by_positions = jax.shard_map(
    partial(context.attention_over_shards, axis="tp"),
    mesh=mesh,
    in_specs=(P(), its_places, its_places),
    out_specs=P(),
)

# %% tags=["fold"]
wide, kept = random(d, heads * h), random(b, kv_heads, s, h)
arrays = random(b, d), wide, wide, wide, wide.T, kept, kept, jnp.arange(b)
heads_report = inspect(jax.jit(by_heads), *arrays)
positions_report = inspect(jax.jit(by_positions), random(b, heads, 1, h), kept, kept)
found = {"by heads": sent_by(heads_report), "by positions": sent_by(positions_report)}
table(
    "Bytes that a device sends in a layer",
    ("the cache is split", "bytes"),
    [(name, int(sum(sent.values()))) for name, sent in found.items()],
)

# %% [markdown]
# ## Compare

# %%
llama = find_model("llama3-8b")
weight_bytes, token_bytes = 2 * llama.parameters, 2 * 32 * 8 * 128 * 2
of_one = weight_bytes + 1000 * token_bytes
of_64 = weight_bytes + 64 * 1000 * token_bytes
read_by_one.compare(of_one, {"weights": weight_bytes, "cache": 1000 * token_bytes})
speed_of_one.compare(bandwidth / of_one)
speed_of_64.compare(64 * bandwidth / of_64)
chunk_seconds.compare(2 * llama.parameters * 512 / peak)
sent_by_heads.compare(sum(found["by heads"].values()), {"7/4 of the result": 7 / 4 * b * d * 4})
parts = {"7/4 of the result of attention": 7 / 4 * b * heads * h * 4}
parts["7/4 of two numbers for each row and head"] = 7 / 4 * b * heads * 2 * 4
sent_by_positions.compare(sum(found["by positions"].values()), parts)

# %% tags=["fold"]
assert round(bandwidth / of_one) == 207 and round(64 * bandwidth / of_64) == 8769
assert weight_bytes / bandwidth < 2 * llama.parameters * 512 / peak

# %% [markdown]
# 64 requests get 42 times as many tokens in a second as one, though each waits longer for its own:
# the caches are read beside the weights. And a chunk of 512 tokens takes longer than reading the
# weights, so it is limited by arithmetic.
#
# ## On real hardware
#
# ### A server, simulated
#
# Our CPU cannot show these times, so we let the scheduler of this lesson run on the step times of
# the cost model: Llama 3 8B on one H100, at the speeds that programs reach. 10 requests arrive in a
# second, at random, with prompts of 128 to 4,096 tokens and answers of 16 to 512. *TTFT* is the
# time to the first token, *ITL* the inter-token latency. *Goodput* counts the requests with a first
# token within 1 s, and a mean gap of at most 50 ms.

# %%
time = step_time(llama, h100, 1)
requests = plan(Load(rate=10, requests=150, prompt=(128, 4096), output=(16, 512)))
setups = {
    "static": ("static", 1),
    "continuous, whole prompts": ("continuous", 4096),
    "chunks of 512": ("continuous", 512),
    "chunks of 256": ("continuous", 256),
}
fitting = pages_that_fit(time, h100, page_size=16)
outcomes = {}
for name, (batching, chunk) in setups.items():
    server = Server(time, batching, slots=64, chunk=chunk, pages=fitting, page_size=16)
    outcomes[name] = summary(simulate(requests, server), Objectives(first_token=1.0, gap=0.05))

# %% tags=["fold"]
shown = [
    (
        name,
        f"{one.first_token[0]:.2f} s",
        f"{1e3 * one.gap[0]:.1f} ms",
        f"{1e3 * one.gap[2]:.1f} ms",
        round(one.tokens_per_second),
        f"{one.good_requests_per_second:.1f}",
    )
    for name, one in outcomes.items()
]
headers = "", "TTFT p50", "ITL p50", "ITL p99", "tokens/s", "good requests/s"
table("Llama 3 8B on an H100, simulated", headers, shown)
static, whole, large, small = outcomes.values()
assert static.first_token[0] > 20 * small.first_token[0]
assert static.good_requests_per_second < 0.1 * small.good_requests_per_second
assert whole.gap[2] > 4 * large.gap[2] > 4 * small.gap[2]
assert whole.first_token[0] < large.first_token[0] < small.first_token[0]

# %% [markdown]
# In static batches, users wait for seconds, and hardly a request is good. With whole prompts, a gap
# in a hundred is as long as the prefill of somebody else's prompt. Chunks bring that down, and the
# smaller they are, the more. Their price is a somewhat longer wait for the first token.
#
# `serving_metrics`, which computes the numbers of this table from the times of all tokens, is an
# exercise. There are two traps in such numbers. A mean over a request hides its one long gap. And a
# load test that sends a request only when the one before has ended (a *closed loop*) never shows
# what happens when more come than can be served.
#
# ### What else matters
#
# - **Latency of collectives.** Llama 3 70B over tp=8 sends 160 all-reduces in a decode step. With
#   64 requests they take 0.65 ms by their bytes over NVLink, beside 5.3 ms for the weights. But
#   each also has a latency, and that counts more. So servers use one-shot all-reduces for small
#   arrays.
# - **Kernels.** Attention to pages is a kernel of its own: FlashInfer or FlashAttention on GPUs,
#   and ragged paged attention on TPUs.
# - **The host.** At full bandwidth a step of Llama 3 8B takes 4.8 ms for the weights, which leaves
#   little time for Python. Servers replay recorded programs (CUDA graphs), and plan the next step
#   while this one runs.
# - **A smaller cache.** In 8 bits, a cache has room for twice as many requests, and is read in half
#   the time: `--cache int8`.
# - **Two kinds of servers.** Prefill and decode can run on different devices, which send each other
#   the cache (*disaggregation*; DistServe, Zhong et al. 2024).
#
# | what users report | why | what helps |
# |---|---|---|
# | decode slows down with the cache | it is copied: jax 17845, sglang-jax 65 | a list, donated |
# | pauses at new lengths | compiling: tpu-inference 58, vllm 16726 | fixed shapes |
# | speculation makes it slower | no room at large b: vllm 8439 | fewer guesses, or none |
#
# (The numbers are those of issues on GitHub.)
#
# Try it: `jaxpar generate --prompt "To be" --mesh tp=2`, then `jaxpar serve`, and `jaxpar load` in
# another terminal.
#
# ## Exercises

# %%
exercises("21")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B (80 layers, 8 kv heads of 128) runs on 8 H100 with 80 GB each, tp=8, in 16 bits,
#    and may use 90% of the memory. For how many requests of 2,000 tokens is there room in the
#    cache? How long does a decode step of so many take at least, and how many tokens in a second is
#    that?
#
# <details><summary>Answer</summary>
#
# The weights take 141 GB, 17.6 GB on each GPU, which leaves 54.4 GB of 72. A token has 2 * 80 * 8 *
# 128 * 2 = 327,680 bytes, 40,960 on each GPU. So there is room for 1.33 million tokens: 663
# requests. A step reads all of the 72 GB, in 21.5 ms, and that gives 30,850 tokens in a second.
#
# </details>
#
# 2. A draft takes a twentieth of the time of the large model for a token, and alpha is 0.8. How
#    much faster is speculation with g = 4, and with g = 8, at b = 1? Why not at b = 300?
#
# <details><summary>Answer</summary>
#
# A round takes g drafts and one step: 1.2 and 1.4 steps of the large model. It gives 3.36 and 4.33
# tokens, so it is 2.8 and 3.1 times as fast. At b = 300 a step is limited by arithmetic already.
# Then checking 5 tokens of each request takes 5 times as long as one, for 3.36 tokens.
#
# </details>
#
# 3. A server of Llama 3 8B on one H100 has a budget of 512 tokens, and 64 requests decode. How many
#    steps does a prompt of 4,096 tokens take, and how long does it wait for its first token at
#    least? How long would one step with all of it take? (Count 2 FLOPs for each parameter and
#    token, at 989 TFLOP/s.)
#
# <details><summary>Answer</summary>
#
# 448 tokens are left in each step, so it takes 10 steps. Nine of them have 512 tokens, 8.3 ms
# each, and the last one 128: limited by the memory, 4.8 ms. Together that is 80 ms. In one step,
# 4,160 tokens take 68 ms. That is sooner for this one, but the 64 others wait 68 ms for a token
# instead of 8.3 ms.
#
# </details>
#
# ## Sources
#
# Williams, Waterman and Patterson 2009, *Roofline*. Shazeer 2019, *Fast Transformer Decoding: One
# Write-Head is All You Need*. Pope et al. 2022, *Efficiently Scaling Transformer Inference*. Yu et
# al. 2022, *Orca: A Distributed Serving System for Transformer-Based Generative Models*. Kwon et
# al. 2023, *Efficient Memory Management for Large Language Model Serving with PagedAttention*,
# figure 2 and section 4. Agrawal et al. 2024, *Taming Throughput-Latency Tradeoff in LLM Inference
# with Sarathi-Serve*. Leviathan, Kalman and Matias 2023, *Fast Inference from Transformers via
# Speculative Decoding*, sections 2.3 and 3.1. Maddison, Tarlow and Minka 2014, *A\* Sampling*.
# Shyam et al. 2024, *Tree Attention*. Zhong et al. 2024, *DistServe*. Grattafiori et al. 2024, *The
# Llama 3 Herd of Models*, table 3. Austin et al. 2025, *How to Scale Your Model*. The documentation
# of vLLM, SGLang and TensorRT-LLM, and the arguments of Megatron-LM. Issues: jax-ml/jax,
# sgl-project/sglang-jax, vllm-project/tpu-inference, vllm-project/vllm.
#
# | here | vLLM | SGLang | TensorRT-LLM |
# |---|---|---|---|
# | continuous batching | the same | the same | in-flight batching |
# | slots | `--max-num-seqs` | `--max-running-requests` | `max_batch_size` |
# | budget | `--max-num-batched-tokens` | `--chunked-prefill-size` | `max_num_tokens` |
# | tokens of a page | `--block-size` | `--page-size` | `tokens_per_block` |
# | shared prefixes | automatic prefix caching | RadixAttention | `enable_block_reuse` |
#
# In TGI (Text Generation Inference), the budget for prompts is `--max-batch-prefill-tokens`, and
# slots are `--max-batch-size`. Megatron-LM has `--inference-dynamic-batching`; its options for
# pages, slots and budget begin with this and end in `-block-size`, `-max-requests` and
# `-max-tokens`.
