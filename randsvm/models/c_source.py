"""Write a model as C99 source: constant arrays and functions that need neither memory nor files.

The functions follow the model's own rules: rounding of features, scaling, kernel, votes,
probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent, indent, wrap

import numpy as np

from randsvm import __version__
from randsvm.arrays import CsrMatrix, to_csr
from randsvm.data.chunks import as_stored
from randsvm.data.columns import Columns
from randsvm.errors import ModelError
from randsvm.files import encoded
from randsvm.kernels.random_features import RandomMap
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.model import Model
from randsvm.models.trailer import MAX_FEATURES

# The first words of a file, by which a later export recognises that it may replace it.
BEGINNING = b"/* randsvm model in C"
# A row is an array with an entry for every index. The functions keep a copy of it on the stack.
MAX_INPUTS = 250_000
# Support vectors with a larger share of nonzeros are stored with their zeros.
DENSE = 0.4
C_INTS = range(-(2**31), 2**31)
REAL = "randsvm_real"
# A shift of this many deviations takes six of the 24 bits of a float.
FAR_FROM_0 = 64


def input_count(model: Model) -> int:
    """Return the number of entries of a row: an entry for each index up to the largest known.

    Raise ModelError if it is above MAX_INPUTS.
    """
    inputs = model.width
    if inputs > MAX_INPUTS:
        raise ModelError(
            f"expected feature indices up to {MAX_INPUTS:,} for arrays of C, found {inputs:,}"
        )
    return inputs


@dataclass(frozen=True)
class StoredRows:
    """Rows with which the program tests itself.

    X : (m, inputs) CSR; f : (m, columns) float64; predicted : (m,) class indices, or f of a
    regression; margin : (m,), the least change of f that may change the class; tolerance,
    float_tolerance : differences of f that rounding explains, in double and in float.
    """

    X: CsrMatrix
    f: np.ndarray
    predicted: np.ndarray
    margin: np.ndarray
    tolerance: float
    float_tolerance: float


def c_source(model: Model, rows: StoredRows) -> bytes:
    """Return the source of a model, with rows for its test.

    The kernel is not precomputed, and there are at least two classes. Raise ModelError for indices
    above MAX_INPUTS.
    """
    return encoded("\n".join(_Source(model).parts(rows)))


# --- literals ------------------------------------------------------------------------------


def _table(kind: str, name: str, words: Iterable[str]) -> str:
    """Return the definition of a constant array; C has no arrays of length 0."""
    listed = list(words) or ["0"]
    lines = wrap(", ".join(listed), 99, break_long_words=False, break_on_hyphens=False)
    return f"static const {kind} {name}[{len(listed)}] = {{\n" + "\n".join(lines) + "\n};\n"


def _reals(values: np.ndarray) -> Iterator[str]:
    """Return literals that read back to the same float64."""
    return map(repr, np.asarray(values, np.float64).ravel().tolist())


def needs_double(model: Model) -> bool:
    """Return whether features as float would be other numbers than those of the model.

    After scaling, features are near 0: then float lacks digits of features far from 0 only.
    """
    if isinstance(model, LinearModel):
        return model.float64
    assert isinstance(model, KernelModel)
    if model.scaling is None:
        return as_stored(model.Z.data).dtype == np.float64
    shift, factor = model.scaling.shift, model.scaling.factor
    return shift is not None and bool(np.abs(shift * factor).max(initial=0.0) > FAR_FROM_0)


def _features(values: np.ndarray) -> Iterator[str]:
    """Return literals of float32 or float64 values, which read back to the same bits."""
    if values.dtype == np.float64:
        return _reals(values)
    return (f"{word}f" for word in values.ravel().astype(str).tolist())


def _integers(values: np.ndarray) -> Iterator[str]:
    return map(str, np.asarray(values).ravel().tolist())


def _string(text: str) -> str:
    """Return a string literal; bytes that are not printable ASCII, and '?', are escaped."""
    plain = set(range(32, 127)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in encoded(text)) + '"'


def _integer_type(largest: int) -> str:
    """Return the smallest type of C for whole numbers from -1 to `largest`."""
    return "signed char" if largest < 2**7 else "short" if largest < 2**15 else "int"


# --- the parts of a file -------------------------------------------------------------------


class _Source:
    """Writes the parts of the source of a model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.inputs = input_count(model)
        self.value_type = REAL if model.float64 else "float"
        # The columns of rows as the model sees them.
        self.columns = max(1, len(model.features))
        self.counts_rest = isinstance(model, KernelModel) and model.kernel.name == "rbf"
        self.decisions = len(model.b)
        self.classes = len(model.labels)
        values = [int(v) if isinstance(v, int) else None for v in model.values]
        self.label_ints = [v for v in values if v is not None and v in C_INTS]
        self.has_ints = bool(values) and len(self.label_ints) == len(values)

    def parts(self, rows: StoredRows) -> Iterator[str]:
        yield self._head()
        yield self._prepare()
        model = self.model
        if isinstance(model, PairwiseModel):
            yield self._kernel(model) + self._pairwise(model)
        elif isinstance(model, KernelModel):
            yield self._kernel(model) + self._expansion(model)
        elif isinstance(model, LinearModel) and model.mapping is not None:
            yield self._random_features(model, model.mapping)
        elif isinstance(model, LinearModel):
            yield self._linear(model)
        if self.decisions == 1:
            yield dedent(
                f"""\
                {REAL} randsvm_decision(const {REAL} *x)
                {{
                    {REAL} f[1];
                    randsvm_decisions(x, f);
                    return f[0];
                }}
                """
            )
        yield self._predict()
        if model.columns is not None:
            yield self._feature_names(model.columns)
        if self.has_probabilities:
            yield self._probabilities()
        if model.noise_scale is not None:
            scale = repr(float(model.noise_scale))
            yield (
                "/* Scale sigma of the noise z = y - f: density e^(-|z| / sigma) / (2 sigma). */\n"
                f"{REAL} randsvm_noise_scale(void)\n{{\n    return ({REAL}){scale};\n}}\n"
            )
        yield self._test(rows)

    @property
    def has_probabilities(self) -> bool:
        return self.model.has_probabilities and not self.model.is_regression

    @property
    def label_type(self) -> str:
        """The type of a predicted label, as it stands before a name."""
        if self.model.is_regression:
            return f"{REAL} "
        return "int " if self.has_ints else "const char *"

    @property
    def label_of(self) -> str:
        """The expression for the label of a class; {} stands for its number."""
        return "label_values[{}]" if self.has_ints else "randsvm_label({})"

    def _head(self) -> str:
        model = self.model
        about = {name: value for name, value in model.properties().items() if name != "format"}
        first = "feature i" if model.zero_based else "feature i + 1"
        prototypes = [f"void randsvm_decisions(const {REAL} *x, {REAL} *f);"]
        if self.decisions == 1:
            prototypes.append(f"{REAL} randsvm_decision(const {REAL} *x);")
        prototypes.append(f"{self.label_type}randsvm_predict(const {REAL} *x);")
        if self.classes:
            prototypes += [
                f"int randsvm_class(const {REAL} *x);",
                "const char *randsvm_label(int number);",
            ]
        if model.columns is not None:
            prototypes.append("const char *randsvm_feature(int number);")
        if self.has_probabilities:
            prototypes.append(
                f"{self.label_type}randsvm_predict_probability(const {REAL} *x, {REAL} *p);"
            )
        if model.noise_scale is not None:
            prototypes.append(f"{REAL} randsvm_noise_scale(void);")
        shown = ", ".join(f"{name} {value}" for name, value in about.items() if value is not None)
        lines = [
            *wrap(f"{shown}.".replace("*/", "* /"), 96),
            f"x has RANDSVM_FEATURES entries: x[i] is {first} of a row, 0 where a row has none.",
            *(
                ["randsvm_feature(i) names entry i: column, or column=text (x[i] = 1: that text)."]
                if model.columns is not None
                else []
            ),
            f"f has RANDSVM_DECISIONS entries: {self._meaning()}.",
            *(
                ["p has RANDSVM_CLASSES entries: the probability of each class."]
                if self.has_probabilities
                else []
            ),
            "-DRANDSVM_FLOAT computes in float. -DTEST adds a main that tests 20 stored rows.",
        ]
        comment = "\n".join(f" * {line}" for line in lines)
        values = [f"RANDSVM_FEATURES = {self.inputs}", f"RANDSVM_DECISIONS = {self.decisions}"]
        values += [f"RANDSVM_CLASSES = {self.classes}"] if self.classes else []
        refused = '#error "the features of this model need double"\n' if needs_double(model) else ""
        functions = ["exp", "tanh", "sqrt", "cos"]
        macros = [
            "\n".join(f"#define RANDSVM_{name.upper()} {name}{suffix}" for name in functions)
            for suffix in ("f", "")
        ]
        return (
            f"{BEGINNING.decode()}, written by randsvm {__version__}.\n{comment}\n */\n"
            "#include <float.h>\n#include <math.h>\n#include <stddef.h>\n\n"
            f"#ifdef RANDSVM_FLOAT\n{refused}typedef float {REAL};\n{macros[0]}\n"
            f"#else\ntypedef double {REAL};\n{macros[1]}\n#endif\n\n"
            f"enum {{ {', '.join(values)} }};\n\n" + "\n".join(prototypes) + "\n"
        )

    def _feature_names(self, columns: Columns) -> str:
        """Return a function for the names of the features of a table."""
        names = columns.feature_names[: self.inputs]
        lines = ",\n".join(map(_string, names + [""] * (self.inputs - len(names))))
        return dedent(
            """\
            const char *randsvm_feature(int number)
            {
                static const char *const names[RANDSVM_FEATURES] = {
            %s
                };
                return names[number];
            }
            """
        ) % indent(lines, "        ")

    def _meaning(self) -> str:
        """Return the meaning of the decision values in one sentence."""
        model = self.model
        if model.is_regression:
            return "the prediction"
        if isinstance(model, PairwiseModel):
            return "one for each pair (0, 1), (0, 2), .., > 0 is a vote for the first class"
        if self.decisions > 1:
            return "one for each class, the largest wins"
        return "> 0 is class 0, else class 1"

    # ---- rows ----

    def _prepare(self) -> str:
        """Return a function that rounds and scales a row, and selects the columns of the model.

        For RBF the function returns the squared norm of the features that have no column.
        """
        model = self.model
        positions = model.features.astype(np.int64) - model.index_base
        rounded = "x[i]" if model.float64 else "(float)x[i]"
        tables, before, steps = self._scaling(rounded)
        is_identity = np.array_equal(positions, np.arange(self.inputs))
        if is_identity:
            steps.append("v[i] = value;")
        else:
            column = np.full(self.inputs, -1)
            column[positions] = np.arange(len(positions))
            tables.append(_table(_integer_type(self.columns), "column", _integers(column)))
            steps.append("if (column[i] >= 0)\n    v[column[i]] = value;")
            if self.counts_rest:
                steps.append("else\n    rest += value * value;")
        result = REAL if self.counts_rest else "void"
        body = [*([f"{REAL} rest = 0;"] if self.counts_rest else []), "int i;", *_declared(before)]
        if not len(positions):
            body.append("v[0] = 0;")
        body += [
            "for (i = 0; i < RANDSVM_FEATURES; i++) {",
            f"    {REAL} value = {rounded};",
            indent("\n".join(steps), "    "),
            "}",
            *(["return rest;"] if self.counts_rest else []),
        ]
        text = indent("\n".join(body), "    ")
        head = f"static {result} prepare(const {REAL} *x, {REAL} *v)"
        return "\n".join([*tables, f"{head}\n{{\n{text}\n}}\n"])

    def _scaling(self, rounded: str) -> tuple[list[str], list[str], list[str]]:
        """Return the tables, the statements before all entries, and those of an entry.

        rounded: the expression for entry i of a row.
        """
        model, scaling = self.model, self.model.scaling
        if scaling is None or model.seen is None:
            return [], [], []
        seen = model.seen.indices(MAX_FEATURES).astype(np.int64) - model.index_base
        known = np.zeros(self.inputs, bool)
        known[seen] = True
        tables, before, steps = [], [], []
        if scaling.factor is None:
            test = ""
            if not known.all():
                tables.append(_table("char", "is_known", _integers(known.astype(int))))
                test = "if (is_known[i])\n        "
            before = [
                f"{REAL} norm = 0;",
                "for (i = 0; i < RANDSVM_FEATURES; i++)",
                f"    {test}norm += ({REAL}){rounded} * ({REAL}){rounded};",
                "norm = norm > 0 ? RANDSVM_SQRT(norm) : 1;",
            ]
            steps.append("value /= norm;")
            if not known.all():
                steps.append("if (!is_known[i])\n    value = 0;")
        else:
            for name, values in (("shift", scaling.shift), ("factor", scaling.factor)):
                if values is not None:
                    spread = np.zeros(self.inputs)
                    spread[seen] = values
                    tables.append(_table(REAL, name, _reals(spread)))
            shifted = "(value - shift[i])" if scaling.shift is not None else "value"
            steps.append(f"value = {shifted} * factor[i];")
        steps.append("value = value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value;")
        if not model.float64:
            steps.append("value = (float)value;")
        return tables, before, steps

    # ---- kernel machines ----

    def _kernel(self, model: KernelModel) -> str:
        """Return the support vectors and a function that returns a kernel value."""
        kernel, Z, m = model.kernel, model.Z, len(model.beta)
        name = kernel.name
        dense = Z.nnz >= DENSE * m * self.columns
        if dense:
            whole = np.zeros((m, self.columns), Z.dtype)
            whole[:, : Z.shape[1]] = Z.toarray()
            tables = [_table(self.value_type, "vectors", _features(whole))]
            start = f"const {self.value_type} *z = vectors + (size_t)s * {self.columns};"
            loop = f"for (j = 0; j < {self.columns}; j++)"
            value, position = "z[j]", "j"
        else:
            tables = [
                _table("int", "start", _integers(Z.indptr)),
                _table(_integer_type(self.columns), "position", _integers(Z.indices)),
                _table(self.value_type, "vectors", _features(Z.data)),
            ]
            start, loop = "", "for (j = start[s]; j < start[s + 1]; j++)"
            value, position = "vectors[j]", "position[j]"
        entry = f"v[{position}]"
        lines = [start] if start else []
        rbf = name == "rbf"
        lines += [f"{REAL} sum = {'norm' if rbf else '0'};", "int j;"]
        if rbf:
            whole_term = "" if dense else f" - {entry} * {entry}"
            lines += [
                f"{loop} {{",
                f"    {REAL} difference = {entry} - {value};",
                f"    sum += difference * difference{whole_term};",
                "}",
            ]
            sign = "sum" if dense else "(sum > 0 ? sum : 0)"
            lines.append(f"return RANDSVM_EXP(-({REAL}){kernel.gamma!r} * {sign});")
        else:
            lines += [loop, f"    sum += {entry} * {value};"]
            if name not in ("linear", "poly", "sigmoid"):
                raise ModelError(f"the kernel {name} has no export to C")
            if name != "linear":
                lines.append(f"sum = ({REAL}){kernel.gamma!r} * sum + ({REAL}){kernel.coef0!r};")
            lines.append(_power_lines(kernel.degree) if name == "poly" else "")
            returned = {"linear": "sum", "poly": "power", "sigmoid": "RANDSVM_TANH(sum)"}[name]
            lines.append(f"return {returned};")
        text = indent("\n".join(filter(None, lines)), "    ")
        parameters = f"const {REAL} *v, {f'{REAL} norm, ' if rbf else ''}int s"
        return "\n".join(tables) + f"\nstatic {REAL} kernel({parameters})\n{{\n{text}\n}}\n\n"

    def _kernel_call(self, model: KernelModel) -> tuple[list[str], str]:
        """Return the lines that prepare a row, and the call that returns the kernel value of s."""
        if model.kernel.name != "rbf":
            return ["prepare(x, v);"], "kernel(v, s)"
        lines = ["norm = prepare(x, v);"]
        if model.Z.nnz < DENSE * len(model.beta) * self.columns:
            lines += [f"for (s = 0; s < {self.columns}; s++)", "    norm += v[s] * v[s];"]
        return lines, "kernel(v, norm, s)"

    def _decisions(
        self, variables: Sequence[str], lines: Sequence[str], tables: Sequence[str]
    ) -> str:
        """Return the function randsvm_decisions, which begins with the offsets."""
        model = self.model
        offsets = _table(REAL, "offsets", _reals(model.b))
        body = [
            f"{REAL} v[{self.columns}];",
            *variables,
            "int c;",
            "for (c = 0; c < RANDSVM_DECISIONS; c++)",
            "    f[c] = offsets[c];",
            *lines,
        ]
        text = indent("\n".join(body), "    ")
        head = f"void randsvm_decisions(const {REAL} *x, {REAL} *f)"
        return "\n".join([*tables, offsets, f"{head}\n{{\n{text}\n}}\n"])

    def _expansion(self, model: KernelModel) -> str:
        prepare, call = self._kernel_call(model)
        lines = [
            *prepare,
            f"for (s = 0; s < {len(model.beta)}; s++) {{",
            f"    {REAL} k = {call};",
            "    for (c = 0; c < RANDSVM_DECISIONS; c++)",
            "        f[c] += coefficients[s * RANDSVM_DECISIONS + c] * k;",
            "}",
        ]
        norm = [f"{REAL} norm;"] if model.kernel.name == "rbf" else []
        tables = [_table(REAL, "coefficients", _reals(model.beta))]
        return self._decisions([*norm, "int s;"], lines, tables)

    def _pairwise(self, model: PairwiseModel) -> str:
        prepare, call = self._kernel_call(model)
        K = self.classes
        ends = np.cumsum([0, *model.nr_sv])
        pairs = np.zeros((K, K - 1), np.int64)
        for first, second in zip(*decisions.class_pairs(K), strict=True):
            number = decisions.pair_index(int(first), int(second), K)
            pairs[first, second - 1] = pairs[second, first] = number
        tables = [
            _table(REAL, "coefficients", _reals(model.beta)),
            _table("int", "first_of_class", _integers(ends)),
            "/* pair_of[i * (RANDSVM_CLASSES - 1) + c]: the pair to which column c of class i "
            "belongs. */",
            _table("int", "pair_of", _integers(pairs)),
        ]
        lines = [
            *prepare,
            "for (i = 0; i < RANDSVM_CLASSES; i++) {",
            "    for (s = first_of_class[i]; s < first_of_class[i + 1]; s++) {",
            f"        {REAL} k = {call};",
            "        for (c = 0; c < RANDSVM_CLASSES - 1; c++)",
            "            f[pair_of[i * (RANDSVM_CLASSES - 1) + c]] +=",
            "                coefficients[s * (RANDSVM_CLASSES - 1) + c] * k;",
            "    }",
            "}",
        ]
        norm = [f"{REAL} norm;"] if model.kernel.name == "rbf" else []
        return self._decisions([*norm, "int i, s;"], lines, tables)

    # ---- linear machines ----

    def _linear(self, model: LinearModel) -> str:
        tables = [_table(REAL, "weights", _reals(model.w))]
        lines = [
            "prepare(x, v);",
            f"for (j = 0; j < {len(model.w)}; j++)",
            "    for (c = 0; c < RANDSVM_DECISIONS; c++)",
            "        f[c] += v[j] * weights[j * RANDSVM_DECISIONS + c];",
        ]
        return self._decisions(["int j;"], lines, tables)

    def _random_features(self, model: LinearModel, mapping: RandomMap) -> str:
        d, N = len(model.features), mapping.components
        component = _fourier_feature if mapping.kernel == "rbf" else _maclaurin_feature
        tables, variables, feature = component(d, model.map_tables)
        lines = [
            "prepare(x, v);",
            f"for (j = 0; j < {N}; j++) {{",
            *(f"    {line}" for line in feature),
            "    for (c = 0; c < RANDSVM_DECISIONS; c++)",
            "        f[c] += z * weights[j * RANDSVM_DECISIONS + c];",
            "}",
        ]
        constant, linear = (repr(float(value)) for value in mapping.low_degree_factors)
        row = N
        if mapping.low_degree_factors[0] > 0:
            lines += [
                "for (c = 0; c < RANDSVM_DECISIONS; c++)",
                f"    f[c] += ({REAL}){constant} * weights[{row} * RANDSVM_DECISIONS + c];",
            ]
            row += 1
        if mapping.low_degree_factors[1] > 0:
            lines += [
                f"for (j = 0; j < {d}; j++)",
                "    for (c = 0; c < RANDSVM_DECISIONS; c++)",
                f"        f[c] += ({REAL}){linear} * v[j] * "
                f"weights[({row} + j) * RANDSVM_DECISIONS + c];",
            ]
        weights = _table(REAL, "weights", _reals(model.w))
        return self._decisions(["int j, i;", *variables], lines, [weights, *tables])

    # ---- predictions ----

    def _predict(self) -> str:
        if self.model.is_regression:
            head = f"{REAL} randsvm_predict(const {REAL} *x)"
            return f"{head}\n{{\n    return randsvm_decision(x);\n}}\n"
        if isinstance(self.model, PairwiseModel):
            rule = """\
                int votes[RANDSVM_CLASSES] = {0}, best = 0, i, j;
                for (i = 0; i < RANDSVM_CLASSES; i++)
                    for (j = i + 1; j < RANDSVM_CLASSES; j++)
                        votes[*f++ > 0 ? i : j]++;
                for (i = 1; i < RANDSVM_CLASSES; i++)
                    if (votes[i] > votes[best])
                        best = i;
                return best;"""
        elif self.decisions > 1:
            rule = """\
                int best = 0, i;
                for (i = 1; i < RANDSVM_DECISIONS; i++)
                    if (f[i] > f[best])
                        best = i;
                return best;"""
        else:
            rule = "                return f[0] > 0 ? 0 : 1;"
        tables = [_table("char *const", "labels", map(_string, self.model.labels))]
        if self.has_ints:
            tables.append(_table("int", "label_values", _integers(np.array(self.label_ints))))
        return "\n".join(tables) + dedent(
            f"""\

            static int class_of(const {REAL} *f)
            {{
            {indent(dedent(rule), "    ").replace(chr(10), chr(10) + " " * 12)}
            }}

            /* Number of the class of a row, from 0. */
            int randsvm_class(const {REAL} *x)
            {{
                {REAL} f[RANDSVM_DECISIONS];
                randsvm_decisions(x, f);
                return class_of(f);
            }}

            /* Label of a class as the training data spelled it. */
            const char *randsvm_label(int number)
            {{
                return labels[number];
            }}

            {self.label_type}randsvm_predict(const {REAL} *x)
            {{
                return {self.label_of.format("randsvm_class(x)")};
            }}
            """
        )

    def _probabilities(self) -> str:
        marks = self.model.density_marks if isinstance(self.model, KernelModel) else None
        if marks is not None:
            about, (definitions, lines) = "the label by its decision value", _density_marks(marks)
        else:
            about, (definitions, lines) = "the most probable label", self._sigmoids()
        body = [
            f"{REAL} f[RANDSVM_DECISIONS];",
            *_declared(["int best = 0;", *lines], call="randsvm_decisions(x, f);"),
            f"return {self.label_of.format('best')};",
        ]
        text = indent("\n".join(body), "    ")
        head = (
            f"/* Computes the probability of each class, and returns {about}. */\n"
            f"{self.label_type}randsvm_predict_probability(const {REAL} *x, {REAL} *p)"
        )
        return f"{definitions}\n{head}\n{{\n{text}\n}}\n"

    def _sigmoids(self) -> tuple[str, list[str]]:
        """Return the definitions and the statements of probabilities by sigmoids."""
        assert self.model.sigmoid_in_use is not None, "has_probabilities comes first"
        definitions = _probability(*self.model.sigmoid_in_use)
        if isinstance(self.model, PairwiseModel):
            definitions += _coupling(self.classes)
            lines = ["couple(f, p);"]
        elif self.decisions == 1:
            lines = ["p[0] = probability(f, 0);", "p[1] = 1 - p[0];"]
        else:
            lines = [
                f"{REAL} sum = 0;",
                "int i;",
                "for (i = 0; i < RANDSVM_CLASSES; i++)",
                "    sum += p[i] = probability(f, i);",
                "for (i = 0; i < RANDSVM_CLASSES; i++)",
                "    p[i] /= sum;",
            ]
        most_probable = [
            "for (c = 1; c < RANDSVM_CLASSES; c++)",
            "    if (p[c] > p[best])",
            "        best = c;",
        ]
        return definitions, ["int c;", *lines, *most_probable]

    # ---- the test ----

    def _test(self, rows: StoredRows) -> str:
        """Return a main that tests the stored rows, or reads rows."""
        m = rows.X.shape[0]
        probabilities = f"\n    static {REAL} p[RANDSVM_CLASSES];" if self.has_probabilities else ""
        outputs = "RANDSVM_DECISIONS + 1" + " + RANDSVM_CLASSES" * self.has_probabilities
        tolerances = [
            f"static const double tolerance = {value!r};"
            for value in (rows.float_tolerance, rows.tolerance)
        ]
        return f"""\
#ifdef TEST
#include <stdio.h>

#ifdef RANDSVM_FLOAT
{tolerances[0]}
#else
{tolerances[1]}
#endif

{self._test_tables(rows)}
/* Tests the stored rows. With an argument: reads rows of RANDSVM_FEATURES doubles from standard
 * input, and writes for each the decision values, the number of the class, and probabilities. */
int main(int argc, char **argv)
{{
    static {REAL} x[RANDSVM_FEATURES], f[RANDSVM_DECISIONS];{probabilities}
    static double in[RANDSVM_FEATURES], out[{outputs}];
    double largest = 0;
    int i, c, r, wrong = 0;
    if (argc > 1 && argv[1][0]) {{
{indent(self._input_loop(), "        ")}
    }}
    for (r = 0; r < {m}; r++) {{
{indent(self._row_comparison(), "        ")}
    }}
    printf("{m} rows: largest difference of decision values %g, ", largest);
    printf("%d wrong labels\\n", wrong);
    return wrong || !(largest <= tolerance);
}}
#endif
"""

    def _test_tables(self, rows: StoredRows) -> str:
        X = to_csr(rows.X)
        expected = rows.predicted if self.classes else np.zeros(X.shape[0])
        return "\n".join(
            [
                _table("int", "test_start", _integers(X.indptr)),
                _table("int", "test_index", _integers(X.indices)),
                _table("double", "test_value", _reals(X.data)),
                _table("double", "test_f", _reals(rows.f)),
                _table("int", "test_class", _integers(expected.astype(np.int64))),
                "/* A smaller difference of f does not change the class. */",
                _table("double", "test_margin", _reals(rows.margin)),
            ]
        )

    @property
    def _class_number(self) -> str:
        """The expression for the number of the class of x."""
        return "randsvm_class(x)" if self.classes else "0"

    def _input_loop(self) -> str:
        """Return the statements that predict the rows of standard input."""
        probabilities = [
            "    randsvm_predict_probability(x, p);",
            "    for (c = 0; c < RANDSVM_CLASSES; c++)",
            "        out[RANDSVM_DECISIONS + 1 + c] = p[c];",
        ]
        return "\n".join(
            [
                "while (fread(in, sizeof in, 1, stdin) == 1) {",
                "    for (i = 0; i < RANDSVM_FEATURES; i++)",
                f"        x[i] = ({REAL})in[i];",
                "    randsvm_decisions(x, f);",
                "    for (c = 0; c < RANDSVM_DECISIONS; c++)",
                "        out[c] = f[c];",
                f"    out[RANDSVM_DECISIONS] = {self._class_number};",
                *(probabilities if self.has_probabilities else []),
                "    if (fwrite(out, sizeof out, 1, stdout) != 1)",
                "        return 1;",
                "}",
                "return fflush(stdout) != 0;",
            ]
        )

    def _row_comparison(self) -> str:
        """Return the statements that compare the prediction of stored row r."""
        return "\n".join(
            [
                "for (i = 0; i < RANDSVM_FEATURES; i++)",
                "    x[i] = 0;",
                "for (i = test_start[r]; i < test_start[r + 1]; i++)",
                f"    x[test_index[i]] = ({REAL})test_value[i];",
                "randsvm_decisions(x, f);",
                "for (c = 0; c < RANDSVM_DECISIONS; c++) {",
                "    double difference = fabs(f[c] - test_f[r * RANDSVM_DECISIONS + c]);",
                "    if (!(difference <= largest))",
                "        largest = difference;",
                "}",
                f"if ({self._class_number} != test_class[r] && test_margin[r] > tolerance)",
                "    wrong++;",
            ]
        )


