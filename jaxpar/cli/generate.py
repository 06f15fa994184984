"""The verb that lets a trained decoder write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.checks import check_one_of
from jaxpar.cli.base import LEFT, AsJson, app, errors_as_bad_use, print_json, warn
from jaxpar.cli.train import DataOption

if TYPE_CHECKING:
    from jaxpar.serve.trained import TrainedModel
    from jaxpar.serve.writer import Writer

USUAL_STEPS = 50
Prompt = Annotated[str, typer.Option(metavar="TEXT", help="What the text begins with.")]
CheckpointFolder = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="The folder of a run that `train --checkpoint` has saved, on any mesh, or of a model "
        "of Hugging Face.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Without a checkpoint, train so many steps first, with the other options of `train` "
        "as they are there; 50 unless given.",
    ),
]
TokenizerFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The tokenizer.json to train with, or that of a checkpoint which has no copy of it.",
    ),
]
TokenCount = Annotated[
    int, typer.Option("--tokens", min=1, metavar="N", help="How many tokens are written at most.")
]
Temperature = Annotated[
    float,
    typer.Option(
        min=0, metavar="T", help="What logits are divided by; 0 takes the most likely token."
    ),
]
TopK = Annotated[
    int, typer.Option(min=0, metavar="K", help="Choose from the K most likely tokens; 0: all.")
]
TopP = Annotated[
    float,
    typer.Option(
        metavar="P",
        help="Choose from the most likely tokens, as few as have this probability together.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**31 - 1,
        metavar="N",
        help="Chooses the random numbers; the same seed gives the same text.",
    ),
]
MeshOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Devices: tp splits each layer, and the cache by heads, cp the cache by positions. "
        "One device unless given.",
    ),
]
Speculate = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT:N",
        help="Let something guess N tokens, which are verified at once: ngram:4 guesses that what "
        "followed before follows again, and DIR:4 asks a smaller model. The text stays the same.",
    ),
]
WeightBits = Annotated[
    int | None,
    typer.Option(
        metavar="8|4",
        help="Keep the matrices of the layers in 8 bits, or in 4 as NF4; unless given, they stay "
        "as they are.",
    ),
]
Cache = Annotated[
    str,
    typer.Option(metavar="FORM", help="How keys and values are kept: model (as it is) or int8."),
]

# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
Examples:
  jaxpar generate --prompt "def main(" --steps 100
  jaxpar train --mesh dp=8 --steps 500 --checkpoint run1
  jaxpar generate --checkpoint run1 --prompt "import " --tokens 200 --temperature 0.8 --top-p 0.9
  jaxpar generate --checkpoint run1 --prompt "import " --mesh tp=4 --speculate ngram:4
  jaxpar generate --checkpoint run1 --prompt "import " --weight-bits 4 --cache int8
"""


@app.command("generate", epilog=EXAMPLES)
def generate(
    prompt: Prompt,
    checkpoint: CheckpointFolder = None,
    steps: Steps = None,
    data: DataOption = None,
    tokenizer: TokenizerFile = None,
    tokens: TokenCount = 100,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    mesh: MeshOption = None,
    speculate: Speculate = None,
    cache: Cache = "model",
    weight_bits: WeightBits = None,
    as_json: AsJson = False,
) -> None:
    """Writes the text that a trained decoder goes on with, as it comes.

    A text ends after --tokens, or where the model ends a document.
    """
    from jaxpar.serve.engine import CACHES
    from jaxpar.serve.sampling import Sampling
    from jaxpar.serve.trained import in_few_bits, mesh_of, speculation_of
    from jaxpar.serve.writer import Writer
    from jaxpar.train.launch import TERMINATED
    from jaxpar.train.termination import Terminated

    try:
        with errors_as_bad_use():
            check_one_of("generate", "--cache", cache, CACHES)
            check_weight_bits("generate", weight_bits)
            sampling, devices = Sampling(temperature, top_k, top_p, seed), mesh_of("generate", mesh)
            guesses = speculation_of("generate", speculate)
            how = {"data": data, "tokenizer": tokenizer, "steps": steps, "mesh": mesh}
            model = read_model("generate", checkpoint, **how, seed=seed)
            model = in_few_bits("generate", model, weight_bits, devices)
            how = {"mesh": devices, "cache": cache, "speculation": guesses}
            writer = Writer("generate", model, prompt, tokens, sampling, **how)
        _write(writer, prompt, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(LEFT) from None
    except Terminated:
        raise typer.Exit(TERMINATED) from None


def check_weight_bits(verb: str, bits: int | None) -> None:
    """Raises a ValueError if weights cannot have so many bits."""
    from jaxpar.cost.adapters import BITS

    if bits not in (None, *BITS):
        raise ValueError(f"{verb}: --weight-bits is {bits}; use 8 or 4, or leave it out")


def read_model(
    verb: str,
    checkpoint: Path | None,
    *,
    steps: int | None,
    data: Path | None,
    tokenizer: Path | None,
    mesh: str | None,
    seed: int = 0,
) -> TrainedModel:
    """The model that the options of a verb name: a run's, or one that is trained first.

    Raises:
        ValueError: there is none, or an option does not go with a checkpoint.
    """
    from jaxpar.serve.trained import from_checkpoint, from_training

    if checkpoint is None:
        how = {"data": data, "tokenizer": tokenizer, "seed": seed}
        return from_training(steps or USUAL_STEPS, mesh, **how)
    for option, value in (("--steps", steps), ("--data", data)):
        if value is not None:
            raise ValueError(
                f"{verb}: {option} with --checkpoint: it is for a model that is trained first; "
                "leave one of them out"
            )
    return from_checkpoint(f"{verb}: --checkpoint {checkpoint}", checkpoint, tokenizer)


def _write(writer: Writer, prompt: str, as_json: bool) -> None:
    """Prints the text while it grows, or all at the end as JSON."""
    from jaxpar.serve.text import printable

    for note in writer.notes:
        warn(note)
    parts = writer.parts()
    if as_json:
        for _ in parts:
            pass
        print_json(writer.results())
        return
    print(printable(prompt), end="", flush=True)
    for part in parts:
        print(printable(part), end="", flush=True)
    print()
    warn(writer.summary())
