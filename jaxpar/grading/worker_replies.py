"""What a worker replies about a function: its exported programs, its values, or what they raise.

The worker process runs this, and so does `in_process`, which judges trusted answers without a
process. `evidence` checks the replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxpar.grading import messages, partition_specs, program_export
from jaxpar.grading.channel import MAX_MODULE_BYTES
from jaxpar.grading.plain_replies import exception_of, failure, value, values
from jaxpar.grading.translate import raised_by

TOO_LARGE = (
    "The program has {size:.1f} MiB, and at most {most:.0f} MiB can be judged. It holds every turn "
    "of a loop of Python, and every element of an array of numpy: use lax.fori_loop or lax.scan, "
    "and make large arrays with jnp."
)

Reply = tuple[messages.WorkerReply, bytes | None]
"""A message, and the bytes that follow it, if any do."""


def replies(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    """Calls or exports the function as the job says, and yields a reply for each case or call."""
    if job.kind in ("value", "schedule"):
        yield from ((reply, None) for reply in values(function, job))
    elif job.kind == "specs":
        yield from _specs(function, job)
    else:
        yield from _programs(function, job)


def _programs(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    for i, case in enumerate(job.cases, job.first):
        which = "forward"
        try:
            program = program_export.export_forward(function, case)
            yield _exported((which, i), program)
            if program_export.differentiated(case, job.gradient):
                which = "gradient"
                program = program_export.export_gradient(
                    function, case, job.gradient, program.outputs
                )
                yield _exported((which, i), program)
        except BaseException as error:
            yield failure((which, i), error, job.filename), None
    for i, case in enumerate(job.errors):
        try:
            program_export.trace(function, case)
            yield messages.BadCallOutcome(i, None, False, False), None
        except BaseException as error:
            deliberate = raised_by(error, job.filename)
            yield messages.BadCallOutcome(i, *exception_of(error), deliberate), None


def _exported(which: messages.ProgramKey, program: program_export.Program) -> Reply:
    size = len(program.module)
    if size > MAX_MODULE_BYTES:
        why = TOO_LARGE.format(size=size / 2**20, most=MAX_MODULE_BYTES / 2**20)
        return messages.ExportFailure(which, "result", why), None
    return messages.ExportedProgram(which, program.outputs), program.module


def _specs(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    for i, case in enumerate(job.cases, job.first):
        yield value(i, lambda c=case: partition_specs.returned(function, c), job.filename), None