def _fourier_feature(
    d: int, transform: Sequence[np.ndarray]
) -> tuple[list[str], list[str], list[str]]:
    """Return the tables, variables and statements of component j, z, of random Fourier features.

    transform: see FeatureTransform.tables.
    """
    W, phases, scale = transform
    tables = [
        _table("float", "frequencies", _features(W.T)),
        _table("float", "phases", _features(phases)),
    ]
    lines = [
        f"{REAL} z = phases[j];",
        f"for (i = 0; i < {d}; i++)",
        f"    z += v[i] * frequencies[j * {d} + i];",
        f"z = ({REAL}){next(_features(scale))} * RANDSVM_COS(z);",
    ]
    return tables, [], lines


def _maclaurin_feature(
    d: int, transform: Sequence[np.ndarray]
) -> tuple[list[str], list[str], list[str]]:
    """Return the same of random Maclaurin features."""
    signs, degrees, scales, length = transform
    tables = [
        _table("signed char", "signs", _integers(signs)),
        _table("int", "degrees", _integers(degrees)),
        _table("float", "scales", _features(scales)),
    ]
    lines = [
        f"{REAL} z = scales[j];",
        "for (k = 0; k < degrees[j]; k++) {",
        f"    {REAL} factor = 0;",
        f"    for (i = 0; i < {d}; i++)",
        "        factor += v[i] * *sign++;",
        f"    z *= ({REAL}){next(_features(length))} * factor;",
        "}",
    ]
    return tables, ["int k;", "const signed char *sign = signs;"], lines


