"""What a program that cannot be right earns, and is told: no process is needed to see it."""

from operator import attrgetter

import pytest

from jaxpar.classroom.attacks.attack import PROGRAM, UNFENCED, Attack
from jaxpar.classroom.attacks.dishonest_programs import HIDDEN_COMMUNICATION, REFUSED
from jaxpar.grading.in_process import InProcessPool, judged_source

POOL = InProcessPool(PROGRAM)
ATTACKS = [attack for attack in (*HIDDEN_COMMUNICATION, *REFUSED) if UNFENCED not in attack.source]


@pytest.mark.parametrize("attack", ATTACKS, ids=attrgetter("name"))
def test_it_earns_no_more_than_an_honest_file(attack: Attack) -> None:
    verdict = judged_source(attack.source, POOL)
    assert verdict.score <= attack.honest
    assert verdict.status in attack.ends
    first = verdict.first_failure()
    assert first is not None
    assert attack.says in first.message
