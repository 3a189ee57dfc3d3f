"""`gatehouse check`: one mistake after the other in a project; each is found, and told with thing, place and cure."""

import re
import shutil
from pathlib import Path

import pytest

import gatehouse
from gatehouse.cli.init import create_project
from gatehouse.errors import ConfigurationError
from gatehouse.project.checking import check_project
from tests.mistakes import CONTRACT, HISTORY, KNOWN, LABEL, MISTAKES, POLICY, PROJECT, STAGING, VIEW

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
_OPAQUE = re.compile(r"__\w+|datetime\.|Traceback|Extra inputs|Field required|Input should|CAST\(")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return create_project("returns", tmp_path)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found_and_told(project: Path, mistake: str) -> None:
    file, before, after, told = MISTAKES[mistake]
    before, after = (
        text and text.replace("{{", "{").replace("}}", "}").replace("{name}", "returns") for text in (before, after)
    )
    path = project / file
    text = path.read_text()
    assert text.count(before or "") >= 1, "this test plants nothing"
    path.write_text(text.replace(before, after, 1) if before else after)
    with pytest.raises(ConfigurationError, match=f"(?s){told}") as caught:
        check_project(project)
    message = str(caught.value)
    assert not _OPAQUE.search(message), message
    assert Path(file).name in message or mistake in (
        "a folder without definitions",
        "a loss that is not for the label's task",
        "a metric of another task",
        "a feature that the query lacks",
    ), message


def test_queries_that_nothing_reads_and_tables_without_a_history_are_found(project: Path) -> None:
    (project / KNOWN).rename(project / "features/known/order.sql")
    shutil.copy(project / VIEW, project / "features/views/order_contents.sql")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    told = str(caught.value)
    assert "known/order.sql: expected a table of the source (orders) (did you mean orders?)" in told
    assert (
        "views/order_contents.sql: no FeatureView of this name in definitions.py (did you mean order_content?)" in told
    )
    assert "the view order_content cannot be checked for leakage, as there is no known/<table>.sql of orders" in told


def test_mistakes_of_files_queries_and_names_are_told_together(project: Path) -> None:
    planted = (
        (PROJECT, "slices: [category]", "slices: [colour]"),
        (POLICY, "log_loss]", "rmse]"),
        (CONTRACT, "amount: {", "amout: {"),
        (PROJECT, "      columns:", "      sensitive: [returned]\n      columns:"),
        (CONTRACT, "max: 1", "max: 1, psi: 0.2"),  # Of a sensitive column, no histogram is kept.
        (HISTORY, "count(*)", "cout(*)"),
        (KNOWN, "WHERE placed_at", "WHERE placed"),
    )
    for file, before, after in planted:
        path = project / file
        path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ConfigurationError, match="6 problems in the project"):
        check_project(project)


def test_a_query_that_reads_what_does_not_run_is_not_blamed(project: Path) -> None:
    path = project / STAGING
    path.write_text(path.read_text().replace("    amount,", "    amounts,"))
    with pytest.raises(ConfigurationError, match="1 problem in the project"):
        check_project(project)


def test_no_query_is_blamed_for_a_broken_macro(project: Path) -> None:
    (project / "features/macros.sql").write_text("CREATE MACRO twice(x) AS (x +* 2);")
    (project / LABEL).write_text((project / LABEL).read_text().replace("returned = 1", "twice(returned) = 2"))
    with pytest.raises(ConfigurationError, match=r"(?s)1 problem in the project.*macros.sql does not run"):
        check_project(project)


def test_a_project_that_is_right_is_said_to_be(project: Path) -> None:
    assert check_project(project).name == "returns"
    for folder in EXAMPLE.parent.iterdir():
        assert check_project(folder).name == folder.name
