"""Finds all problems of a project at once, before anything runs: in its files, its queries, and the names they use."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.configuration.yaml_lines import at_line, nearest
from gatehouse.configuration.yaml_text import lines_of
from gatehouse.data.splitting.spec import GeographicSplit, SplitSpec
from gatehouse.data.validation.contract import Contract
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.loading import in_repository
from gatehouse.features.definitions.problems import source_problems
from gatehouse.features.definitions.repository import Repository, without_history
from gatehouse.features.feast_settings import settings_problems
from gatehouse.kfp_api.specs import problems_of
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.project.between_files import policy_warnings
from gatehouse.project.contract_rules import unrunnable_rules
from gatehouse.project.first_rows import FirstRows, first_rows, is_small
from gatehouse.project.project import Project, ProjectParts, assembled, definitions_of, read_project
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile
from gatehouse.project.refused_warnings import rows_warned_of, views_warned_of
from gatehouse.project.sensitive_columns import with_sensitive_columns
from gatehouse.project.signatures import NAMES, parameters
from gatehouse.runtime.limits import cpus_of, processors
from gatehouse.store.hidden_values import hiding
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import PairwiseLoss, task_of
from gatehouse.tuning.cores import short_of_cores

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.features.computing.dry_run import Labelled

_Key = tuple[str | int, ...]


def check_project(folder: Path, store: ArtifactStore | None = None, data: bool = False) -> Project:
    """Read the project in `folder`, and check everything that is possible without its data, or with its first rows.

    Args:
        folder: The project.
        store: Definitions that are published in this store were checked before, and their queries are not run again. If
            only the source's columns changed since, the stage that computes features finds the problems.
        data: Also read the first rows of every table, check the contract on them, and run the queries on them.

    Raises:
        ConfigurationError: listing every problem, with file, line and key for YAML files.
    """
    parts = read_project(folder)
    if parts.file is not None:
        _look(parts, parts.file, store, data)
    return assembled(parts)


def _look(parts: ProjectParts, file: ProjectFile, store: ArtifactStore | None, data: bool) -> None:
    before, contract, repository = len(parts.problems), parts.contract, parts.repository
    if contract is not None:
        parts.note(_of_contract, parts.folder, file, contract)
    unfit = len(parts.problems) > before
    lines = lines_of((parts.folder / PROJECT_FILE).read_text())
    if not parts.partly:
        parts.warnings.extend(at_line(PROJECT_FILE, lines, warning) for warning in _of_fixed_dates(file))
        parts.warnings.extend(_of_cores(file))
        if not data:  # Else the first rows are read, which needs them.
            parts.warnings.extend(at_line(PROJECT_FILE, lines, warning) for warning in _of_environment(file))
        parts.warnings.extend(policy_warnings(parts.folder, file, parts.policy) if parts.policy else ())
        parts.warnings.extend(at_line(PROJECT_FILE, lines, warning) for warning in _of_alarms(parts, file))
    parts.note(lambda: (at_line(PROJECT_FILE, lines, problem) for problem in _of_schedules(file)))
    if repository is None:
        return
    first = FirstRows()
    if data and contract is not None and not parts.partly:  # The contract says which values must be hidden.
        first = first_rows(parts.folder, file, contract, judged=not unfit)
    parts.warnings.extend(first.warnings)
    if parts.policy:
        parts.warnings.extend(rows_warned_of(file, parts.policy, first.for_the_gate))
    parts.problems.extend(first.problems)
    repo, tables = os.path.relpath(repository.folder, parts.folder), _tables(file)
    anew = parts.partly or data or store is None or not store.exists(definitions_of(file, repository).reference)
    if anew and tables is not None:
        _run_queries(parts, repository, tables, first, lines)
    parts.note(lambda: _placed(repo, _of_files(file, repository)))
    parts.problems.extend(_placed(repo, settings_problems(repository.folder)))
    parts.note(_of_slices, file, repository, lines)
    parts.note(_of_protected, parts, file, repository)
    if parts.policy:
        parts.note(views_warned_of, file, parts.policy, repository)
    parts.note(_of_names, file, repository, lines)


def look_at_rows(project: Project, stages: Collection[str], location: str = "", window: str = "") -> None:
    """Look at the rows of a small local source before a run, and refuse what would end the run at one of its stages.

    The contract is not held against them, because a breach is a verdict of the run, with a report.

    Args:
        project: What is to run.
        stages: The stages that are to run.
        location: Where the files of the source are instead; empty for its own place.
        window: Only rows of START/END count; then these are read, and not judged. Empty for all.

    Raises:
        ConfigurationError: listing every problem, as `check_project` with `data` does.
        GatehouseError: if the source cannot be read, though it is what it is declared as, such as a damaged file.
    """
    if "snapshot" not in stages:
        return
    if unset := [*_of_environment(project.file)]:
        parts = read_project(project.folder)
        lines = lines_of((project.folder / PROJECT_FILE).read_text())
        parts.problems.extend(at_line(PROJECT_FILE, lines, problem) for problem in unset)
        assembled(parts)
    if not is_small(project.folder, project.file, location):
        return
    parts = read_project(project.folder)
    file, contract, repository = parts.file, parts.contract, parts.repository
    if file is None or contract is None or repository is None or (tables := _tables(file)) is None:
        return
    first = first_rows(parts.folder, file, contract, judged=False, location=location)
    if first.failure is not None and first.failure.exit_code != ConfigurationError.exit_code:
        raise first.failure  # A source that is not looked at first ends the run so too.
    parts.problems.extend(first.problems)
    if first.as_of and not window and "compute_features" in stages:
        _run_queries(parts, repository, tables, first, lines_of((parts.folder / PROJECT_FILE).read_text()), stages)
    assembled(parts)


def _run_queries(
    parts: ProjectParts,
    repository: Repository,
    tables: Mapping[str, Mapping[str, str]],
    first: FirstRows,
    lines: Mapping[_Key, int],
    stages: Collection[str] = ("retrieve_training_set", "split", "fit_transformation", "train"),
) -> None:
    """Run the queries on the first rows, or on none; where these are all rows, their labels must fit the split."""
    from gatehouse.features.computing.dry_run import Labelled, dry_run

    repo, odd = os.path.relpath(repository.folder, parts.folder), list[str]()
    labelled, computed = list[Labelled](), dict[str, "pa.Table"]()
    # Where no row was read, the source may be one that cannot be.
    read = parts.contract and parts.file and first.tables and with_sensitive_columns(parts.file.source, parts.contract)
    sensitive = {column for table in (read.tables.values() if read else ()) for column in table.sensitive}
    with hiding(lambda: sensitive):
        kept = labelled if first.as_of else None
        found = dry_run(repository, tables, first.tables, odd, first.as_of, kept, computed)
        labels = "retrieve_training_set" in stages
        parts.problems.extend(_placed(repo, (each for each in found if labels or not each.startswith("labels/"))))
        parts.warnings.extend(_placed(repo, odd))
        for each in labelled if "split" in stages else ():
            _judge_labelled(parts, repository, first.tables, computed, each, lines, stages)


def _judge_labelled(
    parts: ProjectParts,
    repository: Repository,
    tables: Mapping[str, "pa.Table"],
    computed: Mapping[str, "pa.Table"],
    found: "Labelled",
    lines: Mapping[_Key, int],
    stages: Collection[str],
) -> None:
    """Judge the split, the views and the gate by the rows with a label of a source that was read whole.

    Args:
        parts: The project.
        repository: Its feature definitions.
        tables: The raw tables.
        computed: The feature tables by view.
        found: The rows with a label.
        lines: Lines of project.yaml by key.
        stages: What is to run: features must be finite where a transformation is fitted, and a batch must not be larger
            than the part train where a model is trained.
    """
    from gatehouse.features.computing.dry_run import often_without_label, teaches_nothing
    from gatehouse.features.computing.short_history import short_history
    from gatehouse.features.point_in_time.infinite_features import infinite_features
    from gatehouse.project.labelled_rows import divided, few_rows, large_batch

    repo = os.path.relpath(repository.folder, parts.folder)
    parts.problems.extend(_placed(repo, teaches_nothing(found)))
    parts.warnings.extend(_placed(repo, often_without_label(found)))
    if parts.file is None:
        return
    rows = divided(parts.file.split, found.rows)
    for name, why in rows.empty.items():
        parts.problems.append(at_line(PROJECT_FILE, lines, f"split: {name} {why}"))
    if (service := parts.file.features.service) in repository.services:
        parts.warnings.extend(_placed(repo, short_history(repository, service, tables, rows.trained_on)))
        if "fit_transformation" in stages:
            inside = found.rows.take(rows.inside)
            parts.problems.extend(_placed(repo, infinite_features(repository, service, inside, computed)))
    trained = not {"tune", "train"}.isdisjoint(stages) and "train" not in rows.empty
    large = large_batch(parts.file, len(rows.trained_on)) if trained else ()
    parts.problems.extend(at_line(PROJECT_FILE, lines, problem) for problem in large)
    if parts.policy and TASKS[repository.label.task].counted == "row":
        parts.warnings.extend(few_rows(parts.file.policy, parts.policy, rows.tested, found.rows.num_rows))


def _tables(file: ProjectFile) -> dict[str, dict[str, str]] | None:
    """The columns of the source's tables with their types; None where a key of them is wrong."""
    try:
        return {
            name: {key: kind.value for key, kind in table.columns.items() if key.strip("\0")}
            for name, table in file.source.tables.items()
        }
    except AttributeError:
        return None


