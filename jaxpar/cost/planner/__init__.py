"""Which layout trains a model fastest on a cluster, and whether a model fits there at all."""

from jaxpar.cost.planner.candidates import Job as Job
from jaxpar.cost.planner.fastest import STRATEGIES as STRATEGIES
from jaxpar.cost.planner.fastest import Found as Found
from jaxpar.cost.planner.fastest import Strategy as Strategy
from jaxpar.cost.planner.fastest import best_plan as best_plan
from jaxpar.cost.planner.fastest import explore as explore
from jaxpar.cost.planner.fastest import search as search
from jaxpar.cost.planner.plan import Plan as Plan
