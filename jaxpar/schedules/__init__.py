"""Pipeline schedules as plain data: tables, generators and a simulator. No JAX."""

from jaxpar.schedules.generators import NAMES as NAMES
from jaxpar.schedules.generators import make_table as make_table
from jaxpar.schedules.rules import check as check
from jaxpar.schedules.rules import to_ticks as to_ticks
from jaxpar.schedules.simulator import Costs as Costs
from jaxpar.schedules.simulator import Simulation as Simulation
from jaxpar.schedules.simulator import bubble_fraction as bubble_fraction
from jaxpar.schedules.simulator import peak_in_flight as peak_in_flight
from jaxpar.schedules.simulator import simulate as simulate
from jaxpar.schedules.simulator import stash_size as stash_size
from jaxpar.schedules.table import Action as Action
from jaxpar.schedules.table import Table as Table