def _of_names(file: ProjectFile, repository: Repository, lines: Mapping[tuple[Any, ...], int]) -> Iterator[str]:
    for key, expected, found, known in _names(file, repository):
        if found not in known:
            line = next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), 1)
            where = ".".join(map(str, key))
            meant = nearest(found, known) or f"; there are {', '.join(known)}"
            yield f"{PROJECT_FILE}:{line}: {where}: expected {expected}, found {found!r}{meant}"


def _placed(repo: str, problems: Iterable[str]) -> Iterator[str]:
    return (told for problem in problems for told in in_repository(repo, problem))


def _of_cores(file: ProjectFile) -> Iterator[str]:
    """Trials that need more cores than there are, on this machine or, with a remote store, in their pods."""
    if file.tuning is None:
        return
    remote, asked = "://" in file.store, file.resources.get("train")
    pod = asked.cpu if asked and asked.cpu else declared_stages()["train"].declared.resources.cpu
    if not isinstance(file.launch, LocalLaunch):
        cores, where = cpus_of(file.launch.resources.cpu), "each pod of a trial (launch.resources.cpu)"
    else:
        cores, where = (
            (cpus_of(pod), "the pod of train (resources.train.cpu)") if remote else (processors(), "this machine")
        )
    if short := short_of_cores(file.tuning, file.training, file.launch, cores, where):
        yield short


