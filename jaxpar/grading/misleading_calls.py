"""Calls that tell of the machine or the process, where a learner means the axis of a mesh.

Such a call is no error by itself. Its sentence is told where an answer is wrong for no other reason
that is known.
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


_CALL = re.compile(rf"^[^#\n]*\bjax\.({'|'.join(_SENTENCES)})\(", re.MULTILINE)


def misleading_call(source: str) -> str:
    """Returns the sentence of such a call in a source, or an empty text.

    The judge searches the text, and does not parse it: a stranger's file could make that take long.
    """
    found = _CALL.search(source)
    return _SENTENCES[found[1]].format(name=found[1]) if found else ""
