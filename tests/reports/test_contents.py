"""The page of any artifact: numbers become bars, all else is listed, and names are escaped."""

from gatehouse.reports.contents import page
from gatehouse.store.canonical import canonical_json
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore


def test_an_object_of_numbers_is_drawn_as_bars_in_the_order_of_its_keys(store: ArtifactStore) -> None:
    counts = {f"2024-{month:02d}": month * 1000 for month in range(1, 13)}
    reference = store.publish("profiles", "delays", {"counts.json": canonical_json(counts)})
    html = page(store, str(reference))
    assert "<h1>profiles of delays</h1>" in html
    assert html.count('<line class="bar"') == 12
    places = [html.index(month) for month in counts]
    assert places == sorted(places)
    assert "12,000" in html


def test_what_is_no_object_of_numbers_is_listed_and_not_drawn(store: ArtifactStore) -> None:
    files: dict[str, str | bytes] = {"a.json": '{"x": "1"}', "b.json": "[1]", "c.json": "{}", "d.bin": b"1"}
    html = page(store, str(store.publish("things", "some", {**files})))
    assert 'class="bar"' not in html
    assert all(name in html for name in files)


def test_what_is_empty_has_no_section(store: ArtifactStore) -> None:
    html = page(store, str(store.publish("things", "none", {}, details={"window": "", "as_of": "today"})))
    assert "Files" not in html
    assert "as_of" in html and "<dt>window" not in html


def test_more_bars_than_can_be_read_are_cut_and_the_caption_says_so(store: ArtifactStore) -> None:
    many = canonical_json({f"{number:04d}": number for number in range(1234)})
    html = page(store, str(store.publish("profiles", "many", {"numbers.json": many})))
    assert html.count('<line class="bar"') == 100
    assert "the first 100 of 1,234" in html


def test_columns_origin_and_configuration_are_told(store: ArtifactStore) -> None:
    source = store.publish("datasets", "d", {"a": b"1"})
    made = store.publish(
        "tables",
        "t",
        {"t.parquet": b"1"},
        columns=[Column("dest", "string")],
        rows=1234,
        derived_from={"dataset": source},
        configuration={"as_of": "2024-01-01", "names": ["<b>"]},
    )
    html = page(store, str(made))
    assert "1,234 rows" in html and "dest" in html and str(source) in html
    assert "&lt;b&gt;" in html and "<b>" not in html.partition("<h2")[2].partition("Configuration")[2]