def _of_files(file: ProjectFile, repository: Repository) -> Iterator[str]:
    """Queries and sources that nothing reads, and views without a history: the leakage check would end the run."""
    tables = file.source.tables
    for name in repository.known:
        if name not in tables:
            yield f"known/{name}.sql: expected a table of the source ({', '.join(tables)}){nearest(name, tables)}"
    yield from source_problems(repository.sources, repository.streams, _tables(file) or {})
    for path in sorted((repository.folder / "views").glob("*.sql")):
        if path.stem not in repository.views:
            meant = nearest(path.stem, repository.views)
            yield f"views/{path.name}: no FeatureView of this name in definitions.py{meant}"
    service = repository.services.get(file.features.service)
    for name in service.views if service else ():
        lacking = without_history(repository, name)
        if lacking and name not in file.features.unchecked:
            yield (
                f"features.unchecked: the view {name} cannot be checked for leakage, as there is no known/<table>.sql "
                f"of {', '.join(lacking)}, which gives a table as it stood at a moment. Write it, or state the view "
                "here with a reason."
            )


def _of_contract(folder: Path, file: ProjectFile, contract: Contract) -> Iterator[str]:
    """Names that do not fit the source; where all do, rules whose SQL does not. Each with its line."""
    lines = lines_of((folder / file.contract).read_text())
    problems = [*_unfitting(file, contract)] or unrunnable_rules(file, contract)
    return (at_line(file.contract, lines, problem) for problem in problems)


