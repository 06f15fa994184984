# %% [markdown]
# # Lesson 20: training for real
#
# The programs of the lessons before this one run for seconds, and nothing goes wrong. A large model
# trains for weeks on thousands of devices, and something goes wrong every few hours: a GPU fails, a
# cable is loose, a job is told to make room for another one, the loss jumps. Nobody sits beside
# such a run. It has to come back by itself, and end with the same parameters as if nothing had
# happened.
#
# That takes less than one might think. A step of training is a function of the parameters, the
# optimizer's state and the next batch. Whoever has these three can go on as if nothing had
# happened. So this lesson is about saving them in such a way that they can be trusted, about
# reading them on other devices than those that wrote them, and about knowing which batch is next.
# At the end we look at two things that a long run needs in order to converge: a learning rate that
# changes over time, and a way to leave out steps that would do harm.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

import itertools
import json
import tempfile
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import NamedSharding, P, lax

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS, failures
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.lanes import Lanes
from jaxpar.inspector import inspect
from jaxpar.long_run.checkpoint_layout import (
    block_range,
    chunks_to_read,
    fingerprint,
    newest_whole,
)
from jaxpar.long_run.data_position import epoch_order, resume_indices
from jaxpar.long_run.guarded import guarded_update
from jaxpar.long_run.learning_rates import cosine_schedule, wsd_schedule
from jaxpar.model import Settings
from jaxpar.parallel.reshard import reshard_rows_to_columns
from jaxpar.schedules import overlap
from jaxpar.train import run
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.manifest import write_manifest
from jaxpar.train.recipe import make_recipe
from jaxpar.train.text import read_library

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("fsdp=8")
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)

# %% [markdown]
# ## The idea in one picture
#
# A run of twelve steps. A device fails in the middle of step 8, and it takes a while until the run
# has found other devices and started again. At the top nothing is saved. In the middle the state is
# saved after every third step, and the devices wait for it. At the bottom they compute the next
# steps in the meantime.


# %% tags=["fold"]
def story(*, saves, behind=False):
    newest = 6 if saves else 0  # the step of the newest checkpoint when the device fails
    tasks, waits = [], ()

    def add(kind, label, seconds, lane="compute", after=()):
        tasks.append(overlap.Task(kind, label, lane, seconds, after))
        return tasks[-1]

    for fails, steps in ((True, range(1, 8)), (False, range(newest + 1, 13))):
        for step in steps:
            lost = fails and step > newest
            done = add("a step that is lost" if lost else "a step", str(step), 1.0, after=waits)
            saved = saves and step in (3, 6, 9) and add("saving", "", 0.8, "disk", (done,))
            waits = (saved,) if saved and not behind else ()
        if fails:
            add("a step that fails", "", 0.5)
            add("restart", "", 1.5)
    return overlap.run(tasks)


ways = {
    "nothing is saved": story(saves=False),
    "saved after every third step": story(saves=True),
    "saved behind the steps": story(saves=True, behind=True),
}
draw("20_failure", Lanes("Twelve steps of 1 s, and one failure", "s", ways))

# %% [markdown]
# Without checkpoints, a failure costs everything that was done before. With them it costs the steps
# since the last one, half an interval on average, and the restart. But saving takes time, too,
# unless it goes on behind the steps: the arrays are copied to the memory of the host, and the
# devices go on while the host writes.
#
# ## Predict
#
# A decoder trains with AdamW in float32 on 8 devices, with everything sharded (lesson 10).

# %%
settings = Settings(layers=2, d_model=64, heads=4, sequence=32)
print(f"The decoder has {settings.parameters:,} parameters.\n")
saved_bytes = ask(
    "Bytes of all arrays in a checkpoint, over all devices, from which the run can go on exactly"
)

# %% [markdown]
# The run saves a checkpoint after every 100 steps, and devices fail at any moment.

# %%
lost_steps = ask("Steps that are computed twice because of a failure, on average", "count")

