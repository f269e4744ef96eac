"""Benchmarks of whole processes, those of randsvm and those of its peers."""
