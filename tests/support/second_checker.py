# mypy: ignore-errors
"""A second checker of certificates, of svc with kernel machines, in decimals of 50 digits.

Written from docs/certificate-format.md alone, to find out whether that page is enough: it shares no
code with randsvm-check. Kernels linear, polynomial and rbf; class and row weights; pairs of classes
and each class against the rest. Not read: scaling, transcripts, compressed files.
"""

import decimal
import hashlib
import json
import struct
from collections import defaultdict
from decimal import Decimal
from itertools import combinations

decimal_context = decimal.Context(prec=50, Emin=-(10**6), Emax=10**6)


def read_data(text, base):
    """Return labels, weights and rows {index: (decimal, as float)} of section 2."""
    labels, weights, rows = [], [], []
    for line in text.split("\n"):
        label, *words = line.partition("#")[0].split() or [None]
        if label is None:
            continue
        weight = Decimal(1)
        while words and words[0].startswith(("qid:", "cost:")):
            name, _, value = words.pop(0).partition(":")
            weight = Decimal(value) if name == "cost" else weight
        row = {int(word.split(":")[0]): word.split(":")[1] for word in words}
        assert min(row, default=base) >= base
        labels.append(label)
        weights.append(weight)
        rows.append(row)
    return labels, weights, rows


def class_of(label):
    """Return what a label of section 2 stands for."""
    try:
        value = Decimal(label)
    except decimal.InvalidOperation:
        return label
    return int(value) if value == value.to_integral_value() else label


def digest(order, labels, weights, rows):
    """Return the digest of section 4."""
    kinds = [class_of(name) for name in order]
    values = [float(value) for row in rows for value in row.values()]
    arrays = [
        ("d", [kinds.index(class_of(label)) for label in labels]),
        ("d", [float(weight) for weight in weights]),
        ("q", [len(row) for row in rows]),
        ("i", [index for row in rows for index in row]),
        ("d", values),
    ]
    found = hashlib.sha256(json.dumps(order).encode())
    for kind, numbers in arrays:
        found.update(hashlib.sha256(struct.pack(f"<{len(numbers)}{kind}", *numbers)).digest())
    return found.hexdigest()


def kernel_of(head):
    """Return K(x, z) of section 3, of rows {index: Decimal}."""
    gamma, r = (Decimal(head.get(name, ["0"])[0]) for name in ("gamma", "coef0"))

    def dot(x, z):
        return sum((value * z[k] for k, value in x.items() if k in z), Decimal(0))

    if head["kernel_type"] == ["linear"]:
        return dot
    if head["kernel_type"] == ["polynomial"]:
        return lambda x, z: (gamma * dot(x, z) + r) ** int(head["degree"][0])
    return lambda x, z: (-gamma * (dot(x, x) - 2 * dot(x, z) + dot(z, z))).exp()


def machines(head, trailer, vectors):
    """Yield the classes of each machine, its vectors and their coefficients, and b. Section 3."""
    K, problem = len(trailer["labels"]), trailer["problem"]
    b = [-Decimal(value) for value in head["rho"]]
    if K == 2:
        yield (0, 1), [(z, c[0]) for c, z in vectors], b[0]
    elif problem.get("multiclass") == "ovo":
        sizes = [int(size) for size in head["nr_sv"]]
        group = [k for k, size in enumerate(sizes) for _ in range(size)]
        for number, (i, j) in enumerate(combinations(range(K), 2)):
            place = {i: j - 1, j: i}
            both = zip(group, vectors, strict=True)
            own = [(z, c[place[k]]) for k, (c, z) in both if k in place]
            yield (i, j), own, b[number]
    else:
        for k in range(K):
            yield (k, None), [(z, c[k]) for c, z in vectors], b[k]


def bounds(pair, kinds, weights, problem, K):
    """Return C_i of each row, or None: the machine does not have the row. Section 5."""
    total = sum(weights)
    of_class = [
        sum(w for w, kind in zip(weights, kinds, strict=True) if kind == k) for k in range(K)
    ]
    stated = problem.get("class_weights", [Decimal(1)] * K)
    factors = [total / (K * of_class[k]) if w is None else w for k, w in enumerate(stated)]
    i, j = pair
    if j is None:
        own = total / (2 * of_class[i]) if stated[i] is None else stated[i]
        rest = total / (2 * (total - of_class[i])) if problem.get("balanced") else Decimal(1)
        factors = [own if k == i else rest for k in range(K)]
    return [
        problem["C"] * weight * factors[kind] if j is None or kind in pair else None
        for weight, kind in zip(weights, kinds, strict=True)
    ]