# %% [markdown]
# An array of 512 by 512 numbers in float32 was saved by 8 devices, each of which wrote its rows to
# a file: 64 by 512. Now each of 8 devices needs its columns, 512 by 64. It takes from the files
# the bytes of its columns and no others.

# %%
files_read = ask("Files that one device must open", "count")
bytes_read = ask("Bytes that one device takes from the files")

# %% [markdown]
# And if the array is not in files, but still in the memory of the devices?

# %%
bytes_sent = ask("Bytes that one device sends so that all have their columns")

# %% [markdown]
# ## Implement
#
# ### A checkpoint by hand
#
# Each shard becomes a file, and each device writes its own. A replicated array has several equal
# shards, of which one is written: that whose `replica_id` is 0. Of each file we note its size and
# its CRC-32, a checksum: 32 bits that are computed from all bytes of the file. One changed bit
# always changes them, and other damage goes unnoticed once in four billion cases. The list of all
# files is the *manifest*. It is written last, and the folder gets its final name after that. In a
# file system renaming is one operation, which is done or not done: no other process ever sees half
# of it. (Storage such as S3 or GCS cannot rename a folder, and there only the manifest tells that a
# checkpoint is complete.) This form is for one process. If there are several, each writes its
# shards, and one of them writes the manifest when all have finished.


# %%
def save(folder, step, arrays):
    here = folder / f"step_{step}.tmp"
    here.mkdir()
    manifest = {}
    for name, array in arrays.items():
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                data = np.asarray(shard.data).tobytes()
                file = f"{name}.{shard.device.id}.bin"
                (here / file).write_bytes(data)
                manifest[file] = fingerprint(data)
    (here / "manifest.json").write_text(json.dumps(manifest))
    here.rename(folder / f"step_{step}")


show(fingerprint)

# %% [markdown]
# Let us save an array whose rows are split over the 8 devices, after steps 9 and 10.

# %%
rows, columns = NamedSharding(mesh, P("fsdp")), NamedSharding(mesh, P(None, "fsdp"))
table_now = jax.device_put(jax.random.normal(jax.random.key(0), (512, 512)), rows)
for step in (9, 10):
    save(folder, step, {"table": table_now * step})
print("step_10:", *sorted(path.name for path in (folder / "step_10").iterdir()), sep="\n  ")

# %% [markdown]
# ### What is found after a fault
#
# A process can be killed at any of these operations: while it writes a file, between two files,
# before the manifest, before the folder has its name. And a disk can return other bytes than were
# written, years later and without an error. The reader must tell in each case whether a checkpoint
# is whole, and otherwise take the one before it. This function reads what is there; to judge it is
# your exercise `newest_whole`.


# %%
def listing(folder):
    found, manifests = {}, {}
    for here in folder.iterdir():
        found[here.name] = {
            path.name: fingerprint(path.read_bytes()) for path in here.glob("*.bin")
        }
        manifest = here / "manifest.json"
        if manifest.exists():
            written = json.loads(manifest.read_text())
            manifests[here.name] = {name: tuple(facts) for name, facts in written.items()}
    return found, manifests


# %% [markdown]
# We damage the newest checkpoint in four ways, and repair it after each.


# %%
def flip(file):
    data = bytearray(file.read_bytes())
    data[1000] ^= 1  # one bit
    file.write_bytes(data)


faults = {
    "nothing": lambda file: None,
    "one bit is another": flip,
    "a file is cut in half": lambda file: file.write_bytes(file.read_bytes()[: 64 * 512 * 2]),
    "a file is missing": lambda file: file.unlink(),
    "the manifest is missing": lambda file: (file.parent / "manifest.json").unlink(),
}
chosen = {}
for fault, damage in faults.items():
    here = folder / "step_10"
    good = {path: path.read_bytes() for path in here.iterdir()}
    damage(here / "table.3.bin")
    chosen[fault] = newest_whole(*listing(folder))
    for path, data in good.items():
        path.write_bytes(data)

