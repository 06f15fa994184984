"""Trackers: where the measures of each step go. None of them needs the network.

Each is made for a folder and a run that goes on after `first_step`: what an earlier attempt told of
later steps is replaced.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

from jaxpar.train.record import Row, begin_rows, write_row


class Tracker(Protocol):
    """What takes the measures of a run.

    Attributes:
        packages: what it needs, as Python imports it, and as pip installs it.
    """

    packages: ClassVar[Mapping[str, str]]

    def __init__(self, folder: Path, about: Mapping[str, Any], first_step: int) -> None: ...

    def log(self, step: int, row: Row) -> None:
        """Takes what a step told."""
        ...

    def close(self) -> None:
        """Completes what was taken."""
        ...

    @staticmethod
    def viewer(folder: Path) -> str:
        """The command that shows what was taken."""
        ...


class _Csv:
    """A file of rows, which `jaxpar report` draws."""

    packages: ClassVar[Mapping[str, str]] = {}

    def __init__(self, folder: Path, about: Mapping[str, Any], first_step: int) -> None:
        self._file = begin_rows(folder, first_step)

    def log(self, step: int, row: Row) -> None:
        write_row(self._file, {"step": step, **row})

    def close(self) -> None:
        self._file.close()

    @staticmethod
    def viewer(folder: Path) -> str:
        return f"jaxpar report {folder}"


class _Tensorboard:
    """Files of events, written as they come: a thread of tensorboardX would fail unseen."""

    packages: ClassVar[Mapping[str, str]] = {"tensorboardX": "tensorboardX"}

    def __init__(self, folder: Path, about: Mapping[str, Any], first_step: int) -> None:
        self._summary = import_module("tensorboardX.summary")
        self._events = import_module("tensorboardX.proto.event_pb2")
        files = import_module("tensorboardX.event_file_writer")
        attempt = len(about["attempts"])
        self._writer = files.EventsWriter(str(folder / "events"), f".{attempt}")
        if attempt > 1:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(first_step + 1, session_log=start)  # TensorBoard drops this step and later
        table = "\n".join(f"| {name} | {value} |" for name, value in about["options"].items())
        text = self._summary.text("options", f"| option | value |\n|---|---|\n{table}")
        self._write(first_step, summary=text)

    def log(self, step: int, row: Row) -> None:
        for name, value in row.items():
            self._write(step, summary=self._summary.scalar(name, value))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    @staticmethod
    def viewer(folder: Path) -> str:
        return f"tensorboard --logdir {folder}"

    def _write(self, step: int, **content: Any) -> None:
        self._writer.write_event(self._events.Event(wall_time=time.time(), step=step, **content))


class _Wandb:
    """A run of Weights & Biases, offline unless WANDB_MODE says otherwise."""

    packages: ClassVar[Mapping[str, str]] = {"wandb": "wandb"}

    def __init__(self, folder: Path, about: Mapping[str, Any], first_step: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = wandb = import_module("wandb")
        again = {"resume_from": f"{about['id']}?_step={first_step}"}
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "jaxpar"),
            id=about["id"],
            name=folder.name,
            dir=folder,
            config=dict(about["options"]),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True, console="off"),
            **(again if len(about["attempts"]) > 1 else {}),
        )

    def log(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()
        self._wandb.teardown()  # which returns when all is on the disk

    @staticmethod
    def viewer(folder: Path) -> str:
        return f"wandb sync {folder}/wandb/offline-run-*"


class _Mlflow:
    """A run of MLflow in a SQLite database, since MLflow's folders of files are retired."""

    packages: ClassVar[Mapping[str, str]] = {
        "mlflow": "mlflow-skinny",
        "sqlalchemy": "sqlalchemy",
        "alembic": "alembic",
    }

    def __init__(self, folder: Path, about: Mapping[str, Any], first_step: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        mlflow, entities = import_module("mlflow"), import_module("mlflow.entities")
        self._metric = entities.Metric
        base = folder / "mlflow.db"
        uri = f"sqlite:///{base}"
        self._client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
        name = about["id"]
        if experiment := self._client.get_experiment_by_name(name):
            (run,) = self._client.search_runs([experiment.experiment_id])
            self._run = run.info.run_id
            self._client.update_run(self._run, status="RUNNING")
            _delete_after(base, self._run, first_step)
            return
        artifacts = (folder / "artifacts").as_uri()
        experiment_id = self._client.create_experiment(name, artifact_location=artifacts)
        self._run = self._client.create_run(experiment_id, run_name=folder.name).info.run_id
        params = [entities.Param(name, str(value)) for name, value in about["options"].items()]
        self._client.log_batch(self._run, params=params)

    def log(self, step: int, row: Row) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, value, now, step) for name, value in row.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)

    @staticmethod
    def viewer(folder: Path) -> str:
        return f"mlflow ui --backend-store-uri sqlite:///{folder / 'mlflow.db'}"


def _delete_after(base: Path, run: str, step: int) -> None:
    """Deletes the metrics of later steps from MLflow's database; it has no call for this."""
    with closing(sqlite3.connect(base)) as connection, connection:
        for table in ("metrics", "latest_metrics"):
            connection.execute(f"DELETE FROM {table} WHERE run_uuid = ? AND step > ?", (run, step))


TRACKERS: Mapping[str, type[Tracker]] = {
    "csv": _Csv,
    "tensorboard": _Tensorboard,
    "wandb": _Wandb,
    "mlflow": _Mlflow,
}
