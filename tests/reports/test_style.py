"""Every colour can be read on what lies behind it, light and dark (WCAG 2.2, level AA)."""

import pytest

from gatehouse.reports.style import DARK, LIGHT, STYLE

TEXT = [
    *((ink, paper) for ink in ("ink", "soft", "good", "bad", "warn", "a") for paper in ("page", "tint")),
    *(("ink", f"{mark}-tint") for mark in ("good", "bad", "warn")),
    *((mark, f"{mark}-tint") for mark in ("good", "bad", "warn")),
    *(("page", disc) for disc in ("soft", "good", "bad", "warn", "ink")),  # signs, and the skip link
]
# Borders of fields, axes, and the colours of series.
SHAPES = [(shape, "page") for shape in ("axis", "a", "b", "c", "d")]


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast(colours: dict[str, str]) -> None:
    found = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXT}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_shapes_have_contrast(colours: dict[str, str]) -> None:
    found = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in SHAPES}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 3} == {}


def test_both_sets_of_colours_are_complete_and_used() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert [name for name in LIGHT if f"var(--{name})" not in STYLE] == []
