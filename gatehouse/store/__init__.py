"""Content-addressed store: references, manifests, object stores, stage memo."""
