"""The page of a run."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jaxpar.train.record import begin_rows, write_about, write_row
from jaxpar.train.report import MOST_PLACES, run_page
from tests.drawing.svg import elements, texts

HOSTILE = "<script>alert('a')</script>&"
SENT = {"axes": ["dp", "tp"], "predicted_bytes": 2048.0, "by_schedule_bytes": 1024.0}
ATTEMPT = {
    "after_step": 0, "began": "2026-11-27T01:02:03+00:00", "mesh": "dp=2,tp=2", "zero": 1,
    "devices": 4, "device": HOSTILE, "processes": 2, "bytes_by_axis": [SENT],
    "memory": {"arguments_bytes": 3_000_000, "temp_bytes": 500_000},
}  # fmt: skip
ABOUT: dict[str, Any] = {
    "tracker": "csv", "options": {"data": HOSTILE, "steps": 3000, "skip_spikes": 3.0},
    "attempts": [ATTEMPT, ATTEMPT | {"after_step": 1200, "mesh": "dp=4", "bytes_by_axis": []}],
    "parameters": 1234, "tokens": 64, "updates": "adamw at 0.001", "checkpoint": None,
}  # fmt: skip
STEP = {"gradient_norm": 1.5, "learning_rate": 0.001, "seconds": 0.25, "tokens_per_second": 256}


def page_of(folder: Path, rows: list[dict[str, float]], **more: Any) -> str:
    write_about(folder, ABOUT | more)
    with begin_rows(folder, 0) as file:
        for number, row in enumerate(rows, 1):
            write_row(file, {"step": number, "skipped": 0, **STEP, **row})
    return run_page(folder)


def pictures(page: str) -> dict[str, str]:
    """The pictures of a page by the first of their texts that is a title."""
    found = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    return {max(texts(svg), key=lambda text: text[0].isupper() and len(text)): svg for svg in found}


def test_a_page_shows_a_run_and_loads_nothing(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = [{"loss": 5.5 - n / 1000, "mfu": 0.25} for n in range(2500)]
    rows[1999] |= {"validation_loss": 3.25}
    rows[2499] |= {"validation_loss": 3.0}
    rows[41] |= {"skipped": 1, "gradient_norm": 9.5}
    rows[42] |= {"skipped": 2, "gradient_norm": float("inf"), "loss": float("nan")}
    page = page_of(tmp_path, rows, checkpoint=str(tmp_path / "gone"))
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            assert not {"src", "href"} & dict(attrs).keys()
            assert not [name for name, _ in attrs if name.startswith("on")]

    Tags().feed(page)
    assert not {"script", "link", "img", "iframe"} & set(tags)
    assert page.count("&lt;script&gt;alert(&#39;a&#39;)&lt;/script&gt;&amp;") == 3
    assert "step 2,500 of 3,000; loss 5.5000 -&gt; 3.0010; 256 tokens/s; MFU 25.0%." in page
    drawn = pictures(page)
    (loss,) = (svg for title, svg in drawn.items() if title == "Loss: means of 3 steps")
    assert len(drawn) == 7  # of these six are curves
    assert max(len(path.get("d", "")) for path in elements(loss, "path")) < 40 * MOST_PLACES
    for cells in (
        ["42", "9.5000", "the norm is above 3 times the running mean of those before"],
        ["43", "inf", "the norm is not finite"],
        ["1", "dp, tp", "2,048 B", "1,024 B"],
    ):
        assert "".join(f"<td>{cell}</td>" for cell in cells) in page
    assert "<td>2</td><td>2026-11-27T01:02:03+00:00</td><td>1200</td><td>dp=4</td>" in page
    assert f"{tmp_path / 'gone'} has none any more." in page


def test_a_page_of_a_run_that_took_no_step(tmp_path: Path) -> None:
    page = page_of(tmp_path, [])
    assert "no step of 3000 was taken" in page
    assert "The run saved none." in page
    assert list(pictures(page)) == ["What a device holds in a step"]


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no record of a run; give the folder that `jaxpar"):
        run_page(tmp_path)
    write_about(tmp_path, ABOUT | {"tracker": "wandb"})
    with pytest.raises(ValueError, match="a record for wandb, which shows it by itself"):
        run_page(tmp_path)
    for text in ("[1]", "{", '{"tracker": "csv"}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(ValueError, match=r"report: .* the record cannot be read: "):
            run_page(tmp_path)
    write_about(tmp_path, ABOUT)
    (tmp_path / "steps.csv").write_text("step,loss\n1,high\n")
    with pytest.raises(ValueError, match=r"the record cannot be read: .* 'high'"):
        run_page(tmp_path)
