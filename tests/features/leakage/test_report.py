"""The page about leakage says how much its verdict rests on."""

from gatehouse.features.leakage.report import leakage_page


def test_the_verdict_says_how_many_rows_were_compared() -> None:
    body = {
        "verdict": "pass",
        "reasons": [],
        "warnings": ["history: not checked, as nobody says since when the rows of orders are known. Bought once."],
        "alarm": 0.995,
        "told": "whether the label is above its median",
        "rows": 1846,
        "views": {"share": "replayed", "history": "not checked"},
        "planned": 7,
        "cuts": [
            {"cut": "2024-05-01", "rows": 4, "views": {"share": 4, "history": 2}},
            {"cut": "2024-06-01", "rows": 9, "views": {"share": 5}},
        ],
        "differences": [],
        "single_feature_auc": {"share": 0.6},
    }
    page = leakage_page("shop", body)
    said = "before it was known: 11 rows of views and 13 of the training set&#39;s 1,846 rows, at 2 cuts."
    assert said in page and "Bought once." in page
    unchecked = page.split('aria-label="not checked"')[1].split("</header>")[0]
    assert "history: not checked" in unchecked and "share" not in unchecked
    assert "with a probability of at most 0.8 %" in page
    assert "ROC AUC of telling whether the label is above its median from one feature; above 0.995" in page
    failed = body | {"verdict": "fail", "reasons": ["share alone tells the label. Leave it out."]}
    assert "stamped" not in leakage_page("shop", failed).split("</header>")[0], "no row was stamped wrong"
