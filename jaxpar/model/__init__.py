"""The model: one decoder-only transformer, scanned over its layers."""

from jaxpar.model.decoder import Decoder
from jaxpar.model.functions import Pieces, init, logits, loss_fn, pieces
from jaxpar.model.settings import Settings
from jaxpar.model.split import Split, check_split, split_specs

__all__ = [
    "Decoder",
    "Pieces",
    "Settings",
    "Split",
    "check_split",
    "init",
    "logits",
    "loss_fn",
    "pieces",
    "split_specs",
]
