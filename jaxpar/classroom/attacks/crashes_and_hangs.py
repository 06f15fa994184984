"""Files that crash, hang or fill the process that runs them."""

from __future__ import annotations

from jaxpar.classroom.attacks.attack import (
    COORDINATES,
    LOOP,
    SLEEP,
    UNFENCED,
    VALUE,
    VALUE_POINTS,
    Attack,
)
from jaxpar.grading.processes import Limits
from jaxpar.grading.verdict import Status

_TOOLS = """
signal, time, threading = map(load, ("signal", "time", "threading"))
"""


def _attack(
    name: str,
    body: str,
    *ends: Status,
    limits: Limits = LOOP,
    group: str = "ending",
    honest: int = 0,
) -> Attack:
    source = f"{UNFENCED}{_TOOLS}{body}\n{COORDINATES}"
    return Attack(name, group, source, ends, honest, VALUE, limits)


CRASHES_AND_HANGS = (
    _attack("sys.exit", "sys.exit(0)", "error"),
    _attack("os._exit", "os._exit(0)", "killed"),
    _attack("abort", "os.abort()", "killed"),
    _attack("kill oneself", "os.kill(os.getpid(), 9)", "killed"),
    _attack("kill one's group", "os.killpg(0, 9)", "killed"),
    _attack("crash by a null pointer", 'load("ctypes").string_at(0)', "killed"),
    _attack("execute another program", 'os.execv("/bin/true", ["true"])', "error"),
    _attack("claim to be done at exit", """
load("atexit").register(print, "done")
raise KeyboardInterrupt""", "error"),
    _attack("stop oneself", "os.kill(os.getpid(), signal.SIGSTOP)", "timeout", limits=SLEEP),
    _attack("sleep", "time.sleep(1000)", "timeout", limits=SLEEP),
    _attack("leave the session and sleep", """
try:
    os.setsid()
except OSError:
    pass
time.sleep(1000)""", "timeout", limits=SLEEP),
    _attack("loop without an end", "while True: pass", "timeout"),
    _attack("loop in C", "10 ** 10 ** 10", "timeout"),
    _attack("loop that ignores signals", """
for number in range(1, 64):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass""", "killed", "timeout"),
    _attack("loop that catches everything", """
def handler(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGXCPU, handler)
def stubborn():
    try:
        while True: pass
    finally:
        stubborn()
stubborn()""", "killed", "timeout", "error"),
    _attack("loop in threads that outlive the main one", """
def loop():
    while True: pass
for _ in range(8):
    threading.Thread(target=loop).start()
sys.exit(0)""", "error", "timeout"),
    _attack("recursion without an end", """
sys.setrecursionlimit(10**9)
def deeper(n):
    return deeper(n + 1)
deeper(0)""", "killed", "memory", "timeout", "error"),
    _attack("more address space than there is", "bytearray(1 << 45)", "memory",
          group="resources"),
    _attack("memory filled bit by bit", """
limit = load("resource").RLIMIT_AS
held = []
while True:
    held.append(b"x" * (1 << 27))""", "memory", "killed", group="resources",
          limits=Limits(60, 2 << 30, 20)),
    _attack("print without an end", 'while True: print("x" * (1 << 16))', "timeout",
          group="resources"),
    _attack("print 64 MB", 'for _ in range(64): print("x" * (1 << 20))', "pass", group="resources",
          honest=VALUE_POINTS),
)  # fmt: skip
