# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Parse tables of delimited fields into arrays: the loops of delimited.py.

The parser decides whether a field is legal and returns the position of the first bad one;
delimited.py writes the error message. The loops run without the GIL.
"""

include "_tokens.pxi"

from libc.math cimport ldexp
from libc.stdint cimport int8_t
from libc.stdlib cimport malloc

# The role of a column. IGNORED: it is not read; NUMBER: it is a feature; TEXT: each category is a
# feature; CLASS, TARGET: labels of a classification, of a regression; UNKNOWN: the first pass finds
# whether it has numbers or texts; CATEGORY: a further pass collects its categories.
IGNORED, NUMBER, TEXT, CLASS, TARGET, UNKNOWN, CATEGORY = range(7)
# The kinds of faults.
WIDTH, NUL, UNCLOSED, AFTER_QUOTE, MISSING, NOT_A_NUMBER, LONE_RETURN = range(1, 8)
# A column has at most this number of categories.
MAX_CATEGORIES = 10_000

cdef enum:
    IS_IGNORED = 0
    IS_NUMBER = 1
    IS_TEXT = 2
    IS_CLASS = 3
    IS_TARGET = 4
    IS_UNKNOWN = 5
    IS_CATEGORY = 6
    BAD_WIDTH = 1
    BAD_NUL = 2
    BAD_UNCLOSED = 3
    BAD_AFTER_QUOTE = 4
    BAD_MISSING = 5
    BAD_NUMBER = 6
    BAD_RETURN = 7
    BAD_MEMORY = 8
    QUOTE = 34
    CATEGORIES = 10_000
    # The digits of an ExactSum: 2,098 bits of float64 and 2 ** 63 terms need 68 of 32 bits.
    DIGITS = 68
    DIGIT_BITS = 32
    LOWEST_EXPONENT = -1074
    MANTISSA_BITS = 52

cdef uint64_t DIGIT_MASK = 0xFFFFFFFFULL
cdef uint64_t LEADING_BIT = 1ULL << 52
# A term adds less than 2 ** 33 to a digit: so many terms fit between two carries.
cdef int64_t TERMS = 1 << 29


cdef struct ExactSum:
    # The sum is that of digits[i] * 2 ** (32 i - 1074), which is exact in any order of the terms.
    int64_t digits[68]
    int64_t terms       # since the last carry


cdef struct Fault:
    int kind            # 0: none
    int field           # from 0
    Text start
    Text stop
    int64_t line
    int64_t column


cdef struct Field:
    Text token          # its first byte, which may be a quote
    Text start          # its content
    Text stop
    int64_t line
    int64_t column


cdef bint add(Spellings *table, Field *field, uint64_t key) noexcept nogil:
    """Add the content of a field that the table does not have; return False without memory."""
    cdef Py_ssize_t length = field.stop - field.start
    cdef Spelling *item
    if 2 * (table.count + 1) > table.room and not grow(table):
        return False
    item = &table.items[table.count]
    item.start = field.start
    item.length = length
    item.line = field.line
    item.column = field.column
    item.key = key
    table.count += 1
    table.slots[slot_of(table, field.start, length, key)] = <int32_t> table.count
    return True


cdef inline int64_t number_of(Spellings *table, Field *field, uint64_t key) noexcept nogil:
    """Return the position in the table of the content of a field, -1 if it is not there."""
    if table.room == 0:
        return -1
    return table.slots[slot_of(table, field.start, field.stop - field.start, key)] - 1


cdef void carry(ExactSum *total) noexcept nogil:
    """Bring all digits but the last into 0 .. 2 ** 32 - 1."""
    cdef int i
    cdef int64_t over
    for i in range(DIGITS - 1):
        # The shift of a negative number rounds down.
        over = total.digits[i] >> DIGIT_BITS
        total.digits[i] -= over << DIGIT_BITS
        total.digits[i + 1] += over
    total.terms = 0


cdef inline void add_exactly(ExactSum *total, double value) noexcept nogil:
    """Add a finite number to a sum."""
    cdef uint64_t bits, low, high
    cdef int shift, i
    cdef int64_t sign
    memcpy(&bits, &value, sizeof(double))
    sign = 1 - 2 * <int64_t> (bits >> 63)
    shift = <int> (bits >> MANTISSA_BITS) & 0x7FF
    bits &= LEADING_BIT - 1
    if shift:
        bits |= LEADING_BIT
        shift -= 1
    i = shift // DIGIT_BITS
    shift %= DIGIT_BITS
    low = (bits & DIGIT_MASK) << shift
    high = (bits >> DIGIT_BITS) << shift
    total.digits[i] += sign * <int64_t> (low & DIGIT_MASK)
    total.digits[i + 1] += sign * <int64_t> ((low >> DIGIT_BITS) + (high & DIGIT_MASK))
    total.digits[i + 2] += sign * <int64_t> (high >> DIGIT_BITS)
    total.terms += 1
    if not likely(total.terms < TERMS, True):
        carry(total)


cdef tuple parts_of(ExactSum *total):
    """Return numbers whose sum is exactly `total`; one beyond float64 is infinite."""
    cdef int i
    cdef double sign = 1
    carry(total)
    if total.digits[DIGITS - 1] < 0:
        sign = -1
        for i in range(DIGITS):
            total.digits[i] = -total.digits[i]
        carry(total)
    parts = tuple([sign * ldexp(<double> total.digits[i], DIGIT_BITS * i + LOWEST_EXPONENT)
                   for i in range(DIGITS) if total.digits[i]])
    if sign < 0:
        for i in range(DIGITS):
            total.digits[i] = -total.digits[i]
    return parts


def sum_parts(const double[::1] values):
    """Return at most 68 numbers whose sum, by `math.fsum`, is that of finite values, exactly.

    Sums of values up to 1e300 do not overflow.
    """
    cdef ExactSum total
    cdef Py_ssize_t i
    memset(&total, 0, sizeof(ExactSum))
    with nogil:
        for i in range(values.shape[0]):
            add_exactly(&total, values[i])
    return parts_of(&total)


cdef bint is_missing(Text p, Py_ssize_t length) noexcept nogil:
    """Return whether a field stands for a missing number: empty, ?, NA, N/A, NaN, null or none."""
    cdef const char *word
    cdef Py_ssize_t i
    if length == 0:
        return True
    if length == 1:
        return p[0] == QUESTION
    if length == 2:
        word = b"na"
    elif length == 3:
        word = b"n/a" if p[1] == c"/" else b"nan"
    elif length == 4:
        word = b"null" if p[1] | 32 == c"u" else b"none"
    else:
        return False
    for i in range(length):
        if p[i] != word[i] and p[i] | 32 != word[i]:
            return False
    return True


cdef class Layout:
    """The meaning of the fields of a table. All threads read it.

    delimiter : the byte between fields
    roles : (fields,) int8
    kept : (fields,) uint8, whether `Records.parse` reports where the field is
    starts : (fields,) int32, the feature index of a number or of the first category
    means : (fields,) float64, the value of a missing number; nan: it is refused
    fill : whether a text may be missing; it is then in none of the categories
    categories : the categories of each text column, in the order of their features
    missing : more texts that stand for a missing number; a number among them stands for all
    spellings of its value
    """

    cdef uint8_t delimiter
    cdef readonly int width
    cdef const int8_t[::1] roles
    cdef const uint8_t[::1] kept
    cdef const int32_t[::1] starts
    cdef const double[::1] means
    cdef bint fill, sorted
    cdef Spellings *categories
    cdef Spellings missing
    cdef double *sentinels
    cdef int sentinel_count
    cdef list texts

    def __cinit__(self, int delimiter, const int8_t[::1] roles, const uint8_t[::1] kept,
                  const int32_t[::1] starts, const double[::1] means, bint fill, list categories,
                  list missing=[]):
        cdef Field field
        cdef Number number
        cdef Text digits
        cdef bytes text
        cdef int i
        cdef int32_t last = -1
        self.delimiter = <uint8_t> delimiter
        self.width = <int> roles.shape[0]
        self.roles, self.kept, self.starts, self.means = roles, kept, starts, means
        self.fill = fill
        self.texts = []
        self.sorted = True
        self.categories = <Spellings *> calloc(self.width + 1, sizeof(Spellings))
        if self.categories == NULL:
            raise MemoryError
        for i in range(self.width):
            if roles[i] == IS_NUMBER or roles[i] == IS_TEXT:
                self.sorted = self.sorted and starts[i] > last
                last = starts[i]
            for content in categories[i]:
                text = content + PADDING
                self.texts.append(text)
                field.start = <Text> <const char *> text
                field.stop = field.start + len(content)
                field.line = field.column = 0
                if not add(&self.categories[i], &field, key_of(field.start, len(content))):
                    raise MemoryError
        self.sentinels = <double *> calloc(len(missing) + 1, sizeof(double))
        if self.sentinels == NULL:
            raise MemoryError
        for content in missing:
            text = content + PADDING
            self.texts.append(text)
            field.start = <Text> <const char *> text
            field.stop = field.start + len(content)
            field.line = field.column = 0
            digits = field.start + (field.start[0] == MINUS or field.start[0] == PLUS)
            if len(content) and unsigned_number(digits, &number) == field.stop:
                self.sentinels[self.sentinel_count] = (
                    SIGN[field.start[0] == MINUS] * to_float64(number, digits))
                self.sentinel_count += 1
            elif not add(&self.missing, &field, key_of(field.start, len(content))):
                raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self.categories != NULL:
            for i in range(self.width):
                free(self.categories[i].items)
                free(self.categories[i].slots)
            free(self.categories)
        free(self.missing.items)
        free(self.missing.slots)
        free(self.sentinels)


cdef class Records:
    """The result of parsing one piece of text, apart from the arrays that `parse` fills.

    rows, entries : numbers of rows and of entries, without a row that has a bad field
    lines : number of lines
    """

    cdef readonly int64_t rows, entries, lines
    cdef Layout layout
    # The fields of the layout, for the loops.
    cdef uint8_t delimiter
    cdef int width
    cdef bint fill, sorted
    cdef const int8_t *roles
    cdef const uint8_t *keeps
    cdef const int32_t *starts
    cdef const double *means
    cdef Spellings *categories
    cdef const double *sentinels
    cdef int sentinel_count
    cdef bint unlabelled
    cdef bytes text       # spellings and the fault point into it, or into `contents`
    cdef Text begin, end
    cdef Text line_start
    cdef uint8_t *contents   # of fields with doubled quotes, made single; NULL before the first
    cdef uint8_t *contents_end
    cdef int32_t *codes
    cdef double *y
    cdef int64_t *indptr
    cdef int32_t *indices
    cdef double *values
    cdef int64_t *spans
    cdef int64_t *ends
    cdef int64_t kept     # fields
    cdef Spellings labels
    cdef Spellings *found    # in columns of the role UNKNOWN or CATEGORY
    cdef ExactSum *sums      # of numbers in columns of the role UNKNOWN; NULL without such columns
    cdef int64_t *counts     # of these numbers
    cdef int64_t *unseen     # texts that are no category
    cdef Fault fault

    def __cinit__(self, Layout layout):
        cdef int width = layout.width + 1, i
        cdef bint adds = False
        self.layout = layout
        self.delimiter, self.width = layout.delimiter, layout.width
        self.fill, self.sorted = layout.fill, layout.sorted
        self.roles, self.keeps = &layout.roles[0], &layout.kept[0]
        self.starts, self.means = &layout.starts[0], &layout.means[0]
        self.categories = layout.categories
        self.sentinels, self.sentinel_count = layout.sentinels, layout.sentinel_count
        self.found = <Spellings *> calloc(width, sizeof(Spellings))
        for i in range(layout.width):
            adds = adds or self.roles[i] == IS_UNKNOWN
        if adds:
            self.sums = <ExactSum *> calloc(width, sizeof(ExactSum))
        self.counts = <int64_t *> calloc(width, sizeof(int64_t))
        self.unseen = <int64_t *> calloc(width, sizeof(int64_t))
        if not (self.found and self.counts and self.unseen and (self.sums or not adds)):
            raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self.found != NULL:
            for i in range(self.layout.width):
                free(self.found[i].items)
                free(self.found[i].slots)
        free(self.found)
        free(self.sums)
        free(self.counts)
        free(self.unseen)
        free(self.labels.items)
        free(self.labels.slots)
        free(self.contents)

    def parse(self, bytes text, bint unlabelled, int32_t[::1] codes, double[::1] y,
              int64_t[::1] indptr, int32_t[::1] indices, double[::1] values, int64_t[::1] spans,
              int64_t[::1] ends):
        """Parse complete records followed by PADDING.

        The arrays have room for a row in each line and an entry in each field. spans : the begin
        and the end of each kept field; ends : the position after each row.
        """
        cdef Text start = <Text> <const char *> text
        cdef int i
        self.text = text
        self.begin = start
        self.end = start + len(text) - len(PADDING)
        self.unlabelled = unlabelled
        self.codes = &codes[0]
        self.y = &y[0]
        self.indptr = &indptr[0]
        self.indices = &indices[0]
        self.values = &values[0]
        self.spans = &spans[0]
        self.ends = &ends[0]
        for i in range(self.layout.width):
            self.kept += self.layout.kept[i] != 0
        with nogil:
            self.read_records(start)
        if self.fault.kind == BAD_MEMORY:
            raise MemoryError

    cdef void read_records(self, Text p) noexcept nogil:
        cdef int64_t start
        self.indptr[0] = 0
        self.line_start = p
        while p < self.end:
            if p[0] == NEWLINE or (p[0] == RETURN and p[1] == NEWLINE):
                p = self.next_line(p + (p[0] == RETURN))
                continue
            start = self.entries
            p = self.read_record(p)
            if p == NULL:
                self.entries = start
                return
            if not self.sorted:
                self.sort(start)
            self.rows += 1
            self.indptr[self.rows] = self.entries
            p = self.next_line(p)
            self.ends[self.rows - 1] = p - self.begin

    cdef inline Text next_line(self, Text newline) noexcept nogil:
        self.lines += 1
        self.line_start = newline + 1
        return newline + 1

    cdef void sort(self, int64_t start) noexcept nogil:
        """Sort the entries of the last row by index."""
        cdef int64_t i, j
        cdef int32_t index
        cdef double value
        for i in range(start + 1, self.entries):
            index, value = self.indices[i], self.values[i]
            j = i
            while j > start and self.indices[j - 1] > index:
                self.indices[j] = self.indices[j - 1]
                self.values[j] = self.values[j - 1]
                j -= 1
            self.indices[j] = index
            self.values[j] = value

    cdef inline bint ends_field(self, Text p) noexcept nogil:
        return (p[0] == self.delimiter or p[0] == NEWLINE
                or (p[0] == RETURN and p[1] == NEWLINE))

    cdef inline bint is_blank(self, Text p) noexcept nogil:
        return p[0] == SPACE or (p[0] == TAB and self.delimiter != TAB)

    cdef inline Text read_record(self, Text p) noexcept nogil:
        """Read a record; return its newline, or NULL for a bad field, which `fault` describes."""
        cdef int i, role
        cdef int64_t span = self.rows * self.kept * 2
        cdef Field field
        cdef Number number
        cdef Text digits, stop
        cdef bint negative
        cdef double value
        for i in range(self.width):
            if i:
                if p[0] != self.delimiter:
                    return self.bad_token(BAD_WIDTH, i, p, p)
                p += 1
            while self.is_blank(p):
                p += 1
            field.token = p
            role = self.roles[i]
            stop = NULL
            if role == IS_NUMBER or role == IS_UNKNOWN or role == IS_TARGET:
                negative = p[0] == MINUS
                digits = p + (negative or p[0] == PLUS)
                stop = unsigned_number(digits, &number)
                if stop != NULL:
                    p = stop
                    while self.is_blank(p):
                        p += 1
                    if not likely(self.ends_field(p), True):
                        stop = NULL
                        p = field.token
            if stop != NULL:
                value = SIGN[negative] * to_float64(number, digits)
                if self.is_sentinel(value):
                    stop = NULL
                    p = field.token
            if stop != NULL:
                if not self.put_number(i, role, value):
                    return self.bad_token(BAD_NUMBER, i, field.token, stop)
            else:
                p = self.read_field(p, i, &field)
                if p == NULL or not self.put_field(i, role, &field):
                    return NULL
                stop = p
                while stop > field.token and self.is_blank(stop - 1):
                    stop -= 1
            if self.keeps[i]:
                self.spans[span] = field.token - self.begin
                self.spans[span + 1] = stop - self.begin
                span += 2
        if p[0] == self.delimiter:
            return self.bad_token(BAD_WIDTH, self.width + 1, p, p)
        return p + (p[0] == RETURN)

    cdef Text read_field(self, Text p, int i, Field *field) noexcept nogil:
        """Read a field from its first byte; return its end, or NULL as `read_record`."""
        cdef uint8_t *into = NULL
        cdef Text nul
        field.line = self.lines + 1
        field.column = p - self.line_start + 1
        if p[0] != QUOTE:
            field.start = p
            while not self.ends_field(p):
                if p[0] == 0 or p[0] == RETURN:
                    return self.bad_token(BAD_NUL if p[0] == 0 else BAD_RETURN, i, p, p)
                p += 1
            field.stop = p
            while field.stop > field.start and self.is_blank(field.stop - 1):
                field.stop -= 1
            return p
        p += 1
        field.start = p
        while True:
            if p >= self.end:
                return self.bad(BAD_UNCLOSED, i, field)
            if p[0] == QUOTE:
                if p[1] != QUOTE:
                    break
                if into == NULL:
                    if self.contents == NULL:
                        self.contents = <uint8_t *> malloc(self.end - self.begin + 16)
                        if self.contents == NULL:
                            self.fault.kind = BAD_MEMORY
                            return NULL
                        self.contents_end = self.contents
                    into = self.contents_end
                    memcpy(into, field.start, p - field.start)
                    into += p - field.start
                p += 1
            elif p[0] == NEWLINE:
                self.next_line(p)
            elif p[0] == 0:
                return self.bad_token(BAD_NUL, i, p, p)
            if into != NULL:
                into[0] = p[0]
                into += 1
            p += 1
        field.stop = p
        if into != NULL:
            field.start = self.contents_end
            field.stop = into
            into[0] = NEWLINE   # ends a number; the quotes left room for it
            self.contents_end = into + 1
        p += 1
        while self.is_blank(p):
            p += 1
        if not self.ends_field(p):
            return self.bad_token(BAD_AFTER_QUOTE, i, p, p)
        return p

    cdef inline bint is_sentinel(self, double value) noexcept nogil:
        """Return whether a number stands for a missing one."""
        cdef int i
        for i in range(self.sentinel_count):
            if self.sentinels[i] == value:
                return True
        return False

    cdef inline bint put_number(self, int i, int role, double value) noexcept nogil:
        """Store the number of a field; return False if it is too large."""
        if role == IS_TARGET:
            self.y[self.rows] = value
            return -MAX_DOUBLE <= value <= MAX_DOUBLE
        if not -MAX_FLOAT <= <float> value <= MAX_FLOAT:
            return False
        if role == IS_UNKNOWN:
            add_exactly(&self.sums[i], value)
            self.counts[i] += 1
        else:
            self.put(self.starts[i], value)
        return True

    cdef inline void put(self, int32_t index, double value) noexcept nogil:
        if value != 0:
            self.indices[self.entries] = index
            self.values[self.entries] = value
            self.entries += 1

    cdef bint put_field(self, int i, int role, Field *field) noexcept nogil:
        """Store a field that is not a plain number; return False for a bad one."""
        cdef Py_ssize_t length = field.stop - field.start
        cdef Text digits = field.start
        cdef bint negative, lacks
        cdef double value
        cdef Number number
        cdef int64_t category
        cdef uint64_t key
        if role == IS_IGNORED:
            return True
        if role == IS_TEXT:
            if length == 0:
                return self.fill or self.refuse(BAD_MISSING, i, field)
            key = key_of(field.start, length)
            category = number_of(&self.categories[i], field, key)
            if category < 0:
                self.unseen[i] += 1
            else:
                self.put(self.starts[i] + <int32_t> category, 1.0)
            return True
        if role == IS_CLASS:
            if length == 0 and not self.unlabelled:
                return self.refuse(BAD_MISSING, i, field)
            return self.put_text(&self.labels, field, &self.codes[self.rows])
        if role == IS_CATEGORY:
            return length == 0 or self.put_text(&self.found[i], field, NULL)
        lacks = is_missing(field.start, length)
        if not lacks:
            lacks = number_of(&self.layout.missing, field, key_of(field.start, length)) >= 0
            # A number in quotes, or one that stands for a missing number.
            negative = digits[0] == MINUS
            digits += negative or digits[0] == PLUS
            if unsigned_number(digits, &number) == field.stop:
                value = SIGN[negative] * to_float64(number, digits)
                if not self.is_sentinel(value):
                    return self.put_number(i, role, value) or self.refuse(BAD_NUMBER, i, field)
                lacks = True
        if role == IS_UNKNOWN:
            return length == 0 or self.put_text(&self.found[i], field, NULL)
        if not lacks:
            return self.refuse(BAD_NUMBER, i, field)
        if role == IS_TARGET:
            self.y[self.rows] = NAN
            return self.unlabelled or self.refuse(BAD_MISSING, i, field)
        if self.means[i] != self.means[i]:
            return self.refuse(BAD_MISSING, i, field)
        self.put(self.starts[i], self.means[i])
        return True

    cdef bint put_text(self, Spellings *table, Field *field, int32_t *code) noexcept nogil:
        """Find the content of a field in the table, or add it; the number becomes `code`."""
        cdef uint64_t key = key_of(field.start, field.stop - field.start)
        cdef int64_t number = number_of(table, field, key)
        if number < 0:
            number = table.count
            if code == NULL and number > CATEGORIES:
                return True   # too many: the caller refuses the column
            if not add(table, field, key):
                self.fault.kind = BAD_MEMORY
                return False
        if code != NULL:
            code[0] = <int32_t> number
        return True

    cdef bint refuse(self, int kind, int i, Field *field) noexcept nogil:
        self.bad(kind, i, field)
        return False

    cdef Text bad(self, int kind, int i, Field *field) noexcept nogil:
        """Record a bad field in `fault`; return NULL."""
        self.fault.kind = kind
        self.fault.field = i
        self.fault.start = field.start
        self.fault.stop = self.end if kind == BAD_UNCLOSED else field.stop
        self.fault.line = field.line
        self.fault.column = field.column
        return NULL

    cdef Text bad_token(self, int kind, int i, Text start, Text stop) noexcept nogil:
        """Record bad text in the current line in `fault`; return NULL."""
        self.fault.kind = kind
        self.fault.field = i
        self.fault.start = start
        self.fault.stop = stop
        while stop == start and not self.ends_field(self.fault.stop):
            self.fault.stop += 1
            if self.fault.stop >= self.end:
                break
        self.fault.line = self.lines + 1
        self.fault.column = start - self.line_start + 1
        return NULL

    cdef list listed(self, Spellings *table):
        cdef int64_t i
        return [(table.items[i].start[:table.items[i].length], table.items[i].line,
                 table.items[i].column) for i in range(table.count)]

    def spellings(self):
        """Return (content, line, column) of each distinct label in order of first appearance."""
        return self.listed(&self.labels)

    def column(self, int i):
        """Return parts of the sum of the numbers of a column, their count, its distinct texts.

        A text is (content, line, column). Texts after the first MAX_CATEGORIES + 1 are left out.
        """
        parts = parts_of(&self.sums[i]) if self.sums else ()
        return parts, self.counts[i], self.listed(&self.found[i])

    def unseen_texts(self):
        """Return how many texts of each column are no category."""
        return [self.unseen[i] for i in range(self.width)]

    def bad_field(self):
        """Return (kind, field, content, line, column) of the bad field, or None."""
        if not self.fault.kind:
            return None
        return (self.fault.kind, self.fault.field,
                self.fault.start[:self.fault.stop - self.fault.start],
                self.fault.line, self.fault.column)


cdef class RecordEnds:
    """Finds the ends of records in consecutive texts: newlines that are not inside quotes."""

    cdef uint8_t delimiter
    cdef bint inside      # quotes
    cdef bint at_start    # of a field, apart from blanks
    cdef bint closed      # whether the last byte is a quote that ends a quoted text, or doubles it

    def __init__(self, int delimiter):
        self.delimiter = <uint8_t> delimiter
        self.at_start = True

    cdef inline bint is_blank(self, uint8_t byte) noexcept nogil:
        return byte == SPACE or (byte == TAB and self.delimiter != TAB)

    def last(self, bytes text):
        """Return the position after the last record that ends in the next text, 0: none does."""
        cdef Text start = <Text> <const char *> text
        cdef Text p
        cdef Text end = start + len(text)
        cdef Text found = start
        if not self.inside and not self.closed and memchr(start, QUOTE, end - start) == NULL:
            p = end
            while p > start and self.is_blank((p - 1)[0]):
                p -= 1
            if p > start:
                self.at_start = (p - 1)[0] == self.delimiter or (p - 1)[0] == NEWLINE
            return text.rfind(b"\n") + 1
        with nogil:
            p = start
            while p < end:
                if self.inside:
                    p = <Text> memchr(p, QUOTE, end - p)
                    if p == NULL:
                        break
                    self.inside = False
                    self.closed = True
                elif p[0] == QUOTE and (self.at_start or self.closed):
                    self.inside = True
                    self.at_start = self.closed = False
                else:
                    self.closed = False
                    if p[0] == NEWLINE:
                        found = p + 1
                        self.at_start = True
                    elif p[0] == self.delimiter:
                        self.at_start = True
                    elif not self.is_blank(p[0]):
                        self.at_start = False
                p += 1
        return found - start


def count(bytes text, int delimiter):
    """Return the number of newlines, and that of bytes that end a field."""
    cdef Text p = <Text> <const char *> text
    cdef Py_ssize_t size = len(text), i, start, stop
    cdef int64_t newlines = 0, fields = 0
    cdef uint8_t some_newlines, some_fields, byte = <uint8_t> delimiter
    with nogil:
        # Counters of one byte let the compiler count sixteen bytes at once.
        for start in range(0, size, 255):
            stop = min(start + 255, size)
            some_newlines = some_fields = 0
            for i in range(start, stop):
                some_newlines += p[i] == NEWLINE
                some_fields += p[i] == byte
            newlines += some_newlines
            fields += some_fields
    return newlines, fields + newlines
