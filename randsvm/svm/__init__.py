"""The mathematics: tasks, solutions, the scan for violators, subproblems and LIBSVM."""