def _unfitting(file: ProjectFile, contract: Contract) -> Iterator[str]:
    """Tables and columns of the contract that the source does not declare: their rules would have no effect."""
    tables = file.source.tables
    for problem in contract.unsuited({name: frozenset(table.sensitive) for name, table in tables.items()}):
        yield f"{problem}; remove it, as the source declares the column sensitive"
    for name, table in contract.tables.items():
        where = f"tables.{name}"
        if name not in tables:
            yield f"{where}: expected a table of the source ({', '.join(tables)}), found none{nearest(name, tables)}"
            continue
        declared = tables[name].columns
        for column, promised in table.columns.items():
            place = f"{where}.columns.{column}"
            if column not in declared:
                yield f"{place}: expected a column of the source, found none{nearest(column, declared)}"
            elif promised.type.value != declared[column].value:
                kinds = f"expected {declared[column].value}, as the source has it, found {promised.type.value}"
                yield f"{place}.type: {kinds}"


def _names(file: ProjectFile, repository: Repository) -> Iterator[tuple[_Key, str, str, Collection[str]]]:
    """Names in the project that refer to definitions: key, what is expected, the name, and the known names."""
    yield ("features", "service"), "a feature service of definitions.py", file.features.service, repository.services
    service = repository.services.get(file.features.service)
    if service is None:
        return
    views = [name for name in service.views if name in repository.views]
    features, columns = _features(file, repository), _columns(file, repository)
    for name in file.features.unchecked:
        yield ("features", "unchecked", name), "a view of the feature service", name, views
    if isinstance(file.evaluation.slices, tuple):
        for index, name in enumerate(file.evaluation.slices):
            yield ("evaluation", "slices", index), "a column of the training set", name, columns
    if file.evaluation.resample_by not in ("", "day"):
        yield ("evaluation", "resample_by"), "a column of the training set", file.evaluation.resample_by, columns
    if drift := file.monitoring.data_drift:
        for index, name in enumerate(drift.ignore):
            yield ("monitoring", "data_drift", "ignore", index), "a feature", name, features
    for name in file.transformation.columns:
        yield ("transformation", "columns", name), "a feature", name, features
    for key, name in _split_columns(file.split):
        yield ("split", *key), "a column of the training set, where `keeps` of a LabelView has more stay", name, columns
    if weight := file.training.loss.sample_weight:
        yield ("training", "loss", "sample_weight"), "a column of the training set", weight, columns
    if isinstance(file.training.loss, PairwiseLoss) and file.training.loss.group:
        yield ("training", "loss", "group"), "a column of the training set", file.training.loss.group, columns


def _features(file: ProjectFile, repository: Repository) -> list[str]:
    service = repository.services[file.features.service]
    views = [repository.views[name] for name in service.views if name in repository.views]
    found = [feature for view in views for feature in view.spec.features]
    return [*found, *(name for one in service.on_demand for name in repository.on_demand[one].spec.features)]


def _columns(file: ProjectFile, repository: Repository) -> tuple[str, ...]:
    """The columns of the training set."""
    requested, features = repository.request_values(file.features.service), _features(file, repository)
    kept = repository.label.keeps
    return (*repository.entity_keys, "decision_time", "label", "label_time", *kept, *requested, *features)


def _of_slices(file: ProjectFile, repository: Repository, lines: Mapping[_Key, int]) -> Iterator[str]:
    """Slice expressions that are not valid SQL, or use columns that the training set lacks."""
    from gatehouse.evaluation.slice_columns import problems_of

    if isinstance(file.evaluation.slices, dict) and file.features.service in repository.services:
        for name, expression in file.evaluation.slices.items():
            for problem in problems_of(expression, _columns(file, repository)):
                yield at_line(PROJECT_FILE, lines, f"evaluation.slices.{name}: {problem}")


def _of_protected(parts: ProjectParts, file: ProjectFile, repository: Repository) -> Iterator[str]:
    """Protected columns that the training set lacks, and fairness limits for columns that are not protected."""
    if file.features.service not in repository.services:
        return
    columns, marked = _columns(file, repository), parts.contract.protected() if parts.contract else {}
    named = dict.fromkeys(file.evaluation.protected, (PROJECT_FILE, "evaluation.protected"))
    named |= {name: (file.contract, f"tables.{table}.columns.{name}.protected") for name, table in marked.items()}
    for name, (place, key) in named.items():
        if name not in columns:
            yield _at(
                parts.folder / place,
                place,
                f"{key}: expected a column of the training set, found {name!r}{nearest(name, columns)}; a LabelView "
                "has columns of its query stay there that it names under `keeps`",
            )
    for name in parts.policy.fairness if parts.policy else ():
        if name not in named:
            yield _at(
                parts.folder / file.policy,
                file.policy,
                f"fairness.{name}: expected a column that {file.contract} or evaluation.protected calls protected "
                f"({', '.join(named) or 'none'}){nearest(name, named)}",
            )


