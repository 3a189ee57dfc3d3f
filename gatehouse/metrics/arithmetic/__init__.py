"""Functions of numbers whose results have the same bits on every processor."""
