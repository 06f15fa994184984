# %% [markdown]
# # Lesson 22: Smaller models
#
# A trained model is kept in 16 bits for each number, sometimes in 32. Does it need so many? If a
# number takes 4 bits, four times as large a model fits into the same memory, a server reads its
# weights in a quarter of the time (lesson 21), and whoever sends weights sends a quarter of the
# bytes. There are three ways to make a model smaller. Numbers can take fewer bits, which is
# *quantization*. Some of them can be set to 0, which is *pruning*. Or a smaller model can learn
# from the large one, which is *distillation*.
#
# All of these lose something. So for each way we ask what it saves, in bytes, and what it loses, in
# the loss of a model that we have trained ourselves.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar.cost.models import find_model
from jaxpar.cost.quantized import quantized_bits
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.course.smaller_losses import read_smaller
from jaxpar.drawing.curves import Points
from jaxpar.inspector import inspect
from jaxpar.microscaling import mx_dequantize, mx_quantize
from jaxpar.parallel.quantized import int8_all_gather, quantized_layers
from jaxpar.post_training import awq, gptq, round_columns
from jaxpar.prune import prune_2_4
from jaxpar.quantize import (
    decode_blocks,
    dequantize_blocks,
    dynamic_codebook,
    encode_blocks,
    nf4_dequantize,
    nf4_quantize,
    normal_codebook,
    quantize_blocks,
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("tp=8")
rng = np.random.default_rng(0)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32)


def relative_error(found, right):
    return float(jnp.linalg.norm(found - right) / jnp.linalg.norm(right))


# %% [markdown]
# ## The idea in one picture
#
# A decoder of two layers was trained for 900 steps on the sources of Python's library. Then the
# matrices of its layers were made smaller, in one way after another, without any further training.
# This takes minutes, so we read what `python -m benchmarks.losses_when_smaller --write` has
# measured. Each point is one way: the bits of a number, with its part of all that is kept beside
# it, and the loss on held-out text. In this lesson we find out what the names mean.

# %%
measured = read_smaller()
trained = measured["as trained"].loss
rise = {name: one.loss - trained for name, one in measured.items()}
points = {name: (one.bits, one.loss) for name, one in measured.items() if rise[name] < 0.4}
draw("22_losses", Points("One decoder, made smaller", "bits of a number", "held-out loss", points))

# %% [markdown]
# ## Predict
#
# In *NF4* a number has a code of 4 bits, and each 64 numbers share one float32.

# %%
nf4_weights = ask("Bytes of 8.03 billion parameters in NF4")

# %% [markdown]
# Adam keeps two numbers for each parameter. In its 8-bit form each is a code of 8 bits, and each
# 256 codes share one float32.

# %%
adam_state = ask("Bytes that 8-bit Adam keeps for 8.03 billion parameters")

# %% [markdown]
# 8 devices hold 64 rows each of a matrix with 512 rows and 512 columns. Each sends its rows to all
# others, as FSDP does (lesson 10): as int8, with a float32 for each 128 numbers of a row. In the
# backward pass the gradient, in float32, is summed and split into rows again.

# %%
sent_forward = ask("Bytes that a device sends forward")
sent_backward = ask("Bytes that a device sends backward")

# %% [markdown]
# 16 layers of one 512 x 512 matrix each are kept in int8. A layer needs its matrix as float32.

# %%
all_floats = ask("Bytes of floats, if all layers become floats before the first is computed")
one_float = ask("Bytes of floats, if each layer's matrix becomes floats when it is needed")

# %% [markdown]
# ## Implement
#
# ### A layer in 8 bits by hand
#
# Here is an MLP whose hidden size is split over eight devices (lesson 11). Its first matrix is kept
# as int8. A device has whole columns of it, so it can find the largest magnitude of each, which
# becomes 127, without asking the others. The product is formed with the codes, and then each
# column is scaled: a sum of codes times x, times the scale, is the sum of weights times x.


# %%
def to_int8_by_hand(w):  # this device's columns, [d, f/n]
    scales = jnp.abs(w).max(axis=0) / 127
    codes = jnp.round(w / jnp.where(scales == 0, 1, scales))
    return codes.astype(jnp.int8), scales


