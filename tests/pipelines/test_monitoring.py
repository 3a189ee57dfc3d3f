"""Planted drift on real flights: it is found, a model is trained for it once, and becomes the champion."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli import run as command
from gatehouse.cli.main import app
from gatehouse.kfp.local_run import LocalRun
from gatehouse.kfp.retraining import train_ordered
from gatehouse.monitoring.orders import Orders
from gatehouse.registry.ledger import Ledger
from gatehouse.reports.contents import rendered
from gatehouse.runtime.variables import ENDPOINT
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore
from tests.small_example import MODEL, Row, change_flights, write_project, write_raw_files

pytestmark = pytest.mark.timeout(600)
app.command("run")(command.run)
WINDOW = "2013-01-01/2013-02-20"


def _turned(rows: Iterable[Row]) -> Iterator[Row]:
    """In February most morning flights are late, and few others: the opposite of what the champion learned."""
    for number, row in enumerate(rows):
        if row["month"] == "2" and row["arr_delay"] not in ("", "NA"):
            late = number % 10 < (8 if int(row["hour"]) < 13 else 2)
            row["arr_delay"] = "45" if late else "-10"
        yield row


@pytest.fixture
def later(flights_archive: Path, tmp_path: Path) -> Path:
    """The raw files of January, and of February with the drift."""
    write_raw_files(flights_archive, tmp_path / "later", months=("1", "2"))
    change_flights(tmp_path / "later", _turned)
    return tmp_path / "later"


@pytest.fixture
def moving(tmp_path: Path) -> Path:
    """The project with boundaries that move along with the rows, without a search."""
    folder = write_project(tmp_path / "moving", features__leakage_alarm=0.99, policy__leakage_alarm={"roc_auc": 0.99})
    project = yaml.safe_load((folder / "project.yaml").read_text())
    project["split"] = {"train_until": "P8D", "validation_until": "P5D", "gap": "PT24H"}
    project["monitoring"] = {"min_rows": 300}
    project |= {"tuning": None}
    project["training"]["stopping"] |= {"epochs": 4}
    (folder / "project.yaml").write_text(yaml.safe_dump(project))
    return folder


def test_planted_drift_is_found_trained_for_once_and_the_new_model_becomes_the_champion(
    first: tuple[ArtifactStore, LocalRun],
    copy: ArtifactStore,
    moving: Path,
    later: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    before = Ledger(copy, MODEL).state()
    options = ["--pipeline", "monitoring", "--store", copy.address, "--source", str(later), "--window", WINDOW]
    command = CliRunner().invoke(app, ["run", str(moving), *options, "--param", "since=2013-02-01T00:00:00Z"])
    assert command.exit_code == 0, command.output
    (drift,) = copy.references("drift-reports")
    message = copy.read_json(drift, "drift.json")
    assert message["decision"] == "retrain" and "decay" in message["triggers"]
    assert any(reason.startswith("performance, log_loss: the model decays") for reason in message["reasons"])
    assert "Retrain" in rendered(copy, drift).read_text()

    (order,) = Orders(copy, MODEL).all()
    (trained,) = Orders(copy, MODEL).attempts(order.cause)
    assert trained == f"{order.run}.1" and order.reasons == tuple(message["reasons"])
    after = Ledger(copy, MODEL).state()
    assert (before.champion, after.champion) == (1, 2)
    ended = {event.stage: event for _, event in events(copy, trained) if event.event in ("finished", "hit")}
    assert ended["register"].body["result"]["decision"] == "approved"

    # Asked again, by another process: nothing is trained.
    assert train_ordered(copy, moving, order.cause, lambda **_: pytest.fail("trained twice")) is None