# %% tags=["fold"]
table("What was wrong with step 10, and which step is taken", ("fault", "step"), chosen.items())
assert [*chosen.values()] == [10, 9, 9, 9, 9]

# %% [markdown]
# The flipped bit is the reason for the checksum. A file with one wrong bit has the right size and
# can be read without complaint, and a parameter of 0.01 may have become 3.4e36. Orbax, the usual
# library for checkpoints in JAX, has no checksum of the numbers, and loads such a file, too.
#
# ### Onto another mesh
#
# The devices that go on are seldom those that saved: a node is gone, or there are more now, or the
# layout is another one. What each device needs is a block of the whole array, and what it finds are
# files with other blocks. Along each dim, blocks are ranges:

# %%
show(block_range)

# %% [markdown]
# The easy way is to read all files, join them, and take one's own part. Its result is right, but
# every process holds the whole model for a moment, and a large model does not fit. So a device
# should take from each file only what belongs to its part. `chunks_to_read`, which you will write,
# says what that is. It returns triples: a chunk, the ranges to read in it, and the place of these
# in the device's part. `jax.make_array_from_callback` then asks for the part of each device, by its
# slices of the whole array. (Orbax does all this when it restores with a sharding.)


# %%
def read_columns(folder, device, taken):
    part = np.empty((512, 64), np.float32)
    for (chunk, _), inside, here in chunks_to_read((512, 512), (8, 1), (1, 8), (0, device)):
        file = np.memmap(folder / f"table.{chunk}.bin", np.float32, "r", shape=(64, 512))
        cut = tuple(slice(start, stop) for start, stop in inside)
        place = tuple(slice(start, stop) for start, stop in here)
        part[place] = file[cut]
        taken.append(part[place].nbytes)
    return part


