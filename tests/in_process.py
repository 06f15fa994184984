"""The pool that judges in one process, under the name by which the contracts' tests import it."""

from jaxpar.grading.in_process import InProcessPool as InProcessPool
from jaxpar.grading.in_process import judged as judged
from jaxpar.grading.in_process import judged_source as judged_source
