"""The same requests over HTTP: clients that ask `jaxpar serve` all at once, and read streams."""

import subprocess
import sys

from benchmarks.sides.our_requests import OUTPUT, PROMPT
from benchmarks.sides.race import serve
from jaxpar.serve.load import run_load
from jaxpar.serve.workload import Planned


def ask(clients: int) -> None:
    """Each step answers all; what it tells for a loss is the number of tokens."""
    sizes = {"slots": clients, "context": PROMPT + OUTPUT, "chunk": PROMPT}
    options = [f"--{name}={size}" for name, size in sizes.items()]
    command = [sys.executable, "-m", "jaxpar.cli", "serve", "--steps=1", "--port=0", *options]
    planned = [Planned(0.0, PROMPT, OUTPUT)] * clients
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().strip()

        def step() -> float:
            outcomes = run_load(url, planned).outcomes
            assert not any(one.failed for one in outcomes), outcomes
            return float(sum(one.tokens for one in outcomes))

        serve(step)
        server.terminate()


if __name__ == "__main__":
    ask(int(sys.argv[1]))
