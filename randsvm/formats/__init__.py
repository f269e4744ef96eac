"""Text formats of models: LIBSVM's, LIBLINEAR's, and the sealed trailer that both may carry."""
