"""Kernel values, sums of them, and random features that approximate a kernel."""
