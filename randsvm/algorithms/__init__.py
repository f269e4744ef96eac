"""The algorithms, each on one screen, in the symbols of its paper.

D data set, S first random subset, SV support vectors with their coefficients, V violators, R random
subset of V, k bound on |SV|, r sample size, B or W working set.
"""
