"""The process that reads exported programs.

Started as `python -m jaxpar.grading.reader`. It runs no learner Python. Crafted bytes can end
it, and no more.
"""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

from jaxpar.grading.channel import receive, send_blob, send_json
from jaxpar.grading.lifetime import begin_child, importing, limit_process

if TYPE_CHECKING:
    from jaxpar.grading.reading import Reader


def main() -> None:
    """Answers requests until the other side closes the pipe."""
    replies = begin_child()
    with importing():
        from jaxpar.contracts.base import load
        from jaxpar.grading.reading import Reader
        from jaxpar.mesh import simulate_devices

    send_json(replies, {"ready": True})
    job = receive(sys.stdin.buffer)
    if job is None:
        return
    limit_process(job["memory_bytes"], job["cpu_seconds"])
    simulate_devices(job["devices"])
    with importing():
        reader = Reader(load(job["where"], hidden=job["hidden"]))
    send_json(replies, {"started": True})
    _serve(reader, replies)


def _serve(reader: Reader, replies: IO[bytes]) -> None:
    while (request := receive(sys.stdin.buffer)) is not None:
        blobs = [receive(sys.stdin.buffer) for _ in range(request["blobs"])]
        header, results = reader.answer(request, blobs)
        send_json(replies, header)
        for blob in results:
            send_blob(replies, blob)


if __name__ == "__main__":
    main()