def _at(path: Path, name: str, problem: str) -> str:
    return at_line(name, lines_of(path.read_text()), problem)


def _of_environment(file: ProjectFile) -> Iterator[str]:
    """Variables that the source names and this environment does not set; the pods of a cluster may have them."""
    for key in ("url_env", "settings_env"):
        if (variable := getattr(file.source, key, "")) and not os.environ.get(variable):
            yield (
                f"source.{key}: the environment variable {variable} is not set here, and `gatehouse run` reads the "
                "source with it: set it before, or correct the name. On a cluster it comes from a secret"
            )


def _of_fixed_dates(file: ProjectFile) -> Iterator[str]:
    """Fixed split dates in a project that retrains: each model would learn from the same rows."""
    bounds = {key: getattr(file.split, key, None) for key in ("train_until", "test_from")}
    kept = {key: bound for key, bound in bounds.items() if isinstance(bound, datetime)}
    orders = {"training": True, "monitoring": bool(file.monitoring.retrain.on)}
    ordering = [name for name, each in file.schedules.items() if each.enabled and orders.get(each.pipeline or name)]
    for fixed, bound in kept.items() if ordering else ():
        later = f"move it before each of them, as to {bound + timedelta(days=28):%Y-%m-%d}"
        instead = "write how long before the newest decision it lies, as P28D" if fixed == "train_until" else later
        yield (
            f"split.{fixed}: {bound:%Y-%m-%d} stays where it is, and {', '.join(ordering)} of schedules "
            f"order{'s' * (len(ordering) == 1)} models to be trained again: each would learn from the same rows. To "
            f"have them learn newer ones, {instead}"
        )


def _of_alarms(parts: ProjectParts, file: ProjectFile) -> Iterator[str]:
    """An alarm that lets a feature pass which tells the label better than the gate lets any model."""
    feature, task = file.features.leakage_alarm, task_of(file.training)
    if parts.policy is None or feature is None or task.output != "probability":
        return
    policy = parts.policy.resolved(judging_of(task))
    model = (policy.leakage_alarm or {}).get("roc_auc")
    if model is not None and model < feature and policy.terms_of("leakage alarm roc_auc").severity == "refuse":
        yield (
            f"features.leakage_alarm: {feature:g} lets a feature pass that alone tells the label with that ROC AUC, "
            f"but leakage_alarm in {file.policy} refuses every model above {model:g}. Where a model can be that good, "
            f"write leakage_alarm: {{roc_auc: {feature:g}}} or higher there; else lower the alarm here"
        )


def _of_schedules(file: ProjectFile) -> Iterator[str]:
    """Schedules of unknown pipelines, or with parameters that these do not have."""
    for name, schedule in file.schedules.items():
        pipeline = schedule.pipeline or name
        if pipeline not in NAMES:
            found = f"found {pipeline!r}{nearest(pipeline, NAMES)}"
            yield f"schedules.{name}.pipeline: expected one of {', '.join(NAMES)}, {found}"
            continue
        problems = problems_of(parameters(pipeline), schedule.parameters)
        yield from (f"schedules.{name}.parameters.{problem}" for problem in problems)


def _split_columns(split: SplitSpec) -> Iterator[tuple[_Key, str]]:
    checks = split.checks
    yield from ((("checks", "groups", index), name) for index, name in enumerate(checks.groups))
    for feature, column in checks.availability.items():
        yield ("checks", "availability", feature), feature
        yield ("checks", "availability", feature), column
    places = {"latitude": checks.latitude, "longitude": checks.longitude}
    yield from ((("checks", key), name) for key, name in places.items() if name)
    for key in ("columns", "keys", "strata"):
        yield from (((key, index), name) for index, name in enumerate(getattr(split, key, ())))
    if isinstance(split, GeographicSplit):
        yield from ((("latitude",), split.latitude), (("longitude",), split.longitude))
