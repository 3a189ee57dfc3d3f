"""From a split of a training set to the rows of every step: files of a job, targets, sampling, batches."""
