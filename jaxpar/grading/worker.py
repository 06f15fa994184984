"""The worker: the process that runs the learner's Python, and never holds an expected value.

The judge starts it as `python -m jaxpar.grading.worker`, and `evidence` checks what it sends. It
reads one job from its standard input, loads the learner's file, and sends exported programs or
plain values through what was its standard output; what the answer prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from jaxpar.grading.channel import END_OF_OUTPUT, receive, send_blob, send_json
from jaxpar.grading.imports import close_library, learner_builtins, refused_text
from jaxpar.grading.lifetime import begin_child, importing, limit_process

if TYPE_CHECKING:
    from jaxpar.grading.messages import WorkerJob
    from jaxpar.grading.worker_replies import Reply


def main() -> None:
    """Answers one job, then ends this process; if the parent ends, so does this process."""
    requests, replies = begin_child()
    with importing():  # so a spare worker has imported them before its job comes
        from jaxpar.grading import messages, plain_replies, worker_replies  # noqa: F401

    send_json(replies, messages.encode(messages.Ready()))
    frame = receive(requests)
    if frame is None:
        return
    job: WorkerJob = messages.decode(messages.WorkerJob, frame)
    limit_process(job.memory_bytes, job.cpu_seconds)
    for message, blob in _replies(job, requests):
        send_json(replies, messages.encode(message))
        if blob is not None:
            send_blob(replies, blob)
    sys.stdout.flush()
    os._exit(0)


def _replies(job: WorkerJob, requests: IO[bytes]) -> Iterator[Reply]:
    # `main` has imported these. After `close_library` they could no longer be imported.
    from jaxpar.grading import messages, plain_replies, worker_replies

    refused = refused_text(job.source, job.imports)
    if refused:
        yield messages.ExportFailure(("load", 0), "text", refused), None
        yield messages.Done(), None
        return
    try:
        function = _load(job)
    except BaseException as error:
        yield plain_replies.load_failure(error, job.filename), None
        yield messages.Done(), None
        return
    yield from worker_replies.replies(function, job)
    yield from _end(messages)
    # The judge sends the drawn cases after those of the stub have been answered.
    while (frame := receive(requests)) is not None:
        job = job.with_drawn(messages.decode(messages.DrawnCases, frame))
        yield from worker_replies.replies(function, job)
        yield from _end(messages)


def _end(messages: ModuleType) -> Iterator[Reply]:
    """Marks the end of what has been printed so far, and yields that the job is done.

    What is printed after the mark may come from a hidden case, so the judge does not show it.
    """
    with contextlib.suppress(OSError, ValueError):  # the answer may have closed it
        sys.stdout.flush()
        os.write(2, END_OF_OUTPUT)
    yield messages.Done(), None


def _load(job: WorkerJob) -> Callable:
    """Closes the library, runs the learner's module, and returns the function of the exercise."""
    import jax

    source, filename = job.source, job.filename
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, filename, "exec")
    for name in job.modules:
        importlib.import_module(name)
    _close_files()
    if job.devices:
        from jaxpar.mesh import simulate_devices

        simulate_devices(job.devices)
        jax.devices()
    jax.debug.print = _print_now
    close_library(job.reference, job.modules)
    module = ModuleType("answer")
    module.__dict__["__file__"] = filename
    module.__dict__["__builtins__"] = learner_builtins(job.imports)
    sys.modules["answer"] = module  # dataclasses look their module up
    exec(code, module.__dict__)
    function = getattr(module, job.exercise, None)
    if not callable(function):
        raise NameError(f"the file defines no function named {job.exercise}")
    return function


def _close_files() -> None:
    """In a sandbox, closes the library's files to this process.

    It has only one thread yet, so that all later threads inherit the restriction.
    """
    if sys.argv[1:]:
        from jaxpar.grading import landlock

        orders = json.loads(sys.argv[1])
        paths = landlock.outside(orders["readable"], Path(orders["closed"]))
        landlock.install(dict.fromkeys(paths), ["/dev/null"], None)


def _print_now(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Stands in for jax.debug.print: shows the traced value and adds nothing to the program."""
    del ordered
    print(fmt.format(*args, **kwargs))


if __name__ == "__main__":
    main()
