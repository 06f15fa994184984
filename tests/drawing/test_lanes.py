"""Lanes of a step, in text and as SVG."""

from jaxpar.drawing.lanes import WIDTH, Lanes
from jaxpar.schedules.overlap import Task, run
from tests.drawing.svg import elements, numbers, texts


def lanes() -> Lanes:
    first = Task("backward", "B1", "compute", 2e-3)
    second = Task("backward", "B0", "compute", 2e-3)
    layers = (first, second)
    exposed = Task("all-reduce", "sum", "network", 2e-3, layers)
    hidden = Task("all-reduce", "sum", "network", 1e-3, (first,))
    ways = {"exposed": run([*layers, exposed]), "hidden": run([*layers, hidden])}
    return Lanes("A < B", "ms", ways)


def test_lanes_in_text_are_to_one_scale() -> None:
    text = lanes().to_text()
    assert "exposed: 6 ms, of which compute waits 2 ms" in text
    assert "hidden: 4 ms, of which compute waits 0 ms" in text
    rows = (line.partition(" ") for line in text.splitlines())
    shown = [cells for lane, _, cells in rows if lane in ("compute", "network")]
    box, half = "-" * 19 + "|", "-" * 6 + "|"
    assert shown == [
        f"a B1{box}a B0{box}",
        f"{'.' * 48}b sum{'-' * 18}|",
        f"a B1{box}a B0{box}",
        f"{'.' * 24}b sum{half}",
    ]
    assert text.splitlines()[-2:] == ["a  backward", "b  all-reduce"]


def test_what_is_shorter_than_a_column_has_its_letter_alone() -> None:
    long, short = Task("forward", "F", "compute", 1.0), Task("send", "to 1", "network", 1e-6)
    last = Task("send", "to 2", "network", 1e-6, (long,))
    text = Lanes("", "s", {"one": run([short, long, last])}).to_text()
    rows = dict(line.split() for line in text.splitlines() if line.startswith("network"))
    assert rows == {"network": f"a{'.' * 70}a"}


def test_lanes_in_svg_have_boxes_to_scale_labels_and_times() -> None:
    text = lanes().to_svg()
    assert {"A < B", "B1", "sum", "compute", "network", "backward", "ms", "6"} <= set(texts(text))
    assert "all-reduce, sum: 4 ms to 6 ms" in [one.text for one in elements(text, "title")]
    boxes = [one for one in elements(text, "rect") if one.find("{*}title") is not None]
    widths = [numbers(one, "width")[0] for one in boxes]
    assert [round(width / WIDTH, 3) for width in widths] == [
        0.333, 0.333, 0.333, 0.333, 0.333, 0.167,
    ]  # fmt: skip
