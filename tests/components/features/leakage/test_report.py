"""The page about leakage says how much its verdict rests on."""

from gatehouse.components.features.leakage.report import leakage_page


def test_the_verdict_says_how_many_rows_were_compared() -> None:
    page = leakage_page("shop", [("2024-05-01", 4), ("2024-06-01", 9)], [], {"share": 0.6}, 0.9, (), 1846)
    said = "Nothing was used before it was known in what was compared: 13 rows at 2 cuts, of the 1,846 rows"
    assert said in page
