"""Plans as commands of other programs that train."""

from collections.abc import Callable, Mapping

from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.planner.programs import maxtext, megatron, torchtitan
from jaxpar.cost.planner.programs.command import Command

PROGRAMS: Mapping[str, Callable[[Plan, str], Command]] = {
    "megatron": megatron.command,
    "torchtitan": torchtitan.command,
    "maxtext": maxtext.command,
}
"""(plan, optimizer) -> the command; ValueError if the program has no such layout."""