def _probability(a: np.ndarray, b: np.ndarray) -> str:
    """Return the function that computes the probability of decision value c. a, b : A and B."""
    tables = [_table(REAL, "sigmoid_a", _reals(a)), _table(REAL, "sigmoid_b", _reals(b))]
    body = [
        f"{REAL} least = ({REAL}){decisions.MIN_PROBABILITY!r}, p;",
        f"{REAL} half = ({REAL})0.5;",
        "p = half - half * RANDSVM_TANH(half * (sigmoid_a[c] * f[c] + sigmoid_b[c]));",
        "return p < least ? least : p > 1 - least ? 1 - least : p;",
    ]
    text = indent("\n".join(body), "    ")
    head = f"static {REAL} probability(const {REAL} *f, int c)"
    return "\n".join(tables) + f"\n{head}\n{{\n{text}\n}}\n"


def _density_marks(marks: np.ndarray) -> tuple[str, list[str]]:
    """Return the definitions and the statements of probabilities of novelty detection."""
    last = len(marks) - 1
    lines = [
        "int i = 0;",
        f"while (i < {len(marks)} && marks[i] <= f[0])",
        "    i++;",
        f"p[0] = ({REAL})i / {len(marks)};",
        "if (f[0] < marks[0])",
        f"    p[0] = ({REAL})0.001;",
        f"else if (f[0] > marks[{last}])",
        f"    p[0] = ({REAL})0.999;",
        f"else if (f[0] == marks[{last}])",
        "    p[0] = 0;",
        "p[1] = 1 - p[0];",
        "best = class_of(f);",
    ]
    return _table(REAL, "marks", _reals(marks)), lines


