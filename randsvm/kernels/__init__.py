"""Kernel values, sums of them, and random features that stand for a kernel."""