def mlp_by_hand(x, codes, scales, w_down):
    hidden = jax.nn.relu((x @ codes.astype(x.dtype)) * scales)
    return lax.psum(hidden @ w_down, "tp")


columns, rows = P(None, "tp"), P("tp")
shard = partial(jax.shard_map, mesh=mesh)
x, w_up, w_down = random(32, 64), random(64, 256) / 8, random(256, 64) / 16
codes, scales = jax.jit(shard(to_int8_by_hand, in_specs=columns, out_specs=(columns, rows)))(w_up)
mlp = jax.jit(shard(mlp_by_hand, in_specs=(P(), columns, rows, rows), out_specs=P()))
exact = jax.nn.relu(x @ w_up) @ w_down
lost = relative_error(mlp(x, codes, scales, w_down), exact)
print(f"{w_up.nbytes:,} bytes became {codes.nbytes + scales.nbytes:,}; the error is {lost:.2%}.\n")
assert lost < 0.01

# %% [markdown]
# If the *rows* of a matrix are split, as those of `w_down` are, a column is on several devices, and
# these must agree on its scale. You will write that: `quantize_rows`, and then `int8_row_linear`.
#
# ### Blocks, and outliers
#
# One large number costs all others that share its scale their digits. So the library cuts the
# numbers into *blocks*, each with a scale of its own.

# %%
show(quantize_blocks)


# %%
def error_of(w, bits, block):
    flat = w.reshape(-1)
    return relative_error(dequantize_blocks(*quantize_blocks(flat, block=block, bits=bits)), flat)


plain = random(256, 256)
spoiled = plain.copy()
spoiled[0, 0] = 100.0
results = [
    (
        f"int{bits}, blocks of {block:,}",
        round(quantized_bits(bits, group=block), 3),
        f"{error_of(plain, bits, block):.4f}",
        f"{error_of(spoiled, bits, block):.4f}",
    )
    for bits in (8, 4)
    for block in (65_536, 256, 32)
]
table("Relative error of 65,536 normal numbers", ("", "bits", "plain", "with one of 100"), results)

# %% [markdown]
# With a scale for all, a single *outlier* makes int4 useless. With blocks of 32, only 31 other
# numbers suffer, for one more bit. `quantized_bits`, which gives the bits in this table, is yours
# to write.
#
# Weights have few outliers. Activations of large models have many, always in the same columns
# (Dettmers et al. 2022). *LLM.int8()* keeps these columns apart, in 16 bits, and rounds only the
# others. *SmoothQuant* divides the columns by a number, and multiplies the rows of the next matrix
# by it. Here are activations of which three columns are 30 times as large as the others.

# %%
activations, weights = random(128, 256), random(256, 64)
large = np.isin(np.arange(256), [7, 60, 200])
activations[:, large] *= 30
right = activations @ weights


def rounded(x, block):
    return dequantize_blocks(*quantize_blocks(x.reshape(-1), block=block, bits=8)).reshape(x.shape)


apart = rounded(activations[:, ~large], 253) @ weights[~large]
ways = {
    "one scale for all": rounded(activations, activations.size) @ weights,
    "a scale for each row": rounded(activations, 256) @ weights,
    "three columns apart": apart + activations[:, large] @ weights[large],
}
outliers = {name: relative_error(y, right) for name, y in ways.items()}
found = [(name, round(error, 4)) for name, error in outliers.items()]
table("Relative error of a product", ("int8 activations", "error"), found)
assert 10 * outliers["three columns apart"] < outliers["a scale for each row"] < 0.03

# %% [markdown]
# ### Sixteen numbers for normal weights
#
# Four bits name 16 numbers, and these need not be equally far apart. Weights are nearly normally
# distributed, so most of them are small, and *NF4* has more numbers there: quantiles of the normal
# distribution, divided by the largest. A weight becomes the nearest of them, times the largest
# magnitude of its block. Two codes share a byte.

# %%
show(nf4_quantize)
print(*np.round(normal_codebook(), 3), "\n")

# %%
flat = plain.reshape(-1)
of_nf4 = relative_error(nf4_dequantize(*nf4_quantize(flat, block=64)), flat)
of_int4 = error_of(plain, 4, 64)
print(f"Relative error, blocks of 64: int4 {of_int4:.4f}, NF4 {of_nf4:.4f}.\n")
assert of_nf4 < 0.9 * of_int4

