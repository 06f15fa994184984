"""Files that take the worker's place and send forged replies to the judge."""

from __future__ import annotations

import textwrap

from jaxpar.classroom.attacks.attack import LOOP, PROGRAM_POINTS, SLEEP, VALUE, WORKER, Attack
from jaxpar.grading.processes import Limits
from jaxpar.grading.verdict import Status

# Answers the calls itself, with the results changed by `lie`.
_VALUES = """
def answer(lie):
    for position in job["order"]:
        send({"value": position, "result": lie})
    send({"done": True})
    end()
"""


def _values(name: str, body: str, *ends: Status, honest: int = 0, limits: Limits = LOOP) -> Attack:
    source = f"{WORKER}{_VALUES}{body}\nend()\n"
    return Attack(name, "channel", source, ends, honest, VALUE, limits)


def _json(name: str, text: str) -> Attack:
    """Makes an attack that sends one JSON frame, whose text is given as an expression."""
    frame = 'raw(b"J" + len(text).to_bytes(4, "big") + text)'
    return _values(name, f"\ntext = {text}\n{frame}", "protocol")


def _programs(name: str, body: str, *ends: Status, honest: int = 0) -> Attack:
    """Makes an attack that sends programs for each frame of cases."""
    source = f"{WORKER}\nfor _ in frames():\n{textwrap.indent(body, '    ')}\n"
    return Attack(name, "channel", source, ends, honest)


def _described(name: str, change: str, *ends: Status) -> Attack:
    """Makes an attack that sends honest programs, each with a changed description."""
    loop = "\nfor described, blob in exported():"
    return _programs(name, f"{loop}\n    {change}\n    send(described, blob)", *ends)


FORGED_REPLIES = (
    _values("say nothing", "", "killed"),
    _values("say only that it is done", 'send({"done": True})', "fail"),
    _values("close every descriptor and go on", """
os.closerange(0, 1024)
while True: pass""", "killed", "timeout", "protocol"),
    _values("close the pipe and sleep", """
os.close(replies.fileno())
load("time").sleep(1000)""", "killed", "timeout", limits=SLEEP),
    _values("replace the pipe", """
os.dup2(os.open("/dev/null", os.O_WRONLY), replies.fileno())
send({"done": True})""", "killed"),
    _values("send a byte at a time", """
while True:
    raw(b"J")
    load("time").sleep(1)""", "timeout", "protocol", limits=SLEEP),
    _values("send part of a frame and wait", """
raw(b"J" + (100).to_bytes(4, "big") + b"{")
load("time").sleep(1000)""", "timeout", limits=SLEEP),
    _values("send part of a frame and end", """
raw(b"J" + (100).to_bytes(4, "big") + b"{")""", "protocol"),
    _values("part of a header", 'raw(b"J\\0")', "protocol"),
    _values("a frame of 4 GB", 'raw(b"J\\xff\\xff\\xff\\xff")', "protocol"),
    _values("a frame of an unknown kind", 'raw(b"P\\0\\0\\0\\4abcd")', "protocol"),
    _values("noise", """
while True: raw(os.urandom(1 << 16))""", "protocol"),
    _values("frames without an end", 'while True: send({"value": 0, "result": 1})', "protocol"),
    _values("blobs without an end", 'while True: send({"x": 1}, bytes(1 << 23))', "protocol"),
    _values("no JSON", 'raw(b"J\\0\\0\\0\\4{{{{")', "protocol"),
    _values("JSON of another encoding", 'raw(b"J\\0\\0\\0\\4\\xff\\xfe\\xfd\\xfc")', "protocol"),
    _values("JSON that is NaN", 'raw(b"J\\0\\0\\0\\3NaN")', "protocol"),
    _json("JSON that is infinite", """b'{"value": 1e999, "result": 1e999}'"""),
    _json("JSON of a number with a million digits",
          '''b'{"value": 0, "result": ' + b"9" * 10**6 + b"}"'''),
    _json("JSON nested too deep", 'b"[" * 100_000 + b"]" * 100_000'),
    _json("JSON of a million lists", 'b"[" + b"[]," * 1_000_000 + b"[]]"'),
    _values("a list where a reply must be", "send([1, 2, 3])", "protocol"),
    _values("megabytes of lists for every call", """
for position in job["order"][:3]:
    text = b'{"value": %d, "result": %s}' % (position, b"[" + b"[]," * 900_000 + b"[]]")
    raw(b"J" + len(text).to_bytes(4, "big") + text)
send({"done": True})""", "protocol"),
    _values("numbers that are no numbers", 'send({"value": [], "result": 1})', "protocol"),
    _values("an exception without a name", """
send({"value": 0, "raised": [], "is_value_error": 1})""", "protocol"),
    _values("results that are too deep", """
deep = 1
for _ in range(29): deep = [deep]
answer(deep)""", "fail"),
    _values("huge integers", "answer([10**4000] * 3)", "fail"),
    _values("the words of the judge as results", 'answer("raises ValueError")', "fail"),
    _values("every reply twice, the second another", """
for position in job["order"]:
    send({"value": position, "result": [0]})
    send({"value": position, "result": [1]})
send({"done": True})""", "protocol"),
    _values("failures for everything", """
send({"failure": ["load", 0], "kind": "memory", "message": "<script>" + "x" * 10**6,
      "raised": None, "is_value_error": False})
send({"done": True})""", "memory"),
    _programs("programs in another order", """
for described, blob in reversed(list(exported())): send(described, blob)""", "pass",
               honest=PROGRAM_POINTS),
    _programs("each program twice", """
for described, blob in exported():
    send(described, blob)
    send(described, blob)""", "protocol"),
    _described("programs of cases that do not exist",
               'described["program"][1] += 10**6', "protocol"),
    _programs("a program without its bytes", """
for described, blob in exported(): send(described)""", "protocol"),
    _programs("programs of 17 MB", """
for described, blob in exported(): send(described, blob + bytes(17 << 20))""", "protocol"),
    _described("outputs of an unknown type",
               'described["outputs"][0]["dtype"] = "object"', "fail"),
    _described("outputs of negative shape", 'described["outputs"][0]["shape"] = [-1]', "fail"),
    _described("outputs of a hundred dims",
               'described["outputs"][0]["shape"] = [1] * 100', "fail", "killed"),
    _described("outputs over axes that do not exist",
               'described["outputs"][0]["varying"] = ["\\x1b[2J", "zz"]', "fail", "killed"),
    _described("a thousand outputs", 'described["outputs"] *= 1000', "fail"),
)  # fmt: skip
