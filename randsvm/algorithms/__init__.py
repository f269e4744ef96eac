"""Training algorithms: decomposition, stochastic gradient descent, coordinate ascent, Newton's
method, reduced sets.

Their symbols are those of the papers:

D data set, S first random subset, SV support vectors with their coefficients, V violators, R random
subset of V, k bound on |SV|, r sample size, B or W working set.
"""
