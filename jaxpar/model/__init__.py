"""The model: one decoder-only transformer, scanned over its layers."""

from jaxpar.model.decoder import Decoder as Decoder
from jaxpar.model.functions import Pieces as Pieces
from jaxpar.model.functions import init as init
from jaxpar.model.functions import logits as logits
from jaxpar.model.functions import loss_fn as loss_fn
from jaxpar.model.functions import pieces as pieces
from jaxpar.model.leaf_names import is_adapter as is_adapter
from jaxpar.model.mixture import is_dropped as is_dropped
from jaxpar.model.mixture import is_load as is_load
from jaxpar.model.settings import Settings as Settings
from jaxpar.model.split import Split as Split
from jaxpar.model.split import check_blocks as check_blocks
from jaxpar.model.split import check_split as check_split
from jaxpar.model.split import split_specs as split_specs
from jaxpar.model.split import used_specs as used_specs
