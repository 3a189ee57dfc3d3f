"""The example of a grid by KFP's loops: it compiles, and runs on this machine."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from kfp import compiler, local

import gatehouse
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.forkserver import ForkServer
from gatehouse.pipelines.grid import grid
from gatehouse.project.project import Project, load_project
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation.stage import FitRequest, fit_transformation
from gatehouse.tuning.spec import ExperimentSpec
from tests.compiling import with_a_short_stack
from tests.training.specs import network
from tests.training.synthetic import lay_out

RATES = {"name": "optimizer.learning_rate", "type": "categorical", "choices": [0.0001, 0.01]}


@pytest.fixture
def project() -> Project:
    found = load_project(Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights")
    tuning = ExperimentSpec.model_validate({"parameters": [RATES], "parallel_trial_count": 2})
    training = network(hidden=(8,), epochs=1, batch_size=128)
    return replace(found, file=found.file.model_copy(update={"training": training, "tuning": tuning}))


def test_the_best_of_a_grid_is_found_on_this_machine(
    project: Project, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(gatehouse.__file__).parent.parent))
    training_set, split = lay_out(store)
    wanted = FitRequest(training_set=training_set, split=split, model_name="flights")
    given = {
        "training_set": training_set,
        "split": split,
        "transformation": fit_transformation(wanted, store).transformation,
    }
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "kfp"))
    with ForkServer():  # as the driver runs tasks; without it each one starts an interpreter and imports KFP
        found = with_a_short_stack(lambda: grid(project)(**given, store=store.address).output)
    models = [key.rsplit("/", 1)[0] for key in store.objects.list("models") if key.endswith("manifest.json")]
    losses = {model: store.read_json(model, "history.json")[0]["log_loss"] for model in models}
    assert len(losses) == 2 and found == min(losses, key=lambda model: losses[model])


def test_a_grid_compiles_to_a_task_for_each_configuration(project: Project, tmp_path: Path) -> None:
    with_a_short_stack(compiler.Compiler().compile, grid(project), str(tmp_path / "grid.yaml"))
    spec = next(yaml.load_all((tmp_path / "grid.yaml").read_text(), Loader=yaml.CSafeLoader))
    loop = next(task for task in spec["root"]["dag"]["tasks"].values() if "parameterIterator" in task)
    assert loop["parameterIterator"]["items"]["raw"].count("learning_rate") == 2


@pytest.mark.parametrize(
    "more",
    [
        {"objective": ["log_loss", "roc_auc"], "algorithm": "random"},
        {"objective": "size_bytes"},
        {"constraints": [{"measure": "size_bytes", "at_most": 1}]},
    ],
)
def test_a_grid_compares_by_one_validation_metric(project: Project, more: dict[str, object]) -> None:
    tuning = ExperimentSpec.model_validate({"parameters": [RATES]} | more)
    with pytest.raises(ConfigurationError, match="one objective that training measures"):
        grid(replace(project, file=project.file.model_copy(update={"tuning": tuning})))


def test_endless_parameters_are_no_grid(project: Project) -> None:
    rates = {"name": "optimizer.learning_rate", "type": "double", "min": 0.001, "max": 0.01}
    tuning = ExperimentSpec.model_validate({"parameters": [rates]})
    with pytest.raises(ConfigurationError, match="a list of values, or a step"):
        grid(replace(project, file=project.file.model_copy(update={"tuning": tuning})))
