"""Algorithm 1 of KBH07, RandSVM-1(D, k, r), and the same over working sets of any rows.

Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector Learning",
NIPS 2007. As printed, in terms of decomposition.py:

    S = a random subset of r rows;  SV = svmlearn(S);  V = violators(D, SV)     the start
    while |V| > 0 and |SV| < k                                                  the stop rules
        R = a random subset of V of r - |SV| rows                               choice.next
        SV = svmlearn(SV + R);  V = violators(D, SV)

alpha is 0 outside of the working set SV + R, which therefore grows with the support vectors. The
certified rule freezes what is outside wherever it stands, so that r stays as small as it is.

The default r = 1.5 k of the printed rule (RandsvmParams.EXCESS) is measured: r - |SV| violators
enter a round, so a small excess over k makes many rounds, while LIBSVM's time grows with r squared.
Processor seconds at k = 10,404 and 100,000 rows, checkerboard (C = 1, g = 5; 8,614 support vectors)
and twonorm (C = 1, g = 0.05; 6,984):

    r / k          1.02   1.1   1.25   1.5   2.0
    checkerboard    6.5   4.8    5.8   3.5   3.7
    twonorm         8.3   8.5    8.5   9.9  10.0

Between 1.1 and 2 the sums differ by less than a tenth; 1.5 leaves room where |SV| ends near k.
"""

from __future__ import annotations

from randsvm.svm.working_set import Choice, UniformSample


def kbh07(r: int) -> Choice:
    """The printed rule: every support vector, and random violators in the room beside them."""
    return Choice(r, r, UniformSample, every_support_vector=True)


def certified(r: int) -> Choice:
    """Random violators, all of the working set anew, while they are more than the support vectors;
    from then on the steepest pairs."""
    return Choice(r, r, UniformSample, then_pairs=True)
