"""The process that reads exported programs.

The judge starts it as `python -m jaxpar.grading.reader` through `reader_client`, and
`program_reader` does the work. It never runs a learner's Python. Crafted bytes can crash it, but
the judge survives that, and the crash becomes the verdict.
"""

from __future__ import annotations

from dataclasses import replace

from jaxpar.grading.channel import receive, send_blob, send_json
from jaxpar.grading.lifetime import begin_child, importing, limit_process


def main() -> None:
    """Loads a contract, then answers requests until the judge closes the pipe."""
    requests, replies = begin_child()
    with importing():
        # JAX imports this, in half a second, when it compiles the first exported program.
        import scipy.linalg  # noqa: F401

        from jaxpar.contracts.base import load
        from jaxpar.grading.messages import Ready, decode, encode
        from jaxpar.grading.program_reader import ProgramReader
        from jaxpar.grading.reader_messages import ReaderJob, ReaderRequest, Started, blobs_after
        from jaxpar.mesh import simulate_devices

    send_json(replies, encode(Ready()))
    frame = receive(requests)
    if frame is None:
        return
    job: ReaderJob = decode(ReaderJob, frame)
    limit_process(job.memory_bytes, job.cpu_seconds)
    simulate_devices(job.devices)
    with importing():
        contract = load(job.where)
        reader = ProgramReader(replace(contract, cases=contract.cases + job.drawn))
    send_json(replies, encode(Started()))
    while (frame := receive(requests)) is not None:
        request = decode(ReaderRequest, frame)
        blobs = [receive(requests) for _ in range(blobs_after(request))]
        reply, results = reader.answer(request, blobs)
        send_json(replies, encode(reply))
        for result in results:
            send_blob(replies, result)


if __name__ == "__main__":
    main()