# %% [markdown]
# ### Rounding so that products stay
#
# What matters is not the matrix but its product with what comes in. *GPTQ* rounds one row after
# another, and changes the rows that are left, so that they make up for the error. Which changes
# help depends on inputs that tend to be large together, so it needs some inputs x.

# %%
show(gptq)

# %% [markdown]
# *AWQ* changes no weight. Before it rounds, it multiplies the rows that large inputs meet, so that
# these lose less, and divides the inputs by the same numbers. It tries several powers of the
# inputs' magnitudes. Both need no gradients, and minutes or hours for a large model.

# %%
d, f = 64, 96
x = random(512, d) @ random(d, d) * np.exp(random(d))
w = random(d, f)
compared = []
for bits in (8, 4, 3):
    found = [round_columns(w, bits=bits), jax.jit(partial(gptq, bits=bits))(w, x)]
    products = [x @ codes.astype(np.float32) * scales for codes, scales in found]
    codes, scales, of_rows = jax.jit(partial(awq, bits=bits))(w, x)
    products.append(x / of_rows @ codes.astype(np.float32) * scales)
    compared.append((bits, *(round(relative_error(y, x @ w), 4) for y in products)))
table("Relative error of x @ w", ("bits", "nearest", "GPTQ", "AWQ"), compared)
assert all(max(one[2:]) < one[1] for one in compared)

# %% [markdown]
# ### Floats of 8 and 4 bits
#
# Floats of 8 bits come in two kinds (Micikevicius et al. 2022): e4m3 has 4 bits of exponent and 3
# of fraction, for weights and activations, and e5m2 has a larger range, for gradients. In the *MX*
# formats, 32 numbers share a power of two, which takes a byte. So even floats of 4 bits are of use,
# whose only magnitudes are 0, 0.5, 1, 1.5, 2, 3, 4 and 6.

# %%
KINDS = {"fp8 e4m3": jnp.float8_e4m3fn, "fp8 e5m2": jnp.float8_e5m2, "fp4 e2m1": jnp.float4_e2m1fn}
formats = []
for name, dtype in KINDS.items():
    cast = plain.astype(dtype).astype(np.float32)
    scaled = mx_dequantize(*mx_quantize(jnp.asarray(plain), dtype=dtype), dtype=jnp.float32)
    info = jnp.finfo(dtype)
    errors = (f"{relative_error(y, plain):.3f}" for y in (cast, scaled))
    formats.append((name, info.bits, float(info.max), f"{info.smallest_subnormal:.2g}", *errors))
headers = "", "bits", "largest", "smallest", "error", "error as MX"
table("Small floats, and their relative error of normal numbers", headers, formats)

# %% [markdown]
# ### Adam in 8 bits
#
# An optimizer's state is larger than the model: Adam keeps 8 bytes for each parameter in float32.
# In 8 bits with blocks of 256 it keeps 2.03. But the squares in it differ by many orders of
# magnitude, even within a block. As integers, most of them would become 0, and Adam divides by
# their root. The *dynamic* codebook has numbers in all of the seven decades below the largest
# (Dettmers et al. 2022): half as many in each as in the one above it. A step decodes, updates and
# encodes a slice of the parameters at a time, so that the moments are never float32 as a whole.
# That is `adam8bit_update`, an exercise.

# %%
squares = np.exp(1.5 * random(256 * 64)) * random(256 * 64) ** 2
largest = squares.reshape(-1, 256).max(axis=1).repeat(256)
as_integers = np.round(squares / largest * 255) * largest / 255
book = dynamic_codebook(signed=False)
as_dynamic = np.asarray(decode_blocks(*encode_blocks(squares, book, block=256), book))
zeros = {"integers": np.mean(as_integers == 0), "dynamic": np.mean(as_dynamic == 0)}
table("Squares that become 0", ("8 bits", "part"), [(k, f"{v:.1%}") for k, v in zeros.items()])
assert zeros["integers"] > 0.3 and zeros["dynamic"] < 0.01

