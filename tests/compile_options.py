"""Options with which XLA compiles in a third of the time: machine code is not optimized."""

import jax

QUICKLY: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 11):  # later versions have only these emitters
    QUICKLY["xla_cpu_use_fusion_emitters"] = False