taken = []
parts = [read_columns(folder / "step_10", device, taken) for device in range(n)]
restored = jax.make_array_from_callback(
    (512, 512), columns, lambda index: parts[index[1].start // 64]
)
np.testing.assert_array_equal(restored, table_now * 10)

# %% [markdown]
# If the devices are still there and only the layout changes, no disk is needed. Each device has
# some rows of every column block, and sends to each of the others the part that it needs.
# `reshard_rows_to_columns` is a single collective, and it is your exercise, too. (Outside of
# `shard_map`, `jax.device_put` with another sharding finds such an exchange by itself.)

# %%
in_memory = jax.shard_map(
    partial(reshard_rows_to_columns, axis="fsdp"),
    mesh=mesh,
    in_specs=P("fsdp"),
    out_specs=P(None, "fsdp"),
)
np.testing.assert_array_equal(jax.jit(in_memory)(table_now), table_now)

# %% [markdown]
# ### The position in the data
#
# A run that comes back must not see the same examples again, nor leave some out. One number is
# enough for that: how many examples have been consumed, by all devices together. Every epoch goes
# through all examples in an order that depends on the seed and the epoch only, so every process can
# compute it, at any time:

# %%
show(epoch_order)

# %% [markdown]
# After 22 examples from a data set of 10, the third epoch has begun, and two of its examples are
# consumed. The next four do not depend on the number of devices, because it is the next batch that
# is divided among them, and not the epoch. (PyTorch's `DistributedSampler` divides the epoch.
# `resume_indices` is an exercise.)

# %%
for world_size in (1, 2, 4):
    how = {"examples": 10, "batch": 4, "world_size": world_size, "seed": 0}
    print(f"{world_size} devices:", *(resume_indices(22, **how, rank=r) for r in range(world_size)))

# %% [markdown]
# Two other ways are common. A count of steps is wrong as soon as the batch has another size, and a
# stored iterator of each process is of no use as soon as there are more or fewer processes.
#
# ### The library's form
#
# `jaxpar train --checkpoint DIR --every 100 --keep 3` saves the parameters, the optimizer's state,
# the loss scale (lesson 07) and the number of examples. Orbax writes the arrays behind the steps,
# each process its own shards. The library adds what Orbax leaves out, the manifest with checksums:

# %%
show(write_manifest)

# %% [markdown]
# `fsync` waits until the manifest has reached the disk, and only then does the rename give it its
# name. A checkpoint has no random keys and no iterators. The seed gives the first
# parameters and the order of the examples, and dropout's keys would follow from the seed, the step
# and the example.
#
# ### The learning rate over time
#
# Two shapes are common. Both rise at first, because in the first steps Adam's means are made of a
# few gradients only, and a large step by them can go astray. Then a cosine falls until the planned
# end of the run:

# %%
show(cosine_schedule)

# %% [markdown]
# The other one, WSD (warm-up, stable, decay), stays at its peak, and falls only in the last tenth
# or so.

# %% tags=["fold"]
steps = range(1000)
curves = {
    "cosine": [cosine_schedule(s, peak=1, warmup=50, decay=950, final=0.1) for s in steps],
    "WSD": [wsd_schedule(s, peak=1, warmup=50, stable=850, decay=100, final=0.1) for s in steps],
}
draw("20_rates", Curves("Learning rate over its peak", "step", "rate", steps, curves))

# %% [markdown]
# A cosine has to know its end from the start. A run that is to train longer than planned cannot
# simply go on, because its rate is low already. WSD can go on from any checkpoint of its stable
# part: one branch decays now and is evaluated, while the run itself continues. `wsd_schedule` is
# your first exercise. Both are functions of the step alone, so a resumed run has the right rate
# without storing anything.
#
# ### A step that is better not taken
#
# Now and then the gradient of a batch is a hundred times as large as usual, or has a NaN. Clipping
# limits a large gradient, but does not remove a NaN. And AdamW remembers what it has seen: with
# b2 = 0.999, its mean of squares stays large for a thousand steps or more. `guarded_update` skips
# such a step altogether, as loss scaling does in float16 (lesson 07). It compares the norm of all
# gradients with `factor` times the running mean of earlier norms, and must find the same answer on
# every device. If each judged by its own shard, one could skip alone, and from then on the shards
# would belong to different steps.
#
# As a test, we fit w to w0 = 1 by gradients of which two are bad, with and without the guard.

# %%
optimizer = optax.adamw(0.1, weight_decay=0.0)
bad = {5: -200.0, 8: float("nan")}  # the factor of the gradient on one device


def wrong_on_device_3(w, factor):
    return jnp.where(lax.axis_index("fsdp") == 3, factor, 1.0) * (w - 1)


def guarded_step(w, state, factor):
    how = {"factor": 3.0, "axis": "fsdp"}
    return guarded_update(wrong_on_device_3(w, factor), w, state, optimizer, **how)


def trusting_step(w, state, factor):
    inner, mean = state
    changes, inner = optimizer.update(wrong_on_device_3(w, factor), inner, w)
    return optax.apply_updates(w, changes), (inner, mean), jnp.bool_(True)


def errors_of(step_of):
    now = jnp.zeros(64)
    state = optimizer.init(now), jnp.float32(0)
    specs = jax.tree.map(lambda leaf: P("fsdp") if leaf.ndim else P(), (now, state))
    sharded = jax.shard_map(step_of, mesh=mesh, in_specs=(*specs, P()), out_specs=(*specs, P()))
    go = jax.jit(sharded)
    for step in range(12):
        now, state, good = go(now, state, jnp.float32(bad.get(step, 1.0)))
        yield bool(good), np.max(abs(np.asarray(now) - 1))


# %% tags=["fold"]
guarded, trusting = list(errors_of(guarded_step)), list(errors_of(trusting_step))
shown = [
    (
        step,
        {-200.0: "times -200"}.get(bad.get(step), bad.get(step, "")),
        "yes" if good else "no",
        f"{without:.3f}",
        f"{error:.3f}",
    )
    for step, ((good, error), (_, without)) in enumerate(zip(guarded, trusting, strict=True))
]
heads = ("step", "gradient of device 3", "taken with the guard", "error without", "error with")
table("Two bad gradients, and the largest |w - 1| on 8 devices", heads, shown)
assert [row[0] for row in shown if row[2] == "no"] == [5, 8]

# %% [markdown]
# Without the guard, the wrong gradient of step 5 drives device 3's eighth of w away from 1, also in
# the steps after it, since AdamW goes on moving by its mean of gradients. After step 8 that eighth
# is NaN for good. With the guard all devices skip both steps, and take the other ten. The batch of
# a skipped step is consumed all the same.
#
# Take care with NaN: `<`, `<=` and `>` are all false for it. So "skip if the norm is above the
# limit" would take the step, and where there is no mean yet, nothing is compared at all. That is
# why a step is good only if its norm is *finite*, and at most the limit. `jaxpar train
# --skip-spikes 3` guards every step in this way, on any mesh.
#
# ## Measure
#
# ### A run that is stopped, and goes on elsewhere
#
# A run on 8 devices with FSDP saves after every third step, and is stopped after the fifth, so that
# two steps are lost. It goes on from step 3 on the same mesh, and then once more on another mesh,
# with tensor parallelism and another stage of ZeRO. What the lost steps found is the measure.


# %%
def train(mesh_text, steps, keeping, **options):
    recipe = make_recipe(mesh_text, batch=16, **options)
    its_mesh = make_mesh(recipe.layout.mesh_sizes)
    begun = run.begin(settings, recipe, its_mesh, read_library(), seed=0, keeping=keeping)
    losses = [float(step.loss) for step in itertools.islice(begun.proceed(6), steps)]
    begun.close()
    return losses


stopped = train("fsdp=8", 5, Keeping(folder / "run", every=3))
again = Keeping(folder / "run", every=3, resume=True)
resumed = {"fsdp=8": train("fsdp=8", 2, again), "dp=4,tp=2": train("dp=4,tp=2", 2, again, zero=1)}

# %% tags=["fold"]
lines = {"stopped after step 5": stopped}
lines |= {f"resumed on {name}": [None, None, None, *losses] for name, losses in resumed.items()}
shown = [(name, *(f"{x:.6f}" if x else "" for x in losses)) for name, losses in lines.items()]
table("Losses of steps 1 to 5", ("", *"12345"), shown)
assert resumed["fsdp=8"] == stopped[3:]
assert np.allclose(resumed["dp=4,tp=2"], stopped[3:], rtol=1e-5)

# %% [markdown]
# On the same mesh, the resumed losses are equal to the last bit. On another mesh they differ by
# rounding only, because sums are added in another order (lesson 02).
#
# ### The bytes

# %%
manifest = json.loads((folder / "run" / "step-00000003" / "manifest.json").read_text())
on_disk = sum(size for size, _ in manifest["contents"]["files"].values())
exact = 12 * settings.parameters
reshard_report = inspect(jax.jit(in_memory), table_now)
print(f"Parameters and two means have {exact:,} bytes. Orbax wrote {on_disk:,}:")
print(f"{on_disk / exact:.2f} times as many: it adds names, shapes and an index.\n")

# %% [markdown]
# ## Compare

# %%
saved_bytes.compare(
    exact, {"parameters": exact / 3, "mean of gradients": exact / 3, "mean of squares": exact / 3}
)
lost_steps.compare(50)
files_read.compare(len(taken) / n)
bytes_read.compare(sum(taken) / n)
bytes_sent.compare(sum(sent_by(reshard_report).values()), sent_by(reshard_report))
assert sum(taken) == 512 * 512 * 4

# %% [markdown]
# Gradients and activations are not saved, since they are computed anew in each step. (AdamW's count
# of steps is, with its 4 bytes.) Every device opens all eight files, but takes only an eighth of
# each, so that all devices together take each byte once. (A disk is read in pages of 4,096 bytes,
# each of which has two of these rows, so here the disk delivers more than is taken. With wide
# columns it does not.) In memory a device sends only 7/8 of its bytes, because it keeps its own
# eighth.
#
# ## On real hardware
#
# ### How often, and how long
#
# Llama 3 405B was trained on 16,384 H100, with 419 unplanned interruptions in 54 days: one in about
# three hours. With 14 bytes for each parameter (2 in bfloat16, and in float32 the weight and two
# means of AdamW), a checkpoint would have 5.7 TB. Its storage took 2 TB in a second, so if all
# devices write at once, that is 2.8 s. If a checkpoint takes C seconds and a failure comes every M
# seconds, an interval of the square root of 2CM loses least (Young and Daly; lesson 19): here 252
# seconds.

# %%
saving = failures(14 * 405.9e9, 16_384, DEVICE_MTBF_HOURS)
print(f"A failure every {saving.mtbf_seconds / 3600:.1f} hours; a checkpoint takes", end=" ")
print(f"{saving.checkpoint_seconds:.1f} s, best every {saving.interval_seconds:.0f} s.")
assert round(saving.interval_seconds) == 252

# %% [markdown]
# If one process gathered everything and wrote it alone, with 2 GB/s to a local disk, it would take
# 47 minutes, and no host has the memory. That is why every device writes its own shards.
#
# Saving behind the steps costs the copy to the host only: 347 MB from each device over PCIe 5.0 at
# 63 GB/s take 6 ms. (On a CPU, host and device share one memory, so this cannot be seen here.) It
# has a price: an error of the disk comes seconds after the call that saves, so the program must ask
# for it. A run that never asks may save nothing for days, and print no error.
#
# ### When a process fails
#
# In SPMD all processes run the same program, and each collective needs all of them. So one that
# fails stops all others. How they learn of it differs:
#
# | what happens | what the others see | what helps |
# |---|---|---|
# | a process is killed | an error of the collective, or they wait | restart from a checkpoint |
# | a machine loses its network | missing heartbeats, then JAX ends the others | the same |
# | a process hangs in Python | nothing: they wait for ever | a watchdog in each process |
# | the scheduler sends SIGTERM | nothing yet | save the running step, then end |
# | one device is slow | every step is as slow as this one | time each process, and replace it |
# | a device computes wrong numbers | losses unlike those of a repetition | repeat some steps |
#
# `jaxpar launch --processes 2 --devices 4 train --checkpoint DIR` starts two processes of four
# simulated devices each. With `--max-restarts 3` after `launch`, kill one of them: all are started
# again from the newest whole checkpoint, and the losses are those of an undisturbed run, bit for
# bit. The watchdog in each process says on which line it stands, and ends it, if no step is
# completed for too long. A SIGTERM is answered by a checkpoint of the running
# step, and exit code 143, from which a scheduler knows that the run wants to go on.
#
# ### When it does not start
#
# | symptom | cause to look for |
# |---|---|
# | all wait in `jax.distributed.initialize` | a process is missing, or has a wrong address |
# | connection refused | the coordinator has not started, or a firewall closes its port |
# | it connects, and the first collective hangs | the wrong network interface for NCCL or Gloo |
# | small arrays pass, large ones hang | the MTU differs along the way |
# | an error about different programs | the versions of JAX or of the text differ |
# | one link has a tenth of the others' bandwidth | a cable or a card; measure each pair |
#
# Try `jaxpar train --mesh fsdp=8 --checkpoint run --every 20 --steps 100`, press Ctrl-C or kill it,
# and add `--resume`. Then resume once more, on another `--mesh`.
#
# ## Exercises

# %%
exercises("20")
scratch.cleanup()

# %% [markdown]
# ## On paper
#
# 1. You train a model of 8 billion parameters on 64 H100 in mixed precision with AdamW (14 bytes
#    for each parameter in a checkpoint). The network storage takes 5 GB/s, and a failure comes
#    every 30 hours. How long does a checkpoint take if the run waits for it, how often do you save,
#    and what part of the time is lost by saving and by repeated work? What if it saves behind the
#    steps?
#
# <details><summary>Answer</summary>
#
# 14 * 8 = 112 GB take 22.4 s. Young and Daly: the root of 2 * 22.4 * 108,000 is 2,200 s, 37
# minutes. Saving costs 22.4 / 2,200 = 1%, and repeated work 1,100 / 108,000 = 1%, 2% in all. Behind
# the steps saving costs next to nothing, so you can save as often as the storage can take it, every
# 22.4 s. A failure then costs half an interval, and the 22.4 s of a checkpoint that was not yet
# complete: 33.6 s, or 0.03% of 30 hours. Every five minutes is often enough: 172 s, or 0.16%.
#
# </details>
#
# 2. A colleague stores the number of steps and computes the position in the data from it: steps
#    times batch. After 10,000 steps with a batch of 512, the run moves to more devices and goes on
#    with 1,024. Which examples does it take next, and which ones should it take?
#
# <details><summary>Answer</summary>
#
# It takes those from 10,000 * 1,024 = 10,240,000 on, and should take those from 5,120,000 on. It
# leaves out 5,120,000 examples. With the number of examples consumed in the checkpoint, neither the
# batch nor the number of devices matters.
#
# </details>
#
# 3. A matrix of 8192 by 28672 numbers in bfloat16 was saved from a mesh with 64 devices along its
#    rows. It is restored on a mesh with tp=8 along its columns and fsdp=4 along its rows. How many
#    files does a device open, how many bytes does it read, and how many would it read if it read
#    whole files?
#
# <details><summary>Answer</summary>
#
# A device needs 8192 / 4 = 2,048 rows, and a file has 8192 / 64 = 128 of them, so it opens 16
# files. It reads 2,048 * 3,584 * 2 = 14.7 MB. Whole files would be 8 times as many bytes, 117 MB.
# Since a file has its rows one after the other, each row gives one piece of 7,168 bytes. That is
# why formats such as Zarr, which Orbax writes, can cut arrays into chunks along both dims.
#
# </details>
#
# ## Sources
#
# Young 1974, *A First Order Approximation to the Optimum Checkpoint Interval*. Daly 2006, *A higher
# order estimate of the optimum checkpoint interval for restart dumps*. Grattafiori et al. 2024,
# *The Llama 3 Herd of Models*, sections 3.3.1 and 3.3.4. Chowdhery et al. 2022, *PaLM: Scaling
# Language Modeling with Pathways*, section 5.1 (at a spike of the loss they went back about 100
# steps, and left out 200 to 500 batches). Hu et al. 2024, *MiniCPM: Unveiling the Potential of
# Small Language Models with Scalable Training Strategies*, section 4 (WSD; its decay is exponential
# there). Loshchilov and Hutter 2017, *SGDR: Stochastic Gradient Descent with Warm Restarts*. Zhuang
# et al. 2023, *On Optimizing the Communication of Model Parallelism* (resharding). The
# documentation of Orbax, "Checkpoint format guide", and of TensorStore.
#
# | here | PyTorch | others |
# |---|---|---|
# | checkpoint of shards | `torch.distributed.checkpoint` | Orbax; Megatron: `dist_checkpointing` |
# | onto another mesh | resharding on load, by its planner | DeepSpeed: universal checkpoints |
# | behind the steps | `async_save` | Orbax: `AsyncCheckpointer` |
# | rows to columns in memory | `DTensor.redistribute` | `jax.device_put`, another sharding |
# | position in the data | `StatefulDataLoader` | Grain: the state of an iterator |
# | a step that is skipped | `GradScaler`, for inf and NaN | optax: `apply_if_finite` |
# | restart | `torchrun --max-restarts` | Kubernetes: JobSet; Slurm: `--requeue` |
# | WSD | `SequentialLR` | optax: `join_schedules`; Megatron: `--lr-decay-style WSD` |
