"""What a process should not be able to do: many tries in one file, each prints what it reached."""

from __future__ import annotations

import textwrap

from jaxpar.classroom.attacks.attack import COORDINATES, UNFENCED, VALUE, VALUE_POINTS, Attack
from jaxpar.classroom.attacks.escapes import KERNEL
from jaxpar.classroom.attacks.tries_files import FILES

REACHED = "REACHED "
TOOLS = """
ctypes, socket, resource = load("ctypes"), load("socket"), load("resource")
threading, subprocess, signal, time = map(load, ("threading", "subprocess", "signal", "time"))
libc = ctypes.CDLL(None, use_errno=True)
OTHERS = {JUDGE, os.getppid()} - {os.getpid()}

def call(name, *arguments):
    number = CALLS[name]
    return number is not None and libc.syscall(number, *arguments) >= 0

def one_of(attempt, things):
    for thing in things:
        try:
            if attempt(thing):
                return True
        except Exception:
            pass
    return False

def attempt(name, action):
    try:
        reached = action()
    except BaseException:
        reached = False
    if reached:
        print(REACHED + name, flush=True)
"""


def _written(tries: dict[str, str]) -> str:
    """The file with all tries: the body of each as a function, called at once."""
    parts = [
        f"def action():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        f"attempt({name!r}, action)\n"
        for name, body in tries.items()
    ]
    return f"{UNFENCED}{TOOLS}REACHED = {REACHED!r}\n" + "\n".join(parts) + COORDINATES


_GROUPS = FILES | KERNEL
_SOURCE = _written({name: body for tries in _GROUPS.values() for name, body in tries.items()})

TRIES = tuple(
    Attack(name, group, _SOURCE, ("pass",), VALUE_POINTS, VALUE)
    for group, tries in _GROUPS.items()
    for name in tries
)
