"""Calls that are no errors by themselves, and do not do here what a learner means by them.

Most tell of the machine or the process, where the axis of a mesh is meant. The sentence of such a
call is told where an answer is wrong for no other reason that is known.
"""

from __future__ import annotations

import re

_OF_THE_MACHINE = (
    "`jax.{name}` tells of the devices of this machine, which may be more than those of the axis; "
    "`lax.axis_size(axis)` is the number of devices on the axis."
)
_OF_THE_PROCESS = (
    "`jax.{name}` tells of the process, which may drive many devices; `lax.axis_index(axis)` is "
    "this device's place on the axis, and a rank that is an argument is the one to use."
)
_SENTENCES = {
    "device_count": _OF_THE_MACHINE,
    "local_device_count": _OF_THE_MACHINE,
    "devices": _OF_THE_MACHINE,
    "local_devices": _OF_THE_MACHINE,
    "process_index": _OF_THE_PROCESS,
    "process_count": _OF_THE_PROCESS,
}


_LOOP_OF_CHECKPOINTS = (
    "On a GPU or a TPU, a Python loop over checkpointed layers saves memory. On a CPU it does not: "
    "the compiler merges what is computed twice, and keeps it all. Loop with lax.scan, here and in "
    "all that is to run on a CPU too."
)


# Each pattern takes time linear in the length of a line, which a stranger chooses.
_CALL = re.compile(rf"^[^#\n]*\bjax\.({'|'.join(_SENTENCES)})\(", re.MULTILINE)
_LOOP = re.compile(r"^[ \t]+for (?>[^#\n]*? in )[^#\n]*:", re.MULTILINE)
_CHECKPOINT = re.compile(r"^[^#\n]*\b(checkpoint|remat)\b", re.MULTILINE)


def misleading_call(source: str, wrong: str = "values") -> str:
    """Returns the sentence of such a call in a source, or an empty text.

    The judge searches the text, and does not parse it: a stranger's file could make that take long.

    Args:
        source: the text of the answer.
        wrong: the first property that is wrong.
    """
    if wrong == "memory" and _LOOP.search(source) and _CHECKPOINT.search(source):
        return _LOOP_OF_CHECKPOINTS
    found = _CALL.search(source)
    return _SENTENCES[found[1]].format(name=found[1]) if found else ""
