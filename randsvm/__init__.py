"""randsvm: support vector machines on svmlight files too large or too noisy for LIBSVM alone."""

__version__ = "0.1.0"
