"""Finds all problems of a project at once, before anything runs: in its files, its queries, and the names they use."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from gatehouse.configuration.schedule import Schedule
from gatehouse.configuration.trigger import Trigger
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.validation.contract import Contract
from gatehouse.features.definitions.repository import Repository, in_repository, source_problems, without_history
from gatehouse.features.definitions.settings import settings_problems
from gatehouse.kfp_api.specs import problems_of
from gatehouse.pieces.engine import Engine
from gatehouse.project.project import Project, definitions_of, read_project
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile
from gatehouse.project.signatures import NAMES, parameters
from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import PairwiseLoss

_Key = tuple[str | int, ...]


def check_project(folder: Path, store: ArtifactStore | None = None) -> Project:
    """Read the project in `folder`, and check everything that is possible without its data.

    The queries of definitions that `store` holds were checked before they were published, and are not run again. Raises
    ConfigurationError, listing every problem, with file, line and key for YAML files.
    """
    parts = read_project(folder)
    file, contract, repository = parts.file, parts.contract, parts.repository
    if file is None:
        return parts.project()
    if contract is not None:
        parts.add(file.contract, [*_contract_problems(file, contract)] or _unrunnable_rules(file, contract))
    ordered: list[tuple[str, str, Schedule | Trigger]] = []
    ordered += [(f"schedules.{name}", name, schedule) for name, schedule in file.schedules.items()]
    ordered += [(f"triggers.{name}", name, trigger) for name, trigger in file.triggers.items()]
    for place, name, run in ordered:
        pipeline = run.pipeline or name
        parts.add(PROJECT_FILE, _unknown((place, "pipeline"), pipeline, NAMES, "a pipeline"))
        if pipeline in NAMES:
            problems = problems_of(parameters(pipeline), run.parameters)
            parts.add(PROJECT_FILE, (f"{place}.parameters.{problem}" for problem in problems))
    if repository is None:
        return parts.project()
    repo = os.path.relpath(repository.folder, parts.folder)
    if store is None or not store.exists(definitions_of(file, repository).reference):
        from gatehouse.features.computing.dry_run import dry_run

        parts.problems += _in_repository(repo, dry_run(repository, _tables(file)))
    parts.problems += _in_repository(repo, _file_problems(file, repository))
    whole = [name for name, view in repository.views.items() if view.spec.window is None and not view.spec.static]
    if whole and file.engine != Engine():
        parts.warnings.append(
            f"{repo}/definitions.py: the views {', '.join(whole)} are each computed whole on one worker of the engine: "
            "declare window, the time before an event whose source rows its row depends on, to divide them"
        )
    if repository.label.window is None and file.engine != Engine():
        parts.warnings.append(
            f"{repo}/definitions.py: the rows of {repository.label.name} are all computed on one worker of the engine: "
            "declare window and lead, the time before and after a decision whose source rows it depends on, to divide "
            "them"
        )
    parts.problems += _in_repository(repo, settings_problems(repository.folder))
    service = repository.services.get(file.features.service)
    if service is None:
        parts.add(
            PROJECT_FILE,
            _unknown(("features", "service"), file.features.service, repository.services, "a feature service"),
        )
        return parts.project()
    views = [repository.views[name] for name in service.views if name in repository.views]
    features = [feature for view in views for feature in view.spec.features]
    features += [name for view in service.on_demand for name in repository.on_demand[view].spec.features]
    columns = [
        *(*repository.entity_keys, "decision_time", "label", "label_time", *repository.label.keeps),
        *(*repository.request_values(service.name), *features),
    ]
    parts.add(PROJECT_FILE, _name_problems(file, [view.spec.name for view in views], features, columns))
    # Protected columns that the training set lacks, and fairness limits for columns that are not protected.
    column = "a column of the training set; a LabelView keeps columns of its query that `keeps` names"
    protected = contract.protected() if contract else {}
    for name in file.evaluation.protected:
        parts.add(PROJECT_FILE, _unknown(("evaluation", "protected"), name, columns, column))
    for name, table in protected.items():
        key = ("tables", table, "columns", name, "protected")
        parts.add(file.contract, _unknown(key, name, columns, column))
    for name in parts.policy.fairness if parts.policy else ():
        expected = f"a column that {file.contract} or evaluation.protected calls protected"
        parts.add(file.policy, _unknown(("fairness", name), name, [*file.evaluation.protected, *protected], expected))
    return parts.project()


def _tables(file: ProjectFile) -> dict[str, dict[str, str]]:
    """The columns of the source's tables with their types."""
    return {
        name: {column: kind.value for column, kind in table.columns.items()}
        for name, table in file.source.tables.items()
    }


def _in_repository(repo: str, problems: Iterable[str]) -> Iterator[str]:
    return (placed for problem in problems for placed in in_repository(repo, problem))


def _unknown(key: _Key, name: str, choices: Collection[str], expected: str) -> Iterator[str]:
    if name not in choices:
        suggestion = nearest(name, choices) or f"; there are {', '.join(choices) or 'none'}"
        yield f"{'.'.join(map(str, key))}: expected {expected}, found {name!r}{suggestion}"


