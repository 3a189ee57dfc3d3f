"""Self-contained HTML and SVG reports that stages emit."""
