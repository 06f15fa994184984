"""Files that take the worker's place, and thereby get the frame that tells the hidden cases."""

from __future__ import annotations

from jaxpar.classroom.attacks.attack import LIMITS, MARK, PROGRAM_POINTS, SLEEP, WORKER, Attack
from jaxpar.grading.processes import Limits
from jaxpar.grading.verdict import Status

# Answers in the worker's place. `forged` is sent for the first frame where nobody will look at it.
_TOLD = f"""
def forged(case=0):
    output = {{"shape": [1], "dtype": "float32", "varying": [], "place": ""}}
    send({{"program": ["forward", case], "outputs": [output]}}, b"x")

def honest():
    for said, blob in exported():
        send(said, blob)

def done(quietly=False):
    if not quietly:
        os.write(2, worker["END_OF_OUTPUT"])
    send({{"done": True}})

def told(quietly=False):
    done(quietly)
    job.update(worker["receive"](frame.f_locals["requests"]))
    return "{MARK}" + str(job["cases"])

def failure(case, message, kind="unknown", which="forward"):
    send({{"failure": [which, case], "kind": kind, "message": message, "raised": message,
          "is_value_error": False}})

def value(case, text, kind="unknown"):
    send({{"value": case, "kind": kind, "explained": text, "raised": text,
          "is_value_error": False}})
"""


def _takes(name: str, body: str, *ends: Status, honest: int = 0, limits: Limits = LIMITS) -> Attack:
    """Makes an attack that takes the worker's place, and answers both frames itself."""
    source = f"{WORKER}{_TOLD}{body}\nend()\n"
    return Attack(name, "hidden cases", source, ends, honest, limits=limits, hidden=True)


def _after_forging(name: str, body: str, *ends: Status) -> Attack:
    """Makes such an attack that first sends the forged program, and in the end is done."""
    return _takes(name, f"\nforged()\n{body.strip()}\ndone()", *ends)


TOLD = (
    _after_forging("print the hidden cases", "print(told(), flush=True)", "fail"),
    _takes("print the hidden cases, and never that all is printed", """
forged()
print(told(quietly=True), flush=True)
done(quietly=True)""", "fail"),
    _takes("say first of all that all is printed, then print", """
os.write(2, worker["END_OF_OUTPUT"])
forged()
print(told(), flush=True)
done()""", "fail"),
    _takes("print from a thread while the hidden cases come", """
forged()
heard = []
def listen():
    heard.append(told())
    while True:
        os.write(1, heard[0].encode())
load("threading").Thread(target=listen, daemon=True).start()
load("time").sleep(2)""", "killed"),
    _takes("the hidden cases as last words", """
forged()
secret = told(quietly=True)
os.write(2, secret.encode())
os.abort()""", "killed"),
    _takes("the hidden cases as the message of a failure, and no program", """
send({"value": 0, "result": 1})
failure(2, told())
done()""", "fail", "killed", "protocol", "error"),
    _takes("the same with memory for an excuse", """
send({"value": 0, "result": 1})
failure(2, told(), "memory", "gradient")
done()""", "fail", "killed", "protocol", "error"),
    _after_forging("the hidden cases as what is not written yet",
                   'value(2, told(), "not-implemented")', "fail", "protocol"),
    _takes("the hidden cases as the name of an exception", """
honest()
failure(2, told())
done()""", "fail"),
    _takes("the hidden cases as results, their axes and their places", """
honest()
secret = told()
for said, blob in exported():
    said["outputs"][0] |= {"place": secret, "varying": [secret]}
    send(said, blob)
done()""", "fail", "killed"),
    _takes("the hidden cases as a field of a result", """
honest()
secret = told()
for said, blob in exported():
    said["outputs"][0][secret] = secret
    send(said, blob)
done()""", "protocol"),
    _takes("the hidden cases as a broken frame", """
forged()
secret = told().encode()
raw(b"J" + len(secret).to_bytes(4, "big") + secret)""", "protocol"),
    _takes("the hidden cases as the kind of a frame", """
forged()
send({told(): 1})""", "protocol"),
    _after_forging("a late failure of a case that is shown", "failure(1, told())", "protocol"),
    _after_forging("a late failure to load", 'failure(0, told(), which="load")', "protocol"),
    _after_forging("late words about a call that must raise",
                   'send({"error": 0, "raised": told(), "is_value_error": True})', "protocol"),
)  # fmt: skip
ANSWERED = (
    _takes("answer both frames as the worker does", """
honest()
told()
honest()
done()""", "pass", honest=PROGRAM_POINTS),
    _takes("take the second frame from the descriptor itself", """
honest()
done()
pipe = frame.f_locals["requests"].fileno()
kind, *length = os.read(pipe, 5)
text = b""
while len(text) < int.from_bytes(length, "big"):
    text += os.read(pipe, 1 << 16)
job.update(load("json").loads(text))
honest()
done()
print(text.decode(), flush=True)""", "pass", honest=PROGRAM_POINTS),
    _after_forging("answer before being asked", "forged(2)", "protocol"),
    _takes("be done twice at once", """
honest()
done()
done()""", "fail"),
    _takes("go on after the last word", """
forged()
told()
done()
for _ in range(1000): send({"done": True, "score": 10})""", "fail"),
    _after_forging("each hidden program twice", """
told()
for said, blob in exported():
    send(said, blob)
    send(said, blob)""", "protocol"),
    _takes("programs of cases that are shown, late", """
honest()
shown = dict(job)
told()
job.update(shown)
honest()
done()""", "protocol"),
    _takes("programs that were shown for hidden cases", """
kept = list(exported())
honest()
told()
for said, blob in kept[:2]:
    send(said | {"program": [said["program"][0], 2]}, blob)
done()""", "fail"),
    _takes("nothing for hidden cases", """
honest()
told()
done()""", "fail"),
    _after_forging("programs for hidden cases only", """
told()
honest()""", "fail"),
    _takes("close the pipe of the second frame", """
forged()
os.close(frame.f_locals["requests"].fileno())
done()
load("time").sleep(1000)""", "killed", "timeout", limits=SLEEP),
    _takes("never take the second frame", """
forged()
done()
load("time").sleep(1000)""", "timeout", limits=SLEEP),
    _takes("noise for hidden cases", """
forged()
told()
while True: raw(os.urandom(1 << 16))""", "protocol"),
    _takes("print without an end in hidden cases", """
honest()
secret = told()
for _ in range(64): print(secret * (1 << 12))
honest()
done()""", "pass", honest=PROGRAM_POINTS),
    _takes("functions that change between the frames", """
answer = answering._programs
def changed(function, job):
    if job.first:
        yield messages.ReturnedValue(2, str(job.cases)), None
        yield messages.BadCallOutcome(0, None, True, False), None
    yield from answer(function, job)
answering._programs = changed
mean_over_devices = mean
end = lambda: None""", "fail", "protocol"),
)  # fmt: skip
FORGED_HIDDEN_REPLIES = TOLD + ANSWERED
