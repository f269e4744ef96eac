"""The training set D: parsing, chunks, views, random rows, scaling. No kernels, no tasks."""
