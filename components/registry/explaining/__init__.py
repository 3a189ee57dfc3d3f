"""What a model was made from, how, by whom and why; and how two of them differ."""
