"""The inspector: what a JAX program sends, stores and computes.

`program` lowers and compiles a program. `stablehlo` reads the collectives that its author wrote,
with `mlir`, `walk` and `loops`; `hlo` reads those that the compiler made, with `hlo_text`. Both
build them with `groups`, and the result is a `report`, which `render` shows. `repeated_sums` finds
the sums that its author did not mean. Lessons call `inspect`, and so does the command
`jaxpar inspect`; the reader of an answer calls the parts.
"""

from jaxpar.inspector.program import inspect as inspect
from jaxpar.inspector.program import inspect_path as inspect_path
from jaxpar.inspector.program import load_target as load_target
from jaxpar.inspector.render import render as render
from jaxpar.inspector.report import Collective as Collective
from jaxpar.inspector.report import Memory as Memory
from jaxpar.inspector.report import Report as Report
