"""One decoder-only transformer, scanned over its layers."""

from jaxpar.model.decoder import Decoder
from jaxpar.model.functions import init, logits, loss_fn
from jaxpar.model.settings import Settings

__all__ = ["Decoder", "Settings", "init", "logits", "loss_fn"]
