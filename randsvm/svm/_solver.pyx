# cython: language_level=3
"""Hears what LIBSVM prints, which alone says how many iterations a solve took.

Without Python's lock: LIBSVM prints a dot every few iterations, and a thread that waits for the
lock at each of them can take a hundred times as long.
"""

from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #include <stdio.h>
    #include <string.h>

    /* Of the thread's last solve: solves may run side by side. */
    static __thread int solver_iterations = 0;

    static void solver_hear(const char *text)
    {
        const char *said = strstr(text, "#iter = ");
        if (said != NULL)
            sscanf(said, "#iter = %d", &solver_iterations);
    }
    """
    int solver_iterations
    void solver_hear(const char *text) noexcept nogil

# Address of a print function for LIBSVM.
HEAR = <uintptr_t> &solver_hear


def iterations():
    """Iterations of the solve that ended last in this thread."""
    return solver_iterations
