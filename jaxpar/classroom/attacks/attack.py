"""What an attack is, and what the files of several attacks have in common.

The other files of this folder build their attacks from the class and the sources here, and `suite`
runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jaxpar.grading.processes import Limits
from jaxpar.grading.verdict import Status

PROGRAM = "jaxpar.contracts.collectives.mean_over_devices"
VALUE = "jaxpar.contracts.devices_and_meshes.device_coordinates"
PROGRAM_POINTS, VALUE_POINTS = 10, 5
MARK = "1897364"
"""Stands before what an attack tells of a hidden case; a number, so that a line can be it, too."""

LIMITS = Limits(wall_seconds=60, memory_bytes=4 << 30, cpu_seconds=20)
LOOP = Limits(wall_seconds=60, memory_bytes=4 << 30, cpu_seconds=2)
SLEEP = Limits(wall_seconds=5, memory_bytes=4 << 30, cpu_seconds=5)
READ_LOOP = Limits(wall_seconds=60, memory_bytes=4 << 30, cpu_seconds=5)


@dataclass(frozen=True)
class Attack:
    """One thing that a stranger may try.

    Attributes:
        name: the name of the attack, unlike any other's.
        group: what the attack is aimed at.
        source: the file that is handed in; a file that several attacks share runs only once.
        ends: the statuses that the verdict may have.
        honest: the points that an honest file with the same values would earn.
        where: where the contract of the exercise is.
        limits: the limits on the processes that judge it.
        says: a pattern that must occur in the record.
        hand_in: makes the folder that is handed in, if that is more than one file.
        hidden: whether it is judged on hidden cases, too, as it is in a class.
    """

    name: str
    group: str
    source: str
    ends: tuple[Status, ...]
    honest: int = 0
    where: str = PROGRAM
    limits: Limits = LIMITS
    says: str = ""
    hand_in: Callable[[Path], None] | None = None
    hidden: bool = False


# The right answers, which attacks give besides what they try.
MEAN = """
from jax import lax

def mean_over_devices(x, *, axis):
    return lax.psum(x, axis) / lax.axis_size(axis)
"""
COORDINATES = """
def device_coordinates(rank, sizes):
    place = []
    for size in reversed(sizes):
        rank, position = divmod(rank, size)
        place.insert(0, position)
    if rank:
        raise ValueError("no such device")
    return tuple(place)
"""

# Undoes what keeps honest answers honest within the worker, so that only the sandbox is left.
UNFENCED = """
import collections
sys = collections._sys
load = sys.modules["builtins"].__import__
gc, os = load("gc"), load("os")
gc.unfreeze()
for found in gc.get_objects():
    if type(found) is type(lambda: 0) and found.__name__ == "audit" and found.__closure__:
        found.__globals__["DENIED_EVENTS"] = ()
        found.__closure__[0].cell_contents = "\\0"
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Closed"]
LIBRARY = os.path.dirname(sys.modules["jaxpar"].__file__)
"""

# Takes over the worker: its pipe, its job, and the functions that answer the job.
WORKER = (
    UNFENCED
    + """
re = load("re")
from jax import lax
frame = sys._getframe()
while "replies" not in frame.f_locals:
    frame = frame.f_back
worker, replies = frame.f_globals, frame.f_locals["replies"]
messages, answering = frame.f_locals["messages"], frame.f_locals["worker_replies"]
job, programs = messages.encode(frame.f_locals["job"]), answering.program_export

def send(value, blob=None):
    worker["send_json"](replies, value)
    if blob is not None:
        worker["send_blob"](replies, blob)

def raw(data):
    replies.write(data)
    replies.flush()

def end():
    replies.flush()
    os._exit(0)

def mean(x, *, axis):
    return lax.psum(x, axis) / lax.axis_size(axis)

def description(which, i, program):
    return messages.encode(messages.ExportedProgram((which, i), program.outputs))

def exported(function=mean):
    for i, data in enumerate(job["cases"], job["first"]):
        case = messages.decode(messages.Case, data)
        forward = programs.export_forward(function, case)
        yield description("forward", i, forward), forward.module
        if job["gradient"]:
            both = programs.export_gradient(function, case, job["gradient"], forward.outputs)
            yield description("gradient", i, both), both.module

def frames():
    while True:
        yield
        send({"done": True})
        drawn = worker["receive"](frame.f_locals["requests"])
        if drawn is None:
            end()
        job.update(drawn)
"""
)
