"""One run, from files to a model. Knows nothing of the command line."""