def spread(own, keys, y, C):
    """Return beta of each row: coefficients of vectors, shared among the rows that equal them."""
    left, beta = defaultdict(Decimal), [Decimal(0)] * len(y)
    for z, coefficient in own:
        left[key_of(z), coefficient > 0] += coefficient
    for row, (key, side) in enumerate(zip(keys, y, strict=True)):
        rest = left.get((key, side > 0), Decimal(0))
        beta[row] = side * min(abs(rest), C[row])
        if rest:
            left[key, side > 0] -= beta[row]
    worst = max((abs(rest) for rest in left.values()), default=0)
    assert worst <= Decimal("1e-9") * max(C), f"{worst} of a coefficient has no row, or no room"
    return beta


def key_of(row):
    return tuple((k, float(value)) for k, value in row.items() if Decimal(value))


def evaluate(pair, own, b, K, rows, kinds, C):
    """Return P and D of a machine, by their definitions. Section 5."""
    some = [k for k, bound in enumerate(C) if bound is not None]
    y = [1 if kinds[k] == pair[0] else -1 for k in some]
    X = [{i: Decimal(v) for i, v in rows[k].items()} for k in some]
    beta = spread(own, [key_of(rows[k]) for k in some], y, [C[k] for k in some])
    Z = [({i: Decimal(v) for i, v in z.items()}, c) for z, c in own]
    u = [sum(c * K(x, z) for z, c in Z) for x in X]
    P = sum(c * e * K(x, z) for x, c in Z for z, e in Z) / 2
    P += sum(C[k] * max(0, 1 - side * (v + b)) for k, side, v in zip(some, y, u, strict=True))
    active = [(x, c) for x, c in zip(X, beta, strict=True) if c]
    D = (
        sum(abs(c) for _, c in active)
        - sum(c * e * K(x, z) for x, c in active for z, e in active) / 2
    )
    largest = max(K(x, x) for x in X)
    cost = abs(sum(beta)) * (1 + (2 * abs(P)).sqrt() * largest.sqrt())
    return P, D, cost, abs(sum(beta)) > Decimal("1e-6") * sum(map(abs, beta))


def check(data_path, model_path):
    """Return whether the certificate is true, and why not."""
    with decimal.localcontext(decimal_context):
        try:
            judge(data_path.read_text(), model_path.read_bytes())
        except AssertionError as error:
            return False, str(error)
    return True, ""


def judge(data, content):
    body, _, seal = content.rpartition(b"# randsvm sha256 ")
    assert hashlib.sha256(body).hexdigest() == seal.decode().strip(), "the seal"
    text, *lines = body.decode().rstrip("\n").split("\n# randsvm ")
    pairs = (line.partition(" ") for line in lines)
    trailer = {k: json.loads(v, parse_float=Decimal, parse_int=Decimal) for k, _, v in pairs}
    above, below = text.split("\nSV\n")
    head = {word: rest for word, *rest in map(str.split, above.split("\n"))}
    labels, weights, rows = read_data(data, trailer["index_base"])
    order = list({class_of(label): label for label in reversed(labels)}.values())
    order = sorted(order, key=labels.index)
    kept = [k for k, weight in enumerate(weights) if weight]
    labels, weights, rows = ([each[k] for k in kept] for each in (labels, weights, rows))
    assert digest(order, labels, weights, rows) == trailer["digest"], "the digest"
    assert len(rows) == trailer["n"], "n"
    names = [class_of(label) for label in trailer["labels"]]
    assert set(names) == {class_of(label) for label in order}, "labels"
    kinds, vectors = [names.index(class_of(label)) for label in labels], []
    for line in below.split("\n"):
        words = line.split()
        coefficients = [Decimal(word) for word in words if ":" not in word]
        vectors.append((coefficients, dict(w.split(":") for w in words if ":" in w)))
    vectors = [(c, {int(k): v for k, v in z.items()}) for c, z in vectors]
    P = D = cost = Decimal(0)
    misses = False
    for pair, own, b in machines(head, trailer, vectors):
        C = bounds(pair, kinds, weights, trailer["problem"], len(names))
        one = evaluate(pair, own, b, kernel_of(head), rows, kinds, C)
        P, D, cost, misses = P + one[0], D + one[1], cost + one[2], misses or one[3]
    near = Decimal(2) ** -50
    room, size = near * max(abs(P), abs(D)), max(abs(P), abs(D))
    assert not (misses and cost > 2 * trailer["dual_error"] + room), "sums of coefficients"
    assert abs(P - trailer["primal"]) <= trailer["primal_error"] + room, f"P is {P}"
    assert trailer["dual"] - trailer["dual_error"] - room <= D, f"D is {D}"
    assert trailer["gap"] * size * (1 + near) + room >= P - D, f"the gap is {(P - D) / size}"
