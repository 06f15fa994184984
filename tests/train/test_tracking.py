"""The record of a run: what is in it, who goes on with it, and what it must not do to the run."""

import errno
import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from optax import ScaleByScheduleState

from jaxpar.cost.flops import step_flops
from jaxpar.cost.terms import total
from jaxpar.train import tracking
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.loop import Trained
from jaxpar.train.optimizer import Optimization
from jaxpar.train.recipe import make_recipe
from jaxpar.train.record import STEPS, read_about, read_rows
from jaxpar.train.restarts import RESTARTED
from jaxpar.train.speed import seconds_at_peak
from jaxpar.train.trackers import TRACKERS
from jaxpar.train.tracking import Recorder, make_tracking
from jaxpar.train.validation import Validated
from tests.train.runs import SETTINGS

OPTIONS = {"seed": 3, "layers": 4, "mesh": "dp=2", "steps": 5}
Losses = dict[int, float]


def begun(tracker: str, folder: Path, first_step: int = 0) -> Recorder:
    """The recorder of a run that begins, or goes on after `first_step`."""
    keeping = Keeping(folder, resume=first_step > 0)
    made = make_tracking(tracker, folder, keeping, OPTIONS)
    assert made
    begins = made.begin({"parameters": 7}, {"after_step": first_step})
    return Recorder(made, begins, tokens=64, share=lambda step: 1.0, rate=0.5, seconds_at_peak=None)


def tell(recorder: Recorder, losses: Losses) -> None:
    for step, loss in losses.items():
        recorder.after(step, Trained(loss, 1.5, 0.25, None, None))
    recorder.close()


def of_csv(folder: Path) -> Losses:
    return {int(row["step"]): row["loss"] for row in read_rows(folder)}


