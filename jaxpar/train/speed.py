"""How fast a run is, against what its devices could do."""

from jaxpar.cost.flops import step_flops
from jaxpar.cost.hardware import find_device
from jaxpar.cost.step import peak_flops
from jaxpar.cost.terms import total
from jaxpar.model import Settings
from jaxpar.train.recipe import Recipe


def seconds_at_peak(settings: Settings, recipe: Recipe, device_kind: str) -> float | None:
    """How long a step, or a round of them, would take if all devices did nothing but its products.

    Over the seconds that it takes, this is model FLOPs utilization (MFU). The peak is that of 16
    bits, whatever the precision; None where no figures of the device are known, as of CPUs.

    Source: Chowdhery et al. 2022 (PaLM), section 4.1
    """
    known = find_device(device_kind)
    if known is None:
        return None
    batch = recipe.batch * (recipe.sync_every or 1)
    frozen = settings.adapter_rank > 0
    flops = total(step_flops(settings.architecture, batch, settings.sequence, frozen=frozen))
    return float(flops) / (recipe.layout.devices * peak_flops(known))
