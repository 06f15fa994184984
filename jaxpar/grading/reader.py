"""The process that reads exported programs.

Started as `python -m jaxpar.grading.reader`. It runs no learner's Python. Crafted bytes can end it,
and do no more than that.
"""

from __future__ import annotations

from jaxpar.grading.channel import receive, send_blob, send_json
from jaxpar.grading.lifetime import begin_child, importing, limit_process


def main() -> None:
    """Answers requests until the other side closes the pipe."""
    requests, replies = begin_child()
    with importing():
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
        reader = ProgramReader(load(job.where, hidden=job.hidden))
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
