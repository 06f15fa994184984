"""The verb that serves a trained decoder over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from jaxpar.checks import check_one_of
from jaxpar.cli.base import LEFT, app, errors_as_bad_use, warn
from jaxpar.cli.generate import (
    Cache,
    CheckpointFolder,
    Speculate,
    Steps,
    TokenizerFile,
    WeightBits,
    check_weight_bits,
    read_model,
)
from jaxpar.cli.sizes import whole
from jaxpar.cli.train import DataOption

SIGNALLED = 128  # and the number of the signal: the exit code, as a shell has it
Host = Annotated[
    str, typer.Option(metavar="NAME", help="The address that is listened at; 0.0.0.0: all.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0: any.")]
Slots = Annotated[int, whole("Requests that run at once on a replica.")]
Context = Annotated[int, whole("Tokens of a request at most, with its prompt.")]
Chunk = Annotated[int, whole("Tokens of a prompt that are computed at once.")]
PageSize = Annotated[int, whole("Tokens of a page of the cache.")]
Pages = Annotated[int | None, whole("Pages of a replica; unless given, as many as slots need.")]
Replicas = Annotated[
    int, whole("Copies of the model, each on devices of its own; the least loaded is taken.")
]
MeshOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Devices of a replica, which split each layer (tp) and the positions of the cache "
        "(cp), as in tp=2; one.",
    ),
]
Queue = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Requests that may wait; further ones are refused with 429."
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.1, metavar="S", help="Seconds that a request may take in all.")
]
Grace = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="S",
        help="Seconds that requests have to end after SIGTERM or Ctrl-C, when no others are taken.",
    ),
]
AllowKill = Annotated[
    bool, typer.Option("--allow-kill", help="Let `load --kill` kill a replica: for trials.")
]

# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
Examples:
  jaxpar serve --steps 100
  jaxpar serve --checkpoint run1 --port 8001 --slots 16 --context 1024
  jaxpar serve --checkpoint run1 --mesh tp=2 --replicas 2
  jaxpar serve --checkpoint run1 --weight-bits 8 --cache int8 --speculate ngram:4
  curl localhost:8000/v1/completions -H 'content-type: application/json' \\
    -d '{"prompt": "import ", "max_tokens": 40, "stream": true}'
"""


@app.command("serve", epilog=EXAMPLES)
def serve(
    checkpoint: CheckpointFolder = None,
    steps: Steps = None,
    data: DataOption = None,
    tokenizer: TokenizerFile = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    slots: Slots = 8,
    context: Context = 512,
    chunk: Chunk = 64,
    page_size: PageSize = 16,
    pages: Pages = None,
    cache: Cache = "model",
    weight_bits: WeightBits = None,
    speculate: Speculate = None,
    mesh: MeshOption = None,
    replicas: Replicas = 1,
    queue: Queue = 64,
    timeout: Timeout = 600.0,
    grace: Grace = 10.0,
    allow_kill: AllowKill = False,
) -> None:
    """Serves a trained decoder over HTTP, with the completions of OpenAI's API.

    A page to chat is at /, and beside /v1/completions there are /v1/models, /health and /metrics
    (for Prometheus). There is no password and no encryption: put a proxy before it where others
    reach the port.
    """
    from jaxpar.train.launch import TERMINATED
    from jaxpar.train.termination import Terminated

    limits = {"slots": slots, "queue": queue, "seconds": timeout, "kill": allow_kill}
    try:
        with errors_as_bad_use():
            from jaxpar.serve.libraries import need_libraries

            need_libraries("serve")
            from jaxpar.serve.completions import Limits, Served
            from jaxpar.serve.engine import CACHES, Sizes
            from jaxpar.serve.engines import make_engines, meshes_of
            from jaxpar.serve.http import Service
            from jaxpar.serve.server import listen, run
            from jaxpar.serve.trained import in_few_bits, speculation_of

            check_one_of("serve", "--cache", cache, CACHES)
            check_weight_bits("serve", weight_bits)
            with listen(host, port) as listener:
                meshes = meshes_of("serve", mesh, replicas)
                guesses = speculation_of("serve", speculate)
                how = {"data": data, "tokenizer": tokenizer, "steps": steps, "mesh": mesh}
                model = read_model("serve", checkpoint, **how)
                model = in_few_bits("serve", model, weight_bits, meshes[0])
                sizes = Sizes(slots, context, chunk, page_size=page_size, pages=pages)
                engines = make_engines(model, sizes, meshes, cache=cache, speculation=guesses)
                for note in model.notes:
                    warn(note)
                name = checkpoint.resolve().name if checkpoint else "trained"
                served = Served(name, context, model.alphabet)
                service = Service(served, engines, Limits(**limits))
                print(_url(*listener.getsockname()[:2]), flush=True)
                signalled = run(service, listener, grace_seconds=grace)
    except KeyboardInterrupt:
        raise typer.Exit(LEFT) from None
    except Terminated:  # while it was trained
        raise typer.Exit(TERMINATED) from None
    raise typer.Exit(SIGNALLED + signalled if signalled else 0)


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
