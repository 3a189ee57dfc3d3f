"""The page about leakage says how much its verdict rests on."""

from gatehouse.components.features.leakage.report import leakage_page


def test_the_verdict_says_how_many_rows_were_compared() -> None:
    body = {
        "verdict": "pass",
        "reasons": [],
        "alarm": 0.9,
        "rows": 1846,
        "cuts": [{"cut": "2024-05-01", "rows": 4}, {"cut": "2024-06-01", "rows": 9}],
        "differences": [],
        "single_feature_auc": {"share": 0.6},
    }
    page = leakage_page("shop", body)
    said = "Nothing was used before it was known in what was compared: 13 rows at 2 cuts, of the 1,846 rows"
    assert said in page
