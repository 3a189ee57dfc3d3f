"""The driver of mutation testing changes every place once, and notices what its tests notice."""

import ast

from tests.mutation import mutants

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
