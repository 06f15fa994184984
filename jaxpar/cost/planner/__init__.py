"""Which layout trains a model fastest on a cluster, and whether a model fits there at all."""

from jaxpar.cost.planner.candidates import Job as Job
from jaxpar.cost.planner.fastest import explore as explore
