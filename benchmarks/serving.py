"""Requests to our engine: continuous batching against static, and over HTTP against the engine.

All batches go through the same engine, of the default decoder in float32. The clients of the server
run on the same machine, in a process of their own.
"""

from benchmarks import Row
from benchmarks.decode_step import requests
from benchmarks.sides.our_requests import MEAN_OUTPUT, OUTPUT, PROMPT, REQUESTS, SLOTS
from benchmarks.train_step import against

CLIENTS = 16


def rows() -> list[Row]:
    what = f"{REQUESTS} requests, lengths geometric (mean {MEAN_OUTPUT}), {SLOTS} slots"
    static = "static batching"
    found = against(
        f"{what}, continuous batching",
        requests("continuous"),
        {static: ("0.55", requests("static"))},
    )
    served = ["-m", "benchmarks.sides.served_requests", str(CLIENTS)]
    what = f"`jaxpar serve`, {CLIENTS} clients, {PROMPT} tokens of a prompt and {OUTPUT} generated"
    alone = {"the engine alone": ("1.3", requests("alike", CLIENTS))}
    return found + against(what, served, alone, same=0)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
