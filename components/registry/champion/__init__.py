"""The champion and what it was trained on."""