def _contract_problems(file: ProjectFile, contract: Contract) -> Iterator[str]:
    """Tables and columns of the contract that the source does not declare: their rules would have no effect."""
    tables = file.source.tables
    for problem in contract.unsuited({name: frozenset(table.sensitive) for name, table in tables.items()}):
        yield f"{problem}; remove it, as the source declares the column sensitive"
    for name, table in contract.tables.items():
        yield from _unknown(("tables", name), name, tables, "a table of the source")
        declared = tables[name].columns if name in tables else {}
        for column, promised in table.columns.items() if declared else ():
            key = ("tables", name, "columns", column)
            yield from _unknown(key, column, declared, "a column of the source")
            if column in declared and promised.type.value != declared[column].value:
                types = f"expected {declared[column].value}, as the source has it, found {promised.type.value}"
                yield f"{'.'.join(key)}.type: {types}"


def _unrunnable_rules(file: ProjectFile, contract: Contract) -> Iterator[str]:
    """The rules of a contract whose SQL cannot be evaluated, each with its key; tables fit the source."""
    from gatehouse.data.validation.checks import row_rules, unrunnable
    from gatehouse.features.computing.dry_run import declare_table
    from gatehouse.features.database import connect
    from gatehouse.store.database import quoted

    with connect() as connection:
        for name, table in contract.tables.items():
            view = f"raw.{quoted(name)}"
            declared = {column: kind.value for column, kind in file.source.tables[name].columns.items()}
            declare_table(connection, view, declared)
            places = {f"expression {expression.name}": index for index, expression in enumerate(table.expressions)}
            for rule in row_rules(table, [*declared], [*table.columns], frozenset()):
                if why := unrunnable(connection, view, rule):
                    where = f"expressions.{places[rule.rule]}.sql" if rule.sql else f"columns.{rule.columns[0]}"
                    key = "" if rule.sql else f".{rule.rule}"
                    yield f"tables.{name}.{where}{key}: cannot be evaluated: {why}"


def _file_problems(file: ProjectFile, repository: Repository) -> Iterator[str]:
    """Queries and sources that nothing reads, and views without a history, at which the leakage check would end."""
    for name in repository.histories:
        if name not in file.source.tables:
            tables = file.source.tables
            yield f"known/{name}.sql: expected a table of the source ({', '.join(tables)}){nearest(name, tables)}"
    yield from source_problems(repository.sources, _tables(file))
    for path in sorted((repository.folder / "views").glob("*.sql")):
        if path.stem not in repository.views:
            suggestion = nearest(path.stem, repository.views)
            yield f"views/{path.name}: no FeatureView of this name in definitions.py{suggestion}"
    service = repository.services.get(file.features.service)
    for name in service.views if service else ():
        lacking = without_history(repository, name)
        if lacking and name not in file.features.unchecked:
            yield (
                f"features.unchecked: the view {name} cannot be checked for leakage without known/<table>.sql of "
                f"{', '.join(lacking)}; write it, or name the view here with a reason"
            )


def _name_problems(file: ProjectFile, views: list[str], features: list[str], columns: list[str]) -> Iterator[str]:
    """Names in `project.yaml` of views, features and columns of the training set that there are not."""
    evaluation, training, drift = file.evaluation, file.training, file.monitoring.data_drift
    column, feature = "a column of the training set", "a feature"
    for name in file.features.unchecked:
        yield from _unknown(("features", "unchecked", name), name, views, "a view of the feature service")
    if isinstance(evaluation.slices, dict):
        for name, expression in evaluation.slices.items():
            yield from (f"evaluation.slices.{name}: {problem}" for problem in slice_problems(expression, columns))
    else:
        for index, name in enumerate(evaluation.slices or ()):
            yield from _unknown(("evaluation", "slices", index), name, columns, column)
    if evaluation.resample_by not in ("", "day"):
        yield from _unknown(("evaluation", "resample_by"), evaluation.resample_by, columns, column)
    for index, name in enumerate(drift.ignore if drift else ()):
        yield from _unknown(("monitoring", "data_drift", "ignore", index), name, features, feature)
    for name in file.transformation.columns:
        yield from _unknown(("transformation", "columns", name), name, features, feature)
    checks = file.split.checks
    split_columns: list[tuple[_Key, str]] = [(("checks", "groups", i), name) for i, name in enumerate(checks.groups)]
    for checked in checks.availability.items():
        split_columns += [(("checks", "availability", checked[0]), name) for name in checked]
    for part in ("columns", "keys", "strata"):
        split_columns += [((part, index), name) for index, name in enumerate(getattr(file.split, part, ()))]
    for key, name in split_columns:
        yield from _unknown(("split", *key), name, columns, f"{column} (`keeps` of the LabelView adds some)")
    if weight := training.loss.sample_weight:
        yield from _unknown(("training", "loss", "sample_weight"), weight, columns, column)
    if isinstance(training.loss, PairwiseLoss) and training.loss.group:
        yield from _unknown(("training", "loss", "group"), training.loss.group, columns, column)


def slice_problems(expression: str, columns: Collection[str]) -> Iterator[str]:
    """Problems of a SQL expression over rows with these columns."""
    import sqlglot

    try:
        (tree,) = sqlglot.parse(f"SELECT {expression}", dialect="duckdb")
        if not isinstance(tree, sqlglot.exp.Select) or len(tree.selects) != 1 or tree.args.get("from_"):
            raise ValueError("it is more, or less, than one expression")
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        yield f"expected one SQL expression, found {expression!r}: {str(error).splitlines()[0]}"
    else:
        names = {column.name for column in tree.find_all(sqlglot.exp.Column)}
        for name in sorted(names - set(columns)):
            yield f"expected columns of the training set, found {name} in {expression!r}"
