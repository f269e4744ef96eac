# Numbers and distinct tokens of text, for the parser _svmlight.pyx.
# The file is included, so that the compiler sees each loop whole. The loops run without the GIL.

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

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
    COMMENT = 35
    COLON = 58
    COMMA = 44
    DOT = 46
    PLUS = 43
    MINUS = 45
    QUESTION = 63
    ZERO = 48
    LETTER_E = 101


cdef struct Spelling:
    Text start
    Py_ssize_t length
    int64_t line
    int64_t column
    uint64_t key


cdef struct Spellings:
    Spelling *items
    int32_t *slots      # open addressing; position in items plus 1, 0 for a free slot
    int64_t count
    int64_t room        # slots, a power of two; items has half as many


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


# ---- distinct labels --------------------------------------------------------------------------

cdef inline uint64_t key_of(Text p, Py_ssize_t length) noexcept nogil:
    """Return the hash key of a token. Tokens of one length up to 8 have distinct keys."""
    cdef uint64_t key
    cdef Py_ssize_t i
    if length == 0:  # no shift by all 64 bits
        return 0
    if length <= 8:
        return load(p) & (0xFFFFFFFFFFFFFFFFULL >> (64 - 8 * length))
    key = 0xCBF29CE484222325ULL
    for i in range(length):
        key = (key ^ p[i]) * 0x100000001B3ULL
    return key


cdef inline int64_t slot_of(Spellings *table, Text p, Py_ssize_t length,
                            uint64_t key) noexcept nogil:
    """Return the slot of a token, or the free slot to put it in."""
    cdef int64_t slot = ((key * 0x9E3779B97F4A7C15ULL) >> 32) & (table.room - 1)
    cdef Spelling *item
    while table.slots[slot] != 0:
        item = &table.items[table.slots[slot] - 1]
        if item.key == key and item.length == length and (
                length <= 8 or memcmp(item.start, p, length) == 0):
            break
        slot = (slot + 1) & (table.room - 1)
    return slot


cdef bint grow(Spellings *table) noexcept nogil:
    """Double the number of slots; return False if there is no memory."""
    cdef int64_t room = table.room * 2 if table.room else 64
    cdef int64_t i
    cdef Spelling *items = <Spelling *> realloc(table.items, room // 2 * sizeof(Spelling))
    if items == NULL:
        return False
    table.items = items
    free(table.slots)
    table.slots = <int32_t *> calloc(room, sizeof(int32_t))
    if table.slots == NULL:
        return False
    table.room = room
    for i in range(table.count):
        table.slots[slot_of(table, items[i].start, items[i].length, items[i].key)] = <int32_t> i + 1
    return True