# %% [markdown]
# ### Pruning
#
# *Magnitude pruning* sets the smallest numbers to 0. That saves memory only if their places cost
# less than they did, and time only if the hardware skips them. GPUs skip zeros in one pattern:
# *2:4*, where two of every four neighbours are 0. The two that are left are kept with their places,
# 2 bits each: in 16 bits, (16 + 2) / 2 = 9 bits a number. `prune_2_4` is an exercise.
#
# ### Distillation
#
# A small *student* learns from the outputs of a large *teacher*. Its loss is the Kullback-Leibler
# divergence of the student's probabilities from the teacher's, which say more than the one right
# token: which other tokens would nearly do. Both logits are divided by a temperature T, which shows
# more of the small probabilities, and the loss is multiplied by T squared, which keeps the size of
# its gradients (Hinton et al. 2015).


# %%
def distillation(student, teacher, temperature):
    p, q = (jax.nn.log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * jnp.sum(jnp.exp(p) * (p - q), axis=-1).mean()


student, teacher = random(16, 50), random(16, 50)
gradient = jax.grad(distillation)(student, teacher, 2.0)
difference = jax.nn.softmax(student / 2) - jax.nn.softmax(teacher / 2)
np.testing.assert_allclose(gradient, 2.0 * difference / 16, atol=1e-6)

# %% [markdown]
# So a student's logits are pulled to where its probabilities are the teacher's. If the vocabulary
# is split over devices (lesson 12), both softmaxes need sums over all of them, but the logits
# themselves need not travel: `vocab_parallel_distillation_loss`, an exercise.
#
# ## Measure
#
# ### A gather in 8 bits
#
# ZeRO++ gathers parameters as int8 codes. All devices use the rounded weights, also the one that
# holds them in full. The derivative of rounding is 0 nearly everywhere, so it is left out: the
# gradient goes *straight through*, as if nothing had been rounded. You will write it,
# `int8_all_gather`, with `jax.custom_vjp`.

# %%
gathers = {
    "float32": partial(lax.all_gather, axis_name="tp", tiled=True),
    "int8": partial(int8_all_gather, axis="tp", block=128),
}
w, sent = random(512, 512), {}
for name, gather in gathers.items():

    def both(w_shard, gather=gather):
        y, pull = jax.vjp(gather, w_shard)
        return pull(jnp.cos(y))[0]

    forward, gradient = (
        inspect(shard(f, in_specs=rows, out_specs=rows), w).wire_bytes_by_axis()["tp",]
        for f in (gather, both)
    )
    sent[name] = forward, gradient - forward
heads = "", "forward", "backward"
table("Bytes that a device sends", heads, [(k, *map(int, v)) for k, v in sent.items()])

# %% [markdown]
# ### Layers that are floats only while they are used
#
# Memory is saved only if no more than a layer or two becomes floats at a time. In the backward pass
# the same holds once more, and there it needs `jax.checkpoint` (lesson 08), because the gradient of
# a product needs the matrix.


# %%
def layer(w, x):
    return jnp.tanh(x @ w)


def all_first(codes, scales, x):
    whole = codes.astype(jnp.float32) * scales[:, None]
    return lax.scan(lambda x, w: (layer(w, x), None), x, whole)[0]


codes, scales = jnp.ones((16, 512, 512), jnp.int8), jnp.ones((16, 512)) / 512
x = random(8, 512)
of_layers = {"all first": all_first, "each when needed": partial(quantized_layers, layer)}
temp = {}
for name, apply in of_layers.items():
    gradient = jax.grad(lambda codes, scales, x, f=apply: f(codes, scales, x).sum(), argnums=2)
    temp[name] = [
        inspect(jax.jit(f), codes, scales, x).memory.temp_bytes for f in (apply, gradient)
    ]
table("Temp bytes", ("floats", "forward", "gradient"), [(k, *v) for k, v in temp.items()])
assert temp["all first"][1] > 4 * temp["each when needed"][1]

# %% [markdown]
# ### The table of the decoder
#
# Now the whole table of the picture. *Per column* means a scale for each column of a matrix. In
# *groups of 32*, each 32 neighbours in a column share one.

# %%
shown = [(name, round(one.bits, 2), f"{rise[name]:+.4f}") for name, one in measured.items()]
table(f"Rise of the loss, which was {trained:.3f}", ("matrices", "bits", "rise"), shown[1:])

# %% tags=["fold"]
for bits in ("int4", "int3"):
    per = [rise[f"{bits}, {how}"] for how in ("per tensor", "per column", "groups of 32")]
    assert per[0] > per[1] > per[2] > 0
assert 8 < rise["int4, per tensor"] / rise["int4, groups of 32"] < 10
assert all(abs(rise[name]) < 0.001 for name in rise if name.startswith(("int8", "MXFP8")))
assert abs(rise["fp8 e4m3"]) < 0.001 < rise["fp8 e5m2"] < 0.005
assert rise["NF4, blocks of 64"] < 0.02 and rise["MXFP4"] < 0.03
assert rise["2:4 pruned"] > 2 * rise["50% pruned"] > 10 * rise["int4, groups of 32"]
pruned = np.asarray(prune_2_4(jnp.asarray(plain)))
assert (pruned != 0).mean() == 0.5 and relative_error(pruned, plain) > 3 * of_int4

# %% [markdown]
# - 8 bits are free, as integers or floats.
# - 4 bits cost a little, and how much depends on the groups: with one scale for a tensor, int4
#   costs about nine times as much as in groups of 32.
# - With 3 bits the loss rises clearly. Here GPTQ and AWQ are most needed.
# - Pruning half of the numbers without further training costs far more than int4, at 9 bits a
#   number. The pattern 2:4 costs more than a free choice of the places. After pruning, models are
#   trained on, which wins back much of it (Han et al. 2015; Mishra et al. 2021).
#
# ## Compare

# %%
llama = find_model("llama3-8b").parameters
nf4_weights.compare(llama * 4.5 / 8, {"codes": llama / 2, "scales": llama / 16})
adam_state.compare(llama * 2 * (1 + 4 / 256), {"codes": 2 * llama, "scales": 2 * llama / 64})
codes_sent = 7 * 64 * 512
sent_forward.compare(sent["int8"][0], {"codes": codes_sent, "scales": codes_sent * 4 / 128})
sent_backward.compare(sent["int8"][1], {"7/8 of the gradient": 7 / 8 * w.nbytes})
all_floats.compare(16 * 4 * 512**2)
one_float.compare(4 * 512**2)

# %% tags=["fold"]
assert sent["int8"] == (236_544, 917_504) and sent["float32"] == (917_504, 917_504)
assert temp["all first"][0] > 16 * 4 * 512**2 > 8 * temp["each when needed"][0]

# %% [markdown]
# An all-gather and a reduce-scatter of float32 send equally much, so in 8 bits the forward pass
# sends a quarter, and both together five eighths. ZeRO++ also sends gradients in 4 bits, with an
# all-to-all in place of the reduce-scatter.
#
# ## On real hardware
#
# There are two uses, and they need different hardware. If only the *weights* have few bits, they
# become 16-bit floats inside the kernel, just before they are multiplied. That works on any
# hardware, and saves time where reading is the limit, as in decoding: the weights of Llama 3 8B are
# read in 4.8 ms by an H100 in 16 bits, and in 1.3 ms in NF4. If weights *and activations* have few
# bits, the products themselves are faster, but the matrix unit must know the format. Peaks in
# TFLOP/s or TOP/s, without sparsity:
#
# | | 16 bits | int8 | fp8 | 4 bits |
# |---|---|---|---|---|
# | A100 | 312 | 624 | - | 1,248 (int4) |
# | H100 | 989 | 1,979 | 1,979 | - |
# | B200 | 2,250 | 4,500 | 4,500 | 10,000 (fp4) |
# | TPU v5e | 197 | 393 | - | - |
#
# With 2:4 sparsity, NVIDIA's data sheets state twice these numbers from the A100 on. MX formats are
# built into the B200 and into AMD's MI355X; the B200 also has *NVFP4*, with blocks of 16 and scales
# in e4m3. Older GPUs can keep weights in any of these, and multiply in 16 bits. The trend is from
# integers to floats: the B300 does only 319 TOP/s in int8.
#
# A simulated CPU device shows bytes and errors here, and no such times: XLA on a CPU computes with
# fp8 in 16 bits.
#
# | to do | try first |
# |---|---|
# | serve a model that fits in 16 bits | fp8 weights and activations, or int8 |
# | serve one that does not fit | AWQ or GPTQ, 4 bits, groups of 128 |
# | fine-tune on a small GPU | NF4 weights with adapters (lesson 23), 8-bit Adam |
# | train on slow links | int8 gathers (ZeRO++), compressed gradients (lesson 06) |
#
# Try it: `jaxpar memory --model llama3-8b --inference --weight-bits 4 --group 64`, `jaxpar train
# --optimizer adam8bit --checkpoint run1`, `jaxpar train --layers 2 --distill run1`, and `jaxpar
# generate --checkpoint run1 --prompt "import " --weight-bits 4`.
#
# ## Exercises

# %%
exercises("22")

# %% [markdown]
# ## On paper
#
# 1. QLoRA keeps codes of 4 bits in blocks of 64. Their scales are codes of 8 bits, of which 256
#    share a float32. How many bits does a number take? How many bytes does this save for a model of
#    70.6 billion parameters, against scales in float32?
#
# <details><summary>Answer</summary>
#
# A number takes 4 + 8/64 + 32/(64 * 256) = 4.127 bits, and with scales in float32 4.5 bits. The
# difference is 0.373 bits a number, which are 3.29 GB.
#
# </details>
#
# 2. Llama 3 8B is trained with Adam on one GPU: weights and gradients in bfloat16, master weights
#    and both moments in float32. How many bytes does this take, and how many with 8-bit Adam and
#    blocks of 256?
#
# <details><summary>Answer</summary>
#
# A parameter takes 2 + 2 + 4 + 8 = 16 bytes, which are 128 GB in all. In 8 bits, both moments take
# 2.03 bytes in place of 8, so it is 10.03 bytes a parameter, and 81 GB in all: still more than a
# GPU of 80 GB has.
#
# </details>
#
# 3. A server has 8 H100, which read 3.35 TB/s each. How long does a decode step of Llama 3 70B take
#    at least over tp=8 for reading the weights, in 16 bits and in 4.5 bits? Why is prefill not
#    faster with 4-bit weights?
#
# <details><summary>Answer</summary>
#
# In 16 bits, each GPU reads 17.6 GB, in 5.3 ms. In 4.5 bits it reads 4.96 GB, in 1.5 ms. Prefill is
# limited by arithmetic: the weights become 16-bit floats before they are multiplied, so there are
# as many FLOPs at the same peak, and the conversion comes on top.
#
# </details>
#
# ## Sources
#
# Bengio, Leonard and Courville 2013, *Estimating or Propagating Gradients Through Stochastic
# Neurons*. Dettmers et al. 2022, *8-bit Optimizers via Block-wise Quantization*, section 2.
# Dettmers et al. 2022, *LLM.int8()*, section 3. Dettmers et al. 2023, *QLoRA*, section 3. Frantar
# et al. 2022, *GPTQ*, algorithm 1. Han et al. 2015, *Learning both Weights and Connections for
# Efficient Neural Networks*. Hinton, Vinyals and Dean 2015, *Distilling the Knowledge in a Neural
# Network*. Lin et al. 2023, *AWQ*, section 3. Micikevicius et al. 2022, *FP8 Formats for Deep
# Learning*. Mishra et al. 2021, *Accelerating Sparse Deep Neural Networks*. Rouhani et al. 2023,
# *OCP Microscaling Formats (MX) Specification v1.0*. Wang et al. 2023, *ZeRO++*, section 3. Xiao
# et al. 2022, *SmoothQuant*. Data sheets of NVIDIA's A100, H100 and B200; NVIDIA at Hot Chips 2025,
# as reported by Tom's Hardware, for the B300; Google Cloud, *TPU v5e*.
#
# | here | PyTorch | others |
# |---|---|---|
# | `quantize_blocks` | torchao: `Int8WeightOnlyConfig` | bitsandbytes: `quantize_blockwise` |
# | `nf4_quantize` | torchao: `NF4Tensor` | bitsandbytes: `quantize_nf4` |
# | `gptq`, `awq` | - | GPTQModel, AutoAWQ, llm-compressor |
# | `mx_quantize` | torchao: `MXTensor` | Transformer Engine: `MXFP8BlockScaling` |
# | 8-bit Adam | torchao: `AdamW8bit` | bitsandbytes: `AdamW8bit` |
# | `int8_all_gather` | - | DeepSpeed: `zero_quantized_weights` |
# | `prune_2_4` | `to_sparse_semi_structured` | NVIDIA ASP, cuSPARSELt |
