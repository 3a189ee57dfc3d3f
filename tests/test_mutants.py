"""The known faults can still be planted, and their tests are still there."""

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_still_applies_to_the_source_and_has_its_test(mutant: Mutant) -> None:
    source = (ROOT / "gatehouse" / mutant.file).read_text()
    assert source.count(mutant.text) == 1
    compile(source.replace(mutant.text, mutant.fault), mutant.file, "exec")
    path, _, name = mutant.test.partition("::")
    assert f"def {name}" in (ROOT / "tests" / path).read_text()
