"""One decoder-only transformer, scanned over its layers."""

from jaxpar.model.decoder import Decoder
from jaxpar.model.functions import init, logits, loss_fn
from jaxpar.model.settings import Settings
from jaxpar.model.split import Split, check_split, split_specs

__all__ = [
    "Decoder",
    "Settings",
    "Split",
    "check_split",
    "init",
    "logits",
    "loss_fn",
    "split_specs",
]
