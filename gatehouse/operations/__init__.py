"""Operations of runs: prepares them, ends them, cleans up after them and counts them, from the records of runs."""
