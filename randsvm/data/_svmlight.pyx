# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Parse svmlight text into arrays and write arrays as svmlight text: the loops of svmlight.py.

The parser decides whether a token is legal and returns the position of the first bad one;
svmlight.py writes the error message. The loops run without the GIL.
"""

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from libcpp.unordered_map cimport unordered_map
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from cython.operator cimport dereference

import numpy as np

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **stop, void *overflow) except? -1.0

cdef extern from *:
    """
    #include <float.h>
    #include <stdint.h>
    #include <string.h>

    /* The next eight bytes, the first of them lowest. */
    static inline uint64_t svmlight_load(const uint8_t *p)
    {
        uint64_t word;
        memcpy(&word, p, sizeof word);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    static const double SVMLIGHT_TEN[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30,
        1e31, 1e32, 1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43, 1e44, 1e45,
        1e46, 1e47, 1e48, 1e49, 1e50, 1e51, 1e52, 1e53, 1e54, 1e55, 1e56, 1e57, 1e58, 1e59, 1e60,
        1e61, 1e62, 1e63, 1e64, 1e65, 1e66};
    static const long double SVMLIGHT_LONG_TEN[] = {
        1e0L, 1e1L, 1e2L, 1e3L, 1e4L, 1e5L, 1e6L, 1e7L, 1e8L, 1e9L, 1e10L, 1e11L, 1e12L, 1e13L,
        1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L,
        1e26L, 1e27L};
    static const uint64_t SVMLIGHT_WHOLE_TEN[] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    static const double SVMLIGHT_SIGN[] = {1.0, -1.0};
    #define SVMLIGHT_ZEROS 0x3030303030303030ULL  /* eight digits 0 */
    #define SVMLIGHT_EXACT (1ULL << 53)           /* whole numbers up to here are doubles */
    #define SVMLIGHT_INDEX_LIMIT INT32_MAX
    #define SVMLIGHT_ROUNDED_TWICE 0x1.5c87fap-84f
    """
    uint64_t load "svmlight_load"(const uint8_t *p) noexcept nogil
    int trailing_zeros "__builtin_ctzll"(uint64_t word) noexcept nogil
    int ones "__builtin_popcountll"(uint64_t word) noexcept nogil
    bint likely "__builtin_expect"(bint condition, bint usual) noexcept nogil
    const double *TEN "SVMLIGHT_TEN"
    const long double *LONG_TEN "SVMLIGHT_LONG_TEN"
    const uint64_t *WHOLE_TEN "SVMLIGHT_WHOLE_TEN"
    const double *SIGN "SVMLIGHT_SIGN"
    const uint64_t ZEROS "SVMLIGHT_ZEROS"
    const uint64_t EXACT "SVMLIGHT_EXACT"
    const int64_t INDEX_LIMIT "SVMLIGHT_INDEX_LIMIT"
    const float ROUNDED_TWICE "SVMLIGHT_ROUNDED_TWICE"
    const float MAX_FLOAT "FLT_MAX"
    const double MAX_DOUBLE "DBL_MAX"
    const long double LONG_EPSILON "LDBL_EPSILON"

ctypedef const uint8_t *Text

# The caller appends these bytes: a parser reads eight bytes at a time and stops at newlines.
PADDING = b"\n" * 8

cdef enum:
    SPACE = 32
    TAB = 9
    NEWLINE = 10
    RETURN = 13
    QUOTE = 34
    COMMENT = 35
    COLON = 58
    COMMA = 44
    DOT = 46
    PLUS = 43
    MINUS = 45
    QUESTION = 63
    ZERO = 48
    LETTER_E = 101


cdef extern from "<string_view>" namespace "std" nogil:
    cdef cppclass string_view:
        string_view()
        string_view(const char *start, size_t length)


cdef struct Spelling:
    Text start
    Py_ssize_t length
    int64_t line
    int64_t column


cdef struct Number:
    uint64_t digits     # |value| = digits * 10 ** exponent, the first 19 significant digits
    int64_t exponent
    bint dropped        # there were more digits


# ---- numbers ----------------------------------------------------------------------------------

cdef inline uint64_t not_digits(uint64_t word) noexcept nogil:
    """Return a word whose lowest nonzero byte marks the first byte that is not a digit.

    word: eight bytes of text ^ ZEROS.
    """
    return ((word + 0x0606060606060606ULL) | word) & 0xF0F0F0F0F0F0F0F0ULL


cdef inline uint64_t eight_digits(uint64_t word) noexcept nogil:
    """Return the number whose decimal digits are the bytes of `word`, the lowest byte first."""
    word = (word * 10 + (word >> 8)) & 0x00FF00FF00FF00FFULL
    word = (word * 100 + (word >> 16)) & 0x0000FFFF0000FFFFULL
    return (word * 10000 + (word >> 32)) & 0xFFFFFFFFULL


cdef inline Text one_by_one(Text p, Number *number, int step) noexcept nogil:
    """Read digits one by one; `step` is 0 before the decimal point and 1 after it."""
    while p[0] - 48u <= 9u:
        if likely(number.digits < 1000000000000000000ULL, True):
            number.digits = number.digits * 10 + (p[0] - 48u)
            number.exponent -= step
        else:
            number.exponent += 1 - step
            number.dropped = True
        p += 1
    return p


cdef inline Text fraction(Text p, Number *number) noexcept nogil:
    """Read the digits after the decimal point, eight at a time while they fit."""
    cdef uint64_t word, others
    cdef int n
    while number.digits < 100000000000ULL:
        word = load(p) ^ ZEROS
        others = not_digits(word)
        if others != 0:
            n = trailing_zeros(others) >> 3
            word = (word << (8 * (7 - n))) << 8   # two shifts: n may be 0
            number.digits = number.digits * WHOLE_TEN[n] + eight_digits(word)
            number.exponent -= n
            return p + n
        number.digits = number.digits * 100000000ULL + eight_digits(word)
        number.exponent -= 8
        p += 8
    return one_by_one(p, number, 1)


cdef Text power(Text p, int64_t *exponent) noexcept nogil:
    """Read `e`, a sign and digits; return NULL if there are no digits."""
    cdef bint negative
    p += 1
    negative = p[0] == MINUS
    if negative or p[0] == PLUS:
        p += 1
    if p[0] - 48u > 9u:
        return NULL
    exponent[0] = 0
    while p[0] - 48u <= 9u:
        if exponent[0] < 1000000000:   # no line is long enough for more to matter
            exponent[0] = exponent[0] * 10 + (p[0] - 48u)
        p += 1
    if negative:
        exponent[0] = -exponent[0]
    return p


cdef inline Text unsigned_number(Text p, Number *number) noexcept nogil:
    """Read digits[.digits*]|.digits and an exponent; return NULL if this is not a number."""
    cdef Text start = p
    cdef int64_t exponent = 0
    number.digits = 0
    number.exponent = 0
    number.dropped = False
    p = one_by_one(p, number, 0)
    if p[0] == DOT:
        p = fraction(p + 1, number)
        if p - start == 1:
            return NULL
    elif p == start:
        return NULL
    if p[0] | 32 == LETTER_E:
        p = power(p, &exponent)
        number.exponent += exponent
    return p


cdef double correctly_rounded(Text start) noexcept with gil:
    """Return the float64 that Python's float() returns. This takes the GIL.

    start: the text, which need not end with a NUL.
    """
    cdef char *stop
    return PyOS_string_to_double(<const char *> start, &stop, NULL)


cdef inline double to_float64(Number number, Text start) noexcept nogil:
    """Return the correctly rounded float64. start: the first digit or dot of the number."""
    # Both operands are exact, so IEEE 754 rounds the quotient correctly (Clinger 1990).
    if likely(number.digits <= EXACT and number.exponent <= 0 and number.exponent >= -22, True):
        return <double> <int64_t> number.digits / TEN[-number.exponent]
    return float64_of_many_digits(number, start)


cdef double float64_of_many_digits(Number number, Text start) noexcept nogil:
    cdef long double near
    cdef double low, high
    if number.digits == 0:
        return 0.0
    if number.exponent >= -27 and number.exponent <= 27 and not number.dropped:
        if number.exponent < 0:
            near = <long double> number.digits / LONG_TEN[-number.exponent]
        else:
            near = <long double> number.digits * LONG_TEN[number.exponent]
        # If long double is float64, these two differ, and Python's function decides.
        low = <double> (near * (1 - 2 * LONG_EPSILON))
        high = <double> (near * (1 + 2 * LONG_EPSILON))
        if low == high:
            return low
    return correctly_rounded(start)


ctypedef fused real:
    float
    double

cdef extern from "<charconv>" nogil:
    ctypedef struct to_chars_result "std::to_chars_result":
        char *ptr
    ctypedef int chars_format "std::chars_format"
    const chars_format FIXED "std::chars_format::fixed"
    const chars_format SCIENTIFIC "std::chars_format::scientific"
    to_chars_result to_chars "std::to_chars"(char *first, char *last, int32_t value) noexcept
    to_chars_result real_to_chars "std::to_chars"(
        char *first, char *last, float value, chars_format format) noexcept
    to_chars_result real_to_chars "std::to_chars"(
        char *first, char *last, double value, chars_format format) noexcept

cdef extern from *:
    """
    #include <math.h>

    /* The power 10^p of a float32 with each biased exponent: the largest whose multiples of 10^-p
     * lie as far apart as these float32 numbers, or farther. 2^23 10^-p is at least a power of
     * two then, so numbers of 6 digits are such multiples. */
    struct svmlight_powers {
        double ten[256];
        svmlight_powers()
        {
            for (int biased = 0; biased < 256; biased++) {
                int p = (int) floor((23 - (biased - 127)) * 0.30102999566398120);
                ten[biased] = p < 0 ? 0 : SVMLIGHT_TEN[p < 21 ? p : 21];
            }
        }
    };
    static const svmlight_powers SVMLIGHT_POWERS;

    /* Round |x| < 2^51 to a whole number, ties to even. */
    static inline double svmlight_whole(double x)
    {
        return (x + 0x1.8p52) - 0x1.8p52;
    }

    /* The same for numbers from 2^24 on, and for those that need two more digits. */
    static double svmlight_rare_decimal(float x, double ten)
    {
        double value = x, found;
        if (ten > 0) {          /* a power of two, whose lower neighbour is nearer */
            found = rint(value * (ten * 100)) / (ten * 100);
            return (float) found == x ? found : value;
        }
        for (int p = 22; p >= 0; p--) {
            found = rint(value / SVMLIGHT_TEN[p]) * SVMLIGHT_TEN[p];
            if ((float) found == x)
                return found;
        }
        return value;
    }

    /* The number that a float32 stands for: the shortest decimal that rounds to it, as float64. */
    static inline double svmlight_decimal(float x)
    {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        double ten = SVMLIGHT_POWERS.ten[bits >> 23 & 255], more = ten * 10, value = x;
        /* Whole numbers below 2^28 and powers up to 10^22 are exact, so quotients are correctly
         * rounded, as those of the parser. */
        double few = svmlight_whole(value * ten) / ten, many = svmlight_whole(value * more) / more;
        /* Selected by bits: a branch would be mispredicted for every other number. */
        uint64_t mask = (uint64_t) 0 - ((float) few == x), one, other;
        memcpy(&one, &few, sizeof one);
        memcpy(&other, &many, sizeof other);
        one = (one & mask) | (other & ~mask);
        memcpy(&value, &one, sizeof one);
        if (__builtin_expect((float) value != x, 0))
            return svmlight_rare_decimal(x, ten);
        return copysign(value, x);
    }
    """
    double decimal_of "svmlight_decimal"(float x) noexcept nogil
    double fabs(double x) noexcept nogil
    double copysign(double x, double y) noexcept nogil

# What was expected in place of a bad token. NUL: text; a NUL byte was found.
LABEL, QUERY, FEATURE, NUL = range(1, 5)
COST, NUMBER = 6, 7

cdef enum:
    IS_LABEL = 1
    IS_QUERY = 2
    IS_FEATURE = 3
    IS_NUL = 4
    IS_MEMORY = 5
    IS_COST = 6
    IS_NUMBER = 7

# Indices below this are collected in a bitmap of 2 MiB, larger ones by the caller.
MARKED = 1 << 24
MAX_INDEX = 2**31 - 1

cdef enum:
    MARKS = 1 << 24
    MAX_NUMBER = 1 << 24   # of a row; float32 has all whole numbers up to here
    ENTRY_ROOM = 48   # " 2147483647:-1.2345678901234567e-308" and the end of the line


cdef struct Fault:
    int expected        # 0: none
    Text start
    Text stop
    int64_t line
    int64_t column
    int64_t previous    # the preceding index in the same row


# ---- tokens -----------------------------------------------------------------------------------

cdef inline bint ends_token(Text p) noexcept nogil:
    if p[0] > COMMENT:
        return False
    return (p[0] == SPACE or p[0] == NEWLINE or p[0] == TAB or p[0] == COMMENT
            or (p[0] == RETURN and p[1] == NEWLINE))


cdef inline Text end_of_token(Text p) noexcept nogil:
    while not ends_token(p):
        p += 1
    return p


cdef inline Text skip_blanks(Text p) noexcept nogil:
    while p[0] == SPACE or p[0] == TAB:
        p += 1
    return p


cdef inline Text next_token(Text p) noexcept nogil:
    """Step over the blanks after a token; return NULL if the token does not end here."""
    if likely(p[0] == SPACE, True):   # most writers put one space
        p += 1
        return p if likely(p[0] > SPACE, True) else skip_blanks(p)
    return skip_blanks(p) if ends_token(p) else NULL


cdef inline Text read_index(Text p, int64_t *index) noexcept nogil:
    """Read digits, if any. For a number above INDEX_LIMIT `index` is any number above it."""
    cdef uint64_t word = load(p) ^ ZEROS
    cdef uint64_t others = not_digits(word)
    cdef int n
    if likely(others != 0, True):
        n = trailing_zeros(others) >> 3
        index[0] = eight_digits((word << (8 * (7 - n))) << 8)   # two shifts: n may be 0
        return p + n
    index[0] = 0
    while p[0] - 48u <= 9u:
        if index[0] <= INDEX_LIMIT:
            index[0] = index[0] * 10 + (p[0] - 48u)
        p += 1
    return p


cdef bint is_not_finite(Text p, Py_ssize_t length) noexcept nogil:
    """Return whether the token is nan, inf or infinity in a spelling that float() accepts."""
    cdef const char *word
    cdef Py_ssize_t i
    if length > 0 and (p[0] == PLUS or p[0] == MINUS):
        p += 1
        length -= 1
    if length == 3:
        word = b"nan" if p[0] | 32 == 110 else b"inf"
    elif length == 8:
        word = b"infinity"
    else:
        return False
    for i in range(length):
        if p[i] | 32 != word[i]:
            return False
    return True


cdef bint is_label(Text p, Py_ssize_t length, bint unlabelled) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(length):
        if p[i] == COLON or p[i] == COMMA or p[i] < 32 or p[i] == 127:
            return False
    if length == 1 and p[0] == QUESTION:
        return unlabelled
    return not is_not_finite(p, length)


cdef bint read_number_label(
    Text p, Text stop, bint unlabelled, double most, double *value
) noexcept nogil:
    """Read a label that is a number; return False unless it is from -most to most.

    `?` is read as nan if unlabelled rows are allowed.
    """
    cdef Number number
    cdef bint negative = p[0] == MINUS
    if p[0] == QUESTION and stop - p == 1:
        value[0] = NAN
        return unlabelled
    if negative or p[0] == PLUS:
        p += 1
    if unsigned_number(p, &number) != stop:
        return False
    value[0] = SIGN[negative] * to_float64(number, p)
    return -most <= value[0] <= most


# ---- the file ---------------------------------------------------------------------------------

cdef class Rows:
    """The result of parsing one piece of text, apart from the arrays that `parse` fills.

    rows, entries : numbers of rows and of entries, without a row that has a bad token
    lines : number of lines
    queries : number of rows with a qid:
    beyond : whether an index of 2**24 or more is among `indices`
    few_digits : whether every value has at most 6 digits, so that a float32 stands for it
    number, number_line, number_column : the largest row number, 0 if there is none, and its place
    """

    cdef readonly int64_t rows, entries, queries, lines, number, number_line, number_column
    cdef readonly bint beyond, few_digits
    cdef bint weighted, zero_based, unlabelled, numbered
    cdef const uint8_t[::1] text   # spellings and the fault point into it
    cdef Text line_start  # of line number lines + 1, the one being read
    cdef int32_t *codes   # NULL if labels are numbers
    cdef double most  # of a label
    cdef double *y
    cdef double *row_weights   # NULL before the first cost:
    cdef int64_t *groups  # NULL if qids are ignored
    cdef int64_t *indptr
    cdef int64_t max_rows
    cdef int32_t *indices
    cdef double *values
    cdef uint64_t *marks  # a bit for each index
    cdef int64_t largest  # of the marked ones
    cdef unordered_map[string_view, int32_t] code_of  # of each distinct label
    cdef vector[Spelling] found
    cdef Fault fault

    def __cinit__(self):
        self.marks = <uint64_t *> calloc(MARKS // 64, sizeof(uint64_t))
        if self.marks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.marks)
        free(self.row_weights)

    def parse(self, const uint8_t[::1] text, double most, bint zero_based, bint unlabelled, bint numbered,
              int32_t[::1] codes, double[::1] y, int64_t[::1] indptr,
              int32_t[::1] indices, double[::1] values, int64_t[::1] groups=None):
        """Parse complete lines followed by PADDING into arrays of the lengths from `count`.

        most: the largest label that is a number; 0 if labels are classes.
        numbered: whether every row must begin with 0:number. groups: takes the qid of each row,
        modulo 2^64; every row must have one then.
        """
        cdef Text start = &text[0]
        cdef Text end = start + text.shape[0] - len(PADDING)
        cdef bint enough
        self.text = text
        self.zero_based = zero_based
        self.unlabelled = unlabelled
        self.numbered = numbered
        self.codes = NULL
        self.y = NULL
        self.groups = NULL
        if groups is not None and groups.shape[0]:
            self.groups = &groups[0]
        self.most = most
        if most > 0:
            self.y = &y[0]
        else:
            self.codes = &codes[0]
        self.indptr = &indptr[0]
        self.max_rows = indptr.shape[0] - 1
        self.indices = &indices[0] if indices.shape[0] else NULL
        self.values = &values[0] if values.shape[0] else NULL
        self.few_digits = True
        with nogil:
            enough = self.read_lines(start, end)
        if not enough:
            raise MemoryError

    cdef bint read_lines(self, Text p, Text end) noexcept nogil:
        """Read all lines up to the first bad token; return False if there is no memory."""
        cdef int64_t start, before = 0   # where this row and the one before it begin
        cdef int64_t queries
        cdef Text features
        self.indptr[0] = 0
        while p < end:
            self.line_start = p
            p = skip_blanks(p)
            if not ends_token(p):
                start = self.entries
                queries = self.queries
                if self.weighted:
                    self.row_weights[self.rows] = 1.0
                p = self.read_label(p)
                if p != NULL:
                    p = self.read_query(p)
                if p != NULL and p[0] == c"c":
                    p = self.read_cost(p)
                    if p != NULL and self.queries == queries:
                        p = self.read_query(p)
                if p != NULL and self.groups != NULL and self.queries == queries:
                    p = self.bad(IS_QUERY, p, 0)
                if p != NULL:
                    features = p
                    p = self.read_features(p)
                    if p != NULL and self.numbered and not self.has_number(features, start):
                        p = NULL
                if p == NULL:
                    break
                self.rows += 1
                self.indptr[self.rows] = self.entries
                self.mark(before, start)
                before = start
            p = self.read_end(p, end)
            if p == NULL:
                break
            self.lines += 1
        return self.fault.expected != IS_MEMORY

    cdef inline Text read_label(self, Text p) noexcept nogil:
        """Read the label and the blanks after it.

        This method and those below return NULL after a bad token, which `fault` describes.
        """
        cdef Text stop = end_of_token(p)
        if self.codes == NULL:
            if not read_number_label(p, stop, self.unlabelled, self.most, &self.y[self.rows]):
                return self.bad(IS_LABEL, p, 0)
        elif not self.read_class(p, stop - p, &self.codes[self.rows]):
            return NULL
        return skip_blanks(stop)

    cdef inline Text read_query(self, Text p) noexcept nogil:
        """Read qid:number, if there is one."""
        cdef Text token = p
        cdef uint64_t value = 0
        cdef bint negative
        if memcmp(p, <const char *> b"qid:", 4) != 0:
            return p
        p += 4
        negative = p[0] == MINUS
        if negative or p[0] == PLUS:
            p += 1
        cdef Text digits = p
        while p[0] - 48u <= 9u:
            value = value * 10 + (p[0] - 48u)
            p += 1
        if p == digits or not ends_token(p):
            return self.bad(IS_QUERY, token, 0)
        if self.groups != NULL:
            self.groups[self.rows] = <int64_t> (0 - value if negative else value)
        self.queries += 1
        return skip_blanks(p)

    cdef Text read_cost(self, Text p) noexcept nogil:
        """Read cost:number, if there is one: the weight of the row, from 0 to 3.4e38."""
        cdef Text token = p
        cdef Number number
        cdef bint negative
        cdef double value
        cdef int64_t i
        if memcmp(p, <const char *> b"cost:", 5) != 0:
            return p
        p += 5
        negative = p[0] == MINUS
        if negative or p[0] == PLUS:
            p += 1
        cdef Text digits = p
        p = unsigned_number(p, &number)
        if p == NULL or not ends_token(p):
            return self.bad(IS_COST, token, 0)
        value = to_float64(number, digits)
        if <float> value > MAX_FLOAT or (negative and value != 0.0):
            return self.bad(IS_COST, token, 0)
        if not self.weighted:
            self.row_weights = <double *> calloc(self.max_rows + 1, sizeof(double))
            if self.row_weights == NULL:
                self.fault.expected = IS_MEMORY
                return NULL
            self.weighted = True
            for i in range(self.rows):
                self.row_weights[i] = 1.0
        self.row_weights[self.rows] = value
        return skip_blanks(p)

    def weights(self):
        """Return the weights of all rows, float64; None if there was no cost:."""
        if not self.weighted:
            return None
        return np.array(<double[:self.max_rows + 1]> self.row_weights)[:self.rows]

    cdef inline Text read_features(self, Text p) noexcept nogil:
        """Read the rest of the row, up to the comment or the end of the line."""
        cdef int64_t entries = self.entries, previous = -1 if self.zero_based else 0, index
        cdef int32_t *indices = self.indices
        cdef double *values = self.values
        cdef Text token, digits
        cdef Number number
        cdef bint negative, few_digits = self.few_digits
        cdef double value
        while True:
            token = p
            p = read_index(p, &index)
            if p == token:
                if not ends_token(p):
                    return self.bad(IS_FEATURE, token, previous)
                self.entries = entries
                self.few_digits = few_digits
                return p
            if index <= previous or index > INDEX_LIMIT or p[0] != COLON:
                return self.bad(IS_FEATURE, token, previous)
            p += 1
            negative = p[0] == MINUS
            p += negative
            if p[0] == PLUS and not negative:
                p += 1
            digits = p
            p = unsigned_number(p, &number)
            if p != NULL:
                p = next_token(p)
            if p == NULL:
                return self.bad(IS_FEATURE, token, previous)
            value = to_float64(number, digits)
            if <float> value > MAX_FLOAT:
                return self.bad(IS_FEATURE, token, previous)
            few_digits &= (number.digits < 1000000 and number.exponent <= 0
                           and number.exponent >= -22)
            values[entries] = SIGN[negative] * value
            indices[entries] = <int32_t> index
            previous = index
            entries += 1

    cdef bint has_number(self, Text token, int64_t start) noexcept nogil:
        """Check the number of a row, its first entry. token: the first token of the features."""
        cdef double value = 0.0
        if self.entries > start and self.indices[start] == 0:
            value = self.values[start]
        if not 1 <= value <= MAX_NUMBER or value != <double> <int64_t> value:
            self.bad(IS_NUMBER, token, 0)
            return False
        if value > self.number:
            self.number = <int64_t> value
            self.number_line = self.lines + 1
            self.number_column = token - self.line_start + 1
        return True

    cdef inline Text read_end(self, Text p, Text end) noexcept nogil:
        """Read a comment, if any, and the end of the line."""
        cdef Text stop = <Text> memchr(p, NEWLINE, end + 1 - p)
        cdef Text nul
        if stop - p > 1:
            nul = <Text> memchr(p, 0, stop - p)
            if nul != NULL:
                return self.bad(IS_NUL, nul, 0)
        return stop + 1

    cdef Text bad(self, int expected, Text token, int64_t previous) noexcept nogil:
        """Record the bad token in `fault`; return NULL."""
        cdef Text stop = token + 1 if expected == IS_NUL else end_of_token(token)
        cdef Text nul = <Text> memchr(token, 0, stop - token)
        if nul != NULL:
            expected = IS_NUL
            token = nul
        self.fault.expected = expected
        self.fault.start = token
        self.fault.stop = stop
        self.fault.line = self.lines + 1
        self.fault.column = token - self.line_start + 1
        self.fault.previous = previous
        return NULL

    cdef inline bint read_class(self, Text p, Py_ssize_t length, int32_t *code) noexcept nogil:
        """Find the label among the spellings or add it; return False for a bad label."""
        cdef string_view token = string_view(<const char *> p, length)
        cdef unordered_map[string_view, int32_t].iterator known = self.code_of.find(token)
        if likely(known != self.code_of.end(), True):
            code[0] = dereference(known).second
            return True
        if not is_label(p, length, self.unlabelled):
            self.bad(IS_LABEL, p, 0)
            return False
        code[0] = <int32_t> self.found.size()
        # An exception of the containers leaves this mark.
        self.fault.expected = IS_MEMORY
        self.found.push_back(Spelling(p, length, self.lines + 1, p - self.line_start + 1))
        self.code_of.insert(pair[string_view, int32_t](token, code[0]))
        self.fault.expected = 0
        return True

    cdef inline void mark(self, int64_t before, int64_t start) noexcept nogil:
        """Mark the indices of the last row, start:entries; before:start is the row above it."""
        cdef int32_t *indices = self.indices
        cdef int64_t stop = self.entries, i
        # Rows of dense data have the same indices, which are marked already.
        if stop - start == start - before and memcmp(
                &indices[start], &indices[before], (stop - start) * sizeof(int32_t)) == 0:
            return
        while stop > start and indices[stop - 1] >= MARKS:   # indices ascend
            self.beyond = True
            stop -= 1
        for i in range(start, stop):
            self.marks[indices[i] >> 6] |= <uint64_t> 1 << (indices[i] & 63)
        if stop > start and indices[stop - 1] > self.largest:
            self.largest = indices[stop - 1]

    def features(self):
        """Return the distinct indices below 2**24 in ascending order, int32."""
        cdef int64_t i, position = 0
        cdef uint64_t word
        for i in range(self.largest // 64 + 1):
            position += ones(self.marks[i])
        found = np.empty(position, np.int32)
        cdef int32_t[::1] into = found
        position = 0
        with nogil:
            for i in range(self.largest // 64 + 1):
                word = self.marks[i]
                while word:
                    into[position] = <int32_t> (64 * i + trailing_zeros(word))
                    position += 1
                    word &= word - 1
        return found

    def spellings(self):
        """Return (token, line, column) of each distinct label in order of first appearance."""
        return [(item.start[:item.length], item.line, item.column) for item in self.found]

    def bad_token(self):
        """Return (expected, token, line, column, preceding index) of the bad token, or None."""
        if not self.fault.expected:
            return None
        return (self.fault.expected, self.fault.start[:self.fault.stop - self.fault.start],
                self.fault.line, self.fault.column, self.fault.previous)


# ---- writing ----------------------------------------------------------------------------------

cdef inline uint8_t *put_index(uint8_t *p, int32_t index) noexcept nogil:
    """Write a number. Like the functions below, return the end of the text."""
    return <uint8_t *> to_chars(<char *> p, <char *> p + ENTRY_ROOM, index).ptr


cdef uint8_t *put_power(uint8_t *p, real value) noexcept nogil:
    """Write a value with an exponent, in the fewest digits that read back to it."""
    cdef uint8_t *stop = <uint8_t *> real_to_chars(
        <char *> p, <char *> p + ENTRY_ROOM, value, SCIENTIFIC).ptr
    # Of e+06 and e-05 write e6 and e-5.
    cdef uint8_t *exponent = <uint8_t *> memchr(p, LETTER_E, stop - p) + 1
    cdef uint8_t *digits = exponent + 1
    exponent += exponent[0] == MINUS
    digits += digits[0] == ZERO
    memmove(exponent, digits, stop - digits)
    return exponent + (stop - digits)


cdef inline uint8_t *put_value(uint8_t *p, real value) noexcept nogil:
    """Write a value, with an exponent below 1e-4, and from 1e6 on if that is shorter; return NULL
    if it is not finite.

    The text has the fewest digits that read back to it; of several such numbers it is the nearest.
    The reader rounds to float64 and then to float32, std::to_chars assumes one rounding. A test of
    all float32 values found that this matters for one of them only: ROUNDED_TWICE.
    """
    cdef double size = fabs(value), decimal = value
    cdef uint8_t[ENTRY_ROOM] text
    cdef uint8_t *stop
    cdef Py_ssize_t length
    if size > MAX_DOUBLE or size != size:
        return NULL
    if real is float:
        if size == ROUNDED_TWICE:   # its shortest form, 7.038531e-26, reads as the next float32
            return put_power(p, copysign(7.0385307e-26, value))
    if (size < 1e-4 and size != 0) or size >= 1e16:
        return put_power(p, value)
    if real is float:
        decimal = decimal_of(value)
    stop = <uint8_t *> real_to_chars(<char *> p, <char *> p + ENTRY_ROOM, decimal, FIXED).ptr
    if size >= 1e6:
        length = put_power(text, value) - text
        if length < stop - p:
            memcpy(p, text, length)
            return p + length
    return stop


cdef class Lines:
    """Rows as text. Each call of `fill` continues where the last one ended.

    labels : the labels, each followed by a newline
    indptr : (labels + 1,) int64, ascending, the first entry of each row in indices and values
    values : (entries,) float32 or float64
    """

    cdef bytes labels
    cdef const int64_t[::1] indptr
    cdef const int32_t[::1] indices
    cdef const float[::1] singles    # the values, in one of both
    cdef const double[::1] doubles
    cdef bint is_single
    cdef Text label, labels_end   # the next one, and where the last ends
    cdef int64_t row, entry
    cdef bint inside      # whether the row's label is written

    def __init__(self, bytes labels, const int64_t[::1] indptr, const int32_t[::1] indices,
                 values):
        self.labels = labels
        self.indptr = indptr
        self.indices = indices
        self.is_single = values.itemsize == sizeof(float)
        if self.is_single:
            self.singles = values
        else:
            self.doubles = values
        self.label = <Text> <const char *> labels
        self.labels_end = self.label + len(labels)
        self.row = 0
        self.entry = indptr[0]
        self.inside = False

    def fill(self, uint8_t[::1] into):
        """Write rows as long as there is room; return the number of bytes, 0 at the end.

        into : (size,) uint8, larger than any label and one entry.
        """
        cdef int64_t size
        with nogil:
            size = self.put_rows(&into[0], &into[0] + into.shape[0])
        if size < 0:
            raise ValueError("expected indices from 0 and finite values, found others")
        return size

    cdef int64_t put_rows(self, uint8_t *start, uint8_t *end) noexcept nogil:
        cdef uint8_t *p = start
        cdef Text stop
        cdef Py_ssize_t length
        while self.row < self.indptr.shape[0] - 1:
            if not self.inside:
                stop = <Text> memchr(self.label, NEWLINE, self.labels_end - self.label)
                length = stop - self.label
                if end - p < length + ENTRY_ROOM:
                    break
                memcpy(p, self.label, length)
                p += length
                self.label = stop + 1
                self.inside = True
            p = self.put_entries(p, end)
            if p == NULL:
                return -1
            if self.entry < self.indptr[self.row + 1]:
                break
            p[0] = NEWLINE
            p += 1
            self.row += 1
            self.inside = False
        return p - start

    cdef inline uint8_t *put_entries(self, uint8_t *p, uint8_t *end) noexcept nogil:
        """Write the entries of a row as long as there is room; return NULL for an illegal entry."""
        cdef int64_t stop = self.indptr[self.row + 1], i
        cdef const int32_t *indices = &self.indices[0]
        for i in range(self.entry, stop):
            if end - p < ENTRY_ROOM:
                self.entry = i
                return p
            if indices[i] < 0:
                return NULL
            p[0] = SPACE
            p = put_index(p + 1, indices[i])
            p[0] = COLON
            p = put_value(p + 1, self.singles[i]) if self.is_single else put_value(
                p + 1, self.doubles[i])
            if p == NULL:
                return NULL
        self.entry = stop
        return p


# ---- rows of numbers --------------------------------------------------------------------------

def first_numbers(bytes text, double[:, ::1] numbers, uint8_t[::1] rest):
    """Read the numbers that lines begin with; return the number of lines that have enough of them.

    text: complete lines and PADDING; numbers : (lines, count), count > 0. rest: a copy of the
    lines, in which blanks replace the numbers.
    """
    cdef Text start = <Text> <const char *> text
    cdef Py_ssize_t line = 0
    if rest.shape[0]:
        with nogil:
            line = read_numbers(start, start + rest.shape[0], numbers, &rest[0])
    return line


cdef Py_ssize_t read_numbers(
    Text start, Text end, double[:, ::1] numbers, uint8_t *rest
) noexcept nogil:
    cdef Text p = start, stop
    cdef Py_ssize_t line, column
    for line in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            p = skip_blanks(p)
            stop = end_of_token(p)
            if not read_number_label(p, stop, False, MAX_DOUBLE, &numbers[line, column]):
                return line
            memset(rest + (p - start), SPACE, stop - p)
            p = stop
        p = <Text> memchr(p, NEWLINE, end - p) + 1
    return numbers.shape[0]


# ---- decimals as float32 ----------------------------------------------------------------------

def round_decimals(const double[::1] values):
    """Return values as float32, or None unless each stands for its value, see `decimals`."""
    cdef Py_ssize_t i
    cdef bint same = True
    found = np.empty(values.shape[0], np.float32)
    cdef float[::1] out = found
    with nogil:
        for i in range(values.shape[0]):
            out[i] = <float> values[i]
            same = decimal_of(out[i]) == values[i]
            if not same:
                break
    return found if same else None


def decimals(const float[::1] values):
    """Return the numbers that finite float32 values stand for, float64: of the decimals that round
    to a value, the shortest; of several of this length the nearest."""
    cdef Py_ssize_t i
    found = np.empty(values.shape[0])
    cdef double[::1] out = found
    with nogil:
        for i in range(values.shape[0]):
            out[i] = decimal_of(values[i])
    return found


def end_of_lines(const uint8_t[::1] text, Py_ssize_t size):
    """Return the end of the last complete line in the first bytes of a text, 0 if there is none."""
    while size > 0 and text[size - 1] != NEWLINE:
        size -= 1
    return size


def end_of_records(const uint8_t[::1] text, Py_ssize_t size, uint8_t delimiter):
    """Return the end of the last complete record of a table in the first bytes of a text, or 0.

    A record ends with a line end (LF, CRLF or CR) outside quotes. A quote at the start of a field
    begins quoted text, and so does one directly after quoted text, as a doubled quote.
    """
    cdef Text p = &text[0]
    cdef Py_ssize_t i, end = 0
    cdef bint is_quoted = False, may_quote = True, is_end
    with nogil:
        if memchr(p, QUOTE, size) == NULL:
            for i in range(size, 0, -1):
                # Whether a newline follows the last return is not known.
                if p[i - 1] == NEWLINE or (p[i - 1] == RETURN and i < size):
                    end = i
                    break
            size = 0
        for i in range(size):
            if is_quoted:
                is_quoted = p[i] != QUOTE
            elif may_quote and p[i] == QUOTE:
                is_quoted = True
            else:
                is_end = p[i] == NEWLINE or (p[i] == RETURN and i + 1 < size and p[i + 1] != NEWLINE)
                end = i + 1 if is_end else end
                may_quote = is_end or p[i] == RETURN or p[i] == delimiter
    return end


def count(const uint8_t[::1] text):
    """Return the numbers of newlines and colons: bounds for rows (with padding) and entries."""
    cdef Text p = &text[0]
    cdef Py_ssize_t size = text.shape[0], i, start, stop
    cdef int64_t newlines = 0, colons = 0
    cdef uint8_t some_newlines, some_colons
    with nogil:
        # Counters of one byte let the compiler count sixteen bytes at once.
        for start in range(0, size, 255):
            stop = min(start + 255, size)
            some_newlines = some_colons = 0
            for i in range(start, stop):
                some_newlines += p[i] == NEWLINE
                some_colons += p[i] == COLON
            newlines += some_newlines
            colons += some_colons
    return newlines, colons
