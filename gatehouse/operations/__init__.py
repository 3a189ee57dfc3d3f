"""Operations of runs: reports their ends, cleans up after them, and counts them, all from the records of runs."""
