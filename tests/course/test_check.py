"""One sitting at one exercise: what is known of it is not computed again."""

from pathlib import Path

from benchmarks.sides.answers import right
from jaxpar.contracts.base import with_drawn
from jaxpar.course.catalog import exercise
from jaxpar.course.check import check, open_judge
from jaxpar.grading.program_judge import unknown_references


def test_a_file_that_is_saved_again_is_tried_with_the_same_cases(tmp_path: Path) -> None:
    row = exercise("mean_over_devices")
    path = tmp_path / f"{row.id}.py"
    source = right(row)[0]
    with open_judge() as judge:
        path.write_text(source)
        first = check(row, path, judge, None)
        known = with_drawn(row.where, first.seed, hidden=False)
        assert first.status == "pass"
        assert not list(unknown_references(known))
        path.write_text(source + "\n# saved again\n")
        assert check(row, path, judge, None).seed == first.seed
        assert check(row, path, judge, None, seed=first.seed + 1).seed == first.seed + 1
    with open_judge() as judge:
        assert check(row, path, judge, None).seed != first.seed
