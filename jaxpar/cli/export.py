"""The verb that writes a trained decoder for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import AsJson, app, errors_as_bad_use, print_json, warn

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run that `train` has saved.")
]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one, which is written.")
]
TokenizerFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The tokenizer.json of the run, if its folder has no copy of it."
    ),
]

# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
Examples:
  jaxpar export run1 model1
  jaxpar generate --checkpoint model1 --prompt "import "
"""


@app.command("export", epilog=EXAMPLES)
def export(
    run: Run, folder: Folder, tokenizer: TokenizerFile = None, as_json: AsJson = False
) -> None:
    """Writes a trained decoder as a model of Hugging Face, which transformers loads.

    The folder gets safetensors, config.json, and tokenizer.json if the run has a tokenizer.
    """
    with errors_as_bad_use():
        from jaxpar.train.weights import read_model
        from jaxpar.train.write_huggingface import write_huggingface

        saved = read_model(f"export: {run}", run, tokenizer)
        parameters = write_huggingface(f"export: {folder}", saved, folder)
    if as_json:
        notes = list(saved.notes)
        print_json({"folder": str(folder), "parameters": parameters, "notes": notes})
        return
    for note in (*saved.notes, f"{folder} is written: {parameters:,} parameters."):
        warn(note)