def _declared(lines: Sequence[str], call: str | None = None) -> list[str]:
    """Return lines with the declarations first, and `call` after them."""
    kinds = (f"{REAL} ", "int ")
    first = [line for line in lines if line.startswith(kinds)]
    rest = [line for line in lines if not line.startswith(kinds)]
    return [*first, *([call] if call else []), *rest]


def _power_lines(degree: int) -> str:
    """Return the lines that compute power = sum^degree by repeated squaring."""
    return "\n".join(
        [
            f"{REAL} power = 1;",
            f"for (j = {degree}; j > 0; j /= 2) {{",
            "    if (j % 2)",
            "        power *= sum;",
            "    sum *= sum;",
            "}",
        ]
    )


def _coupling(classes: int) -> str:
    """Return the function of `decisions.coupled_probabilities` in C."""
    steps = max(decisions.MAX_COUPLING_STEPS, classes)
    tolerance = decisions.COUPLING_TOLERANCE / classes
    return dedent(
        f"""\

        /* Wu, Lin, Weng, "Probability Estimates for Multi-class Classification by Pairwise
         * Coupling", JMLR 5, 2004, Algorithm 2. */
        static void couple(const {REAL} *f, {REAL} *p)
        {{
            {REAL} Q[RANDSVM_CLASSES][RANDSVM_CLASSES], Qp[RANDSVM_CLASSES];
            int i, j, t, step, pair = 0;
            for (t = 0; t < RANDSVM_CLASSES; t++) {{
                p[t] = ({REAL})1 / RANDSVM_CLASSES;
                Q[t][t] = 0;
            }}
            for (i = 0; i < RANDSVM_CLASSES; i++)
                for (j = i + 1; j < RANDSVM_CLASSES; j++) {{
                    {REAL} r = probability(f, pair++);
                    Q[i][j] = Q[j][i] = -r * (1 - r);
                    Q[i][i] += (1 - r) * (1 - r);
                    Q[j][j] += r * r;
                }}
            for (step = 0; step < {steps}; step++) {{
                {REAL} pQp = 0, largest = 0;
                for (t = 0; t < RANDSVM_CLASSES; t++) {{
                    Qp[t] = 0;
                    for (j = 0; j < RANDSVM_CLASSES; j++)
                        Qp[t] += Q[t][j] * p[j];
                    pQp += p[t] * Qp[t];
                }}
                for (t = 0; t < RANDSVM_CLASSES; t++) {{
                    {REAL} error = Qp[t] > pQp ? Qp[t] - pQp : pQp - Qp[t];
                    largest = error > largest ? error : largest;
                }}
                if (largest < ({REAL}){tolerance!r})
                    break;
                for (t = 0; t < RANDSVM_CLASSES; t++) {{
                    {REAL} change = (pQp - Qp[t]) / Q[t][t], sum = 1 + change;
                    p[t] += change;
                    pQp = (pQp + change * (change * Q[t][t] + 2 * Qp[t])) / (sum * sum);
                    for (j = 0; j < RANDSVM_CLASSES; j++) {{
                        Qp[j] = (Qp[j] + change * Q[t][j]) / sum;
                        p[j] /= sum;
                    }}
                }}
            }}
        }}
        """
    )
