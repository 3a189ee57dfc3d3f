"""How feature columns become what a model reads: fitted on the train part, applied wherever rows are scored."""