def of_tensorboard(folder: Path) -> Losses:
    """Reads files as TensorBoard does: a session that starts at a step replaces what follows."""
    from tensorboardX.proto.event_pb2 import Event

    losses: Losses = {}
    for path in sorted(folder.glob("events.*"), key=lambda path: path.suffix):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            if event.HasField("session_log"):
                losses = {step: loss for step, loss in losses.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == "loss":
                    losses[event.step] = value.simple_value
    return losses


def of_wandb(folder: Path) -> Losses:
    """Reads what would be sent, as wandb.ai does: a run that is rewound loses its later steps."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportMissingImports]

    losses: Losses = {}
    runs = set()
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=os.path.getmtime):
        data, at = path.read_bytes(), 7
        while at < len(data):
            (_, size, kind) = struct.unpack_from("<IHB", data, at)
            assert kind == 1, "a record that is split over blocks"
            record = Record.FromString(data[at + 7 : at + 7 + size])
            at += 7 + size
            if record.HasField("run"):
                runs.add(record.run.run_id)
                if record.run.HasField("branch_point"):
                    assert record.run.branch_point.run == record.run.run_id
                    last = record.run.branch_point.value
                    losses = {step: loss for step, loss in losses.items() if step <= last}
            for item in record.history.item:
                if [*item.nested_key, item.key][0] == "loss":
                    losses[record.history.step.num] = json.loads(item.value_json)
    assert len(runs) == 1
    return losses


def of_mlflow(folder: Path) -> Losses:
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    (one,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert one.data.params == {name: str(value) for name, value in OPTIONS.items()}
    assert one.info.status == "FINISHED"
    history = client.get_metric_history(one.info.run_id, "loss")
    assert one.data.metrics["loss"] == history[-1].value
    assert len({metric.step for metric in history}) == len(history)
    return {metric.step: metric.value for metric in history}


READERS = {"csv": of_csv, "tensorboard": of_tensorboard, "wandb": of_wandb, "mlflow": of_mlflow}


@pytest.mark.parametrize("tracker", list(TRACKERS))
@pytest.mark.filterwarnings("default")  # of the libraries themselves
def test_a_run_that_goes_on_replaces_what_was_lost(tracker: str, tmp_path: Path) -> None:
    for package in TRACKERS[tracker].packages:
        pytest.importorskip(package)
    tell(begun(tracker, tmp_path), {1: 5.5, 2: 5.25, 3: 99.0, 4: 98.0})
    tell(begun(tracker, tmp_path, 2), {3: 4.5, 4: 4.25, 5: 4.0})
    assert READERS[tracker](tmp_path) == {1: 5.5, 2: 5.25, 3: 4.5, 4: 4.25, 5: 4.0}
    about = read_about(tmp_path)
    assert about
    assert about["options"] == OPTIONS
    assert [attempt["after_step"] for attempt in about["attempts"]] == [0, 2]


def test_a_row_has_all_that_a_step_told(tmp_path: Path) -> None:
    made = make_tracking("csv", tmp_path, None, OPTIONS)
    assert made
    begins = made.begin({}, {"after_step": 0})
    rate = Optimization(peak=1.0, warmup=4).rate
    recorder = Recorder(
        made, begins, tokens=64, share=lambda step: 1.0, rate=rate, seconds_at_peak=0.1
    )
    validated = Validated(3, 2.0, 7.39, 2.89)
    of_experts = {"largest_load": 1.5, "dropped": 0.125, "validated": validated}
    one, two = (ScaleByScheduleState(jnp.int32(count)) for count in (1, 2))
    recorder.after(1, Trained(5.5, 2.0, 0.25, None, (None, one)))
    recorder.after(2, Trained(math.nan, math.inf, 0.25, None, (None, one), skipped=1))
    recorder.after(3, Trained(4.5, 1.0, 0.5, None, (None, two), **of_experts))
    recorder.close()
    first, second, third = read_rows(tmp_path)
    assert first == pytest.approx({
        "step": 1, "loss": 5.5, "gradient_norm": 2, "learning_rate": 0.25, "seconds": 0.25,
        "tokens_per_second": 256, "mfu": 0.4, "skipped": 0,
    })  # fmt: skip
    assert math.isnan(second["loss"])
    assert second["gradient_norm"] == math.inf
    assert (second["skipped"], second["learning_rate"]) == (1, 0.5)
    assert third["learning_rate"] == 0.5  # the skipped step has not counted
    assert (third["largest_load"], third["dropped"]) == (1.5, 0.125)
    told = third["validation_loss"], third["perplexity"], third["bits_per_byte"]
    assert told == (2.0, 7.39, 2.89)


def test_a_full_disk_is_told_once_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    recorder = begun("csv", tmp_path)
    tracker: Any = recorder._tracker
    tracker.close()
    with Path("/dev/full").open("w") as tracker._file:
        tell(recorder, {1: 5.5, 2: 5.25, 3: 5.0})
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"train: --track csv: step 1 could not be recorded: {os.strerror(errno.ENOSPC)}; the run "
        "goes on, and its record ends here"
    )


def test_a_row_that_was_cut_off_is_no_row(tmp_path: Path) -> None:
    tell(begun("csv", tmp_path), {1: 5.5, 2: 5.25})
    path = tmp_path / STEPS
    path.write_text(path.read_text()[:-20])
    assert of_csv(tmp_path) == {1: 5.5}
    tell(begun("csv", tmp_path, 2), {3: 4.5})
    assert of_csv(tmp_path) == {1: 5.5, 3: 4.5}


def test_what_the_launcher_starts_again_begins_its_record_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(begun("csv", tmp_path), {1: 99.0, 2: 98.0})
    with pytest.raises(ValueError, match="holds the record of a run; go on with it by --check"):
        begun("csv", tmp_path)
    monkeypatch.setenv(RESTARTED, "0")
    with pytest.raises(ValueError, match="holds the record of a run"):
        begun("csv", tmp_path)
    monkeypatch.setenv(RESTARTED, "1")
    tell(begun("csv", tmp_path), {1: 5.5})
    assert of_csv(tmp_path) == {1: 5.5}


def test_bad_use_is_refused_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    (theirs / STEPS).write_text("mine")
    tell(begun("csv", ours), {1: 5.5})
    before = (ours / STEPS).read_text()
    resumed = Keeping(ours, resume=True)
    monkeypatch.setattr(tracking, "find_spec", lambda _: "found")
    other: Mapping[str, Any] = OPTIONS | {"seed": 4}
    for given, words in (
        (("csw", None, None, OPTIONS), "--track"),
        ((None, theirs, None, OPTIONS), f"--track-to {theirs} without --track"),
        (("csv", theirs, None, OPTIONS), f"holds {STEPS}, and no record of a run; give an empty"),
        (("csv", ours, resumed, other), "holds another record: seed 3 there, 4 here; give the"),
        (("tensorboard", ours, resumed, OPTIONS), "track csv there, tensorboard here"),
        (("csv", ours / STEPS, None, OPTIONS), "give"),
    ):
        with pytest.raises(ValueError, match=r"^train: ") as error:
            make_tracking(*given)
        assert words in str(error.value)
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"not installed: wandb; run pip install wandb, or use --"):
        make_tracking("wandb", None, None, OPTIONS)
    assert (theirs / STEPS).read_text() == "mine"
    assert (ours / STEPS).read_text() == before


def test_where_a_record_goes_and_who_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keeping = Keeping(Path("a/run1"))
    assert make_tracking("csv", None, keeping, OPTIONS, writes=False) is None
    assert not any(tmp_path.iterdir())
    made = make_tracking("csv", None, keeping, OPTIONS)
    assert made and made.folder == Path("a/run1-record")
    made = make_tracking("csv", None, None, OPTIONS)
    assert made and made.folder.parent == Path("runs")
    assert made.folder.is_dir()


def test_utilization_is_of_the_peak_of_all_devices() -> None:
    recipe = make_recipe("dp=8")
    flops = float(total(step_flops(SETTINGS.architecture, 16, SETTINGS.sequence)))
    found = seconds_at_peak(SETTINGS, recipe, "NVIDIA H100 80GB HBM3")
    assert found == pytest.approx(flops / (8 * 989e12))
    in_rounds = make_recipe("dp=8", sync_every=5)
    assert seconds_at_peak(SETTINGS, in_rounds, "TPU v5 lite") == pytest.approx(
        5 * flops / (8 * 197e12)
    )
    assert seconds_at_peak(SETTINGS, recipe, "cpu") is None
