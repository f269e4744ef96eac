"""A reader of svmlight text and a writer of its values in plain Python, as a reference.

Slow and obviously right: they follow the rules line by line and share no code with the package.
"""

import math
import re
import struct
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

# The largest float32, which a weight may have.
LARGEST = 3.4028234663852886e38
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
TOKEN = re.compile(rb"[^ \t]+")


class BadTokenError(Exception):
    """The place of the first token that is not legal."""

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column)
        self.place = (line, column)


class RefusedError(Exception):
    """A token is not legal."""


@dataclass
class Rows:
    labels: list[bytes | float] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    entries: list[list[tuple[int, float]]] = field(default_factory=list)
    queries: int = 0
    weights: list[float] = field(default_factory=list)


def parse(text: bytes, *, labels: str, zero_based: bool = False, unlabelled: bool = False) -> Rows:
    rows = Rows()
    for line_number, line in enumerate(text.split(b"\n"), 1):
        content, _hash_sign, comment = line.removesuffix(b"\r").partition(b"#")
        tokens = [(match.group(), match.start() + 1) for match in TOKEN.finditer(content)]
        column = 0
        try:
            if tokens:
                token, column = tokens.pop(0)
                rows.labels.append(read_label(token, labels, unlabelled))
                rows.places.append((line_number, column))
                rows.entries.append([])
                rows.weights.append(1.0)
            seen: set[bytes] = set()
            while tokens and tokens[0][0][:4] in {b"qid:", b"cost"} - seen:
                if tokens[0][0].startswith(b"cost") and not tokens[0][0].startswith(b"cost:"):
                    break
                token, column = tokens.pop(0)
                seen.add(token[:4])
                if token.startswith(b"cost:"):
                    rows.weights[-1] = read_weight(token[5:])
                elif re.fullmatch(rb"[+-]?[0-9]+", token[4:]):
                    rows.queries += 1
                else:
                    raise RefusedError
            previous = -1 if zero_based else 0
            for token, column in tokens:  # noqa: B007 - the handler below reads it
                index, value = read_feature(token)
                if index <= previous:
                    raise RefusedError
                previous = index
                rows.entries[-1].append((index, value))
        except RefusedError:
            nul = token.find(b"\0")
            raise BadTokenError(line_number, column + max(nul, 0)) from None
        if b"\0" in comment:
            place = len(content) + 1 + comment.index(b"\0") + 1
            raise BadTokenError(line_number, place)
    return rows


def read_label(token: bytes, labels: str, unlabelled: bool) -> bytes | float:
    if token == b"?":
        if not unlabelled:
            raise RefusedError
        return b"?" if labels == "class" else float("nan")
    if labels == "number":
        if not NUMBER.fullmatch(token):
            raise RefusedError
        float32(float(token))  # refuses labels beyond float32
        return float(token)
    if NOT_FINITE.fullmatch(token) or any(byte < 32 or byte in b":,\x7f" for byte in token):
        raise RefusedError
    return token


def read_weight(token: bytes) -> float:
    if not NUMBER.fullmatch(token) or not 0 <= float(token) <= LARGEST:
        raise RefusedError
    return float(token)


def read_feature(token: bytes) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    if not (index.isdigit() and colon and NUMBER.fullmatch(value)):
        raise RefusedError
    if int(index) > 2**31 - 1:
        raise RefusedError
    float32(float(value))  # refuses values beyond float32
    return int(index), float(value)


def float32(value: float) -> float:
    try:
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:  # finite, but beyond float32
        raise RefusedError from None
    if abs(rounded) == float("inf"):
        raise RefusedError
    return rounded


def spelled(value: float) -> str:
    """Return a finite float32 as text, with the fewest digits that read back to it.

    Of several such texts the nearest number is chosen. Numbers below 1e-4 have an exponent; those
    from 1e6 on have one if that is shorter.
    """
    sign = "-" if math.copysign(1, value) < 0 else ""
    size = abs(value)
    if size == 0:
        return sign + "0"
    with localcontext() as context:
        context.prec = 200  # a float32 has at most 112 digits
        exact = Decimal(size)
        digits = min(
            shortest(exact), key=lambda found: (abs(found - exact), found.as_tuple()[1][-1] % 2)
        ).normalize()
    positional = format(digits, "f")
    scientific = format(digits, "e").replace("e+", "e")
    if size < 1e-4:
        return sign + scientific
    if size < 1e6:
        return sign + positional
    return sign + min(positional, scientific, key=len)


def shortest(exact: Decimal) -> list[Decimal]:
    """Return the one or two decimals with the fewest digits that read back to a float32."""
    for places in range(9):
        unit = Decimal(1).scaleb(exact.adjusted() - places)
        around = {exact.quantize(unit, rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING)}
        found = [digits for digits in sorted(around) if reads_as(digits, float(exact))]
        if found:
            return found
    raise AssertionError("nine digits tell every float32 from the others")


def reads_as(digits: Decimal, value: float) -> bool:
    try:
        return float32(float(str(digits))) == value
    except RefusedError:
        return False
