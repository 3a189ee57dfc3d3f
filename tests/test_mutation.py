"""The driver of mutation testing changes every place once, and notices what its tests notice."""

import ast
from pathlib import Path

import pytest

from tests.mutation import _Instead, _passes, main, mutants

SOURCE = """
def clamp(x, low, strict=False):
    if not strict and x < low:
        raise ValueError(-x)
    return x + 1
"""


def test_every_place_is_changed_once() -> None:
    found = {changed for _, changed in mutants(SOURCE)}
    whole = ast.unparse(ast.parse(SOURCE))
    places = (
        ("False", "True"),
        (" and ", " or "),
        ("not ", ""),
        ("<", "<="),
        ("raise ValueError(-x)", "pass"),
        ("(-x)", "(x)"),
        ("+", "-"),
    )
    assert found == {whole.replace(*each) for each in places}


def test_a_change_is_noticed_where_tests_fail_or_last_too_long(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    test = tmp_path / "test_it.py"
    test.write_text("import time, changed\n\ndef test_it():\n    time.sleep(changed.LASTS)\n    assert changed.HOLDS\n")

    def passes(source: str, seconds: int) -> bool:
        return _passes(_Instead("changed", tmp_path / "changed.py", source), [str(test)], seconds)

    assert passes("HOLDS, LASTS = True, 0", 60)
    assert not passes("HOLDS, LASTS = False, 0", 60)
    assert not passes("HOLDS, LASTS = True, 5", 2)


def test_a_module_of_another_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["docs/make_readmes.py"])
    assert "docs/make_readmes.py: expected a file below" in capsys.readouterr().err
