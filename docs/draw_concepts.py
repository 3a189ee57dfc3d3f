"""Draws docs/images/references.svg and docs/images/gate.svg: what a reference names, and how a candidate is judged."""

from html import escape

from _pages import main

WIDTH = 860
_STYLE = """
.page{fill:#fff}.box{fill:#eef2f7;stroke:#8a99ad}.good{fill:#e9f5f0;stroke:#0a6b4c}.bad{fill:#fdf0ee;stroke:#b42318}
.name{fill:#1b2430;font-size:13px;font-weight:600}.note{fill:#5a6878;font-size:11.5px}
.wire{stroke:#2f6fb0;fill:none;stroke-width:1.6;marker-end:url(#head)}.head{fill:#2f6fb0}
@media (prefers-color-scheme:dark){.page{fill:#11161d}.box{fill:#202a36;stroke:#6d7f94}
.good{fill:#12291f;stroke:#58cda0}.bad{fill:#331917;stroke:#ff9a90}.name{fill:#e6ecf3}.note{fill:#9fb0c3}.wire{stroke:#6fb1f0}.head{fill:#6fb1f0}}
"""

Box = tuple[int, int, int, str, tuple[str, ...], str]
"""Left, top, width, what it is called, what it says, and its style."""
Wire = tuple[int, int, int, int, str]
"""From a point to a point, and what stands above its middle."""

REFERENCES: list[Box] = [
    (20, 40, 250, "what a task hands on", ("models/flight-delays/sha256-cdb4…", "text, as a parameter"), "box"),
    (
        330,
        40,
        230,
        "manifest.json",
        ("its SHA-256 is the digest: cdb4…", "files, schema, what made it"),
        "box",
    ),
    (620, 20, 220, "blobs/9f/9f31….safetensors", ("weights, named by their SHA-256",), "box"),
    (620, 90, 220, "blobs/02/02ab….json", ("metrics, stored once",), "box"),
    (
        330,
        170,
        230,
        "training-sets/…-a8a9…",
        ("and its manifest, and so on", "down to the snapshot of the source"),
        "box",
    ),
    (
        20,
        170,
        250,
        "memo/train/KEY",
        ("data, configuration, code: one key", "known key: this reference, no work"),
        "good",
    ),
]
REFERENCE_WIRES: list[Wire] = [
    (270, 70, 330, 70, "names"),
    (560, 60, 620, 50, "lists"),
    (560, 80, 620, 115, ""),
    (445, 108, 445, 170, ""),
    (145, 170, 145, 108, ""),
]
GATE: list[Box] = [
    (20, 40, 190, "candidate", ("a model, on the test part",), "box"),
    (20, 140, 190, "champion", ("of the ledger, same rows",), "box"),
    (260, 90, 210, "evaluate", ("metrics with paired intervals,", "slices, fairness, calibration"), "box"),
    (520, 90, 130, "policy", ("each rule says", "what it expected"), "box"),
    (700, 20, 145, "approved", ("staging, champion",), "good"),
    (700, 90, 145, "awaits a person", ("approval: manual",), "box"),
    (700, 170, 145, "refused", ("with its reasons",), "bad"),
]
GATE_WIRES: list[Wire] = [
    (210, 65, 260, 105, ""),
    (210, 165, 260, 135, ""),
    (470, 120, 520, 120, ""),
    (650, 105, 700, 50, ""),
    (650, 120, 700, 120, ""),
    (650, 140, 700, 190, ""),
]


def picture(title: str, boxes: list[Box], wires: list[Wire]) -> str:
    height = max(top + _height(said) for _, top, _, _, said, _ in boxes) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    for left, top, width, name, said, style in boxes:
        parts.append(f'<rect class="{style}" x="{left}" y="{top}" width="{width}" height="{_height(said)}" rx="5"/>')
        parts.append(f'<text class="name" x="{left + 12}" y="{top + 23}">{escape(name)}</text>')
        parts += [
            f'<text class="note" x="{left + 12}" y="{top + 42 + 16 * number}">{escape(line)}</text>'
            for number, line in enumerate(said)
        ]
    for x0, y0, x1, y1, word in wires:
        parts.append(f'<path class="wire" d="M{x0} {y0}L{x1} {y1}"/>')
        parts.append(
            f'<text class="note" x="{(x0 + x1) / 2:g}" y="{(y0 + y1) / 2 - 6:g}" text-anchor="middle">{word}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _height(said: tuple[str, ...]) -> int:
    return 36 + 16 * len(said)


def make() -> dict[str, str]:
    return {
        "docs/images/references.svg": picture(
            "A reference names a manifest, which lists blobs and what it was made from; a memo leads to a reference",
            REFERENCES,
            REFERENCE_WIRES,
        ),
        "docs/images/gate.svg": picture(
            "Candidate and champion are measured on the same rows; the policy approves, waits for a person, or refuses",
            GATE,
            GATE_WIRES,
        ),
    }


if __name__ == "__main__":
    main(make, __doc__)
