"""The inspector: what a JAX program sends, stores and computes."""

from jaxpar.inspector.program import inspect as inspect
from jaxpar.inspector.program import inspect_path as inspect_path
from jaxpar.inspector.program import load_target as load_target
from jaxpar.inspector.render import render as render
from jaxpar.inspector.report import Collective as Collective
from jaxpar.inspector.report import Memory as Memory
from jaxpar.inspector.report import Report as Report
