"""Model files: what is written is read, other programs' files too, and no bad file is misread."""

import hashlib
import io
from dataclasses import fields, replace

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from liblinear import liblinear as bindings
from liblinear import liblinearutil
from libsvm import svmutil
from model_files import (
    KernelModel,
    SealedStream,
    allow_features,
    features_of,
    format_of,
    load_model,
    metadata_of,
    read_body,
    resealed,
    rows_of,
    runs_of,
    save_model,
    split_trailer,
)
from model_kinds import KINDS, METADATA, PLAIN, ROWS

from randsvm.errors import DataError, ModelError, OutputError


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def written(kind, tmp_path):
    save_model(KINDS[kind], tmp_path / "m")
    return tmp_path / "m"


def decisions(model):
    base = int(model.features[0]) if len(model.features) else 1
    indices = np.tile(np.arange(base, base + 4, dtype=np.int32), len(ROWS))
    rows = rows_of(model, np.arange(0, ROWS.size + 1, 4), indices, ROWS.ravel())
    return model.decision(rows)


def same(found, expected):
    if hasattr(found, "toarray"):
        return same(found.toarray(), expected.toarray())
    if isinstance(found, np.ndarray):
        return found.shape == expected.shape and found.tobytes() == expected.tobytes()
    return repr(found) == repr(expected)


# ---- what is written is read ----------------------------------------------------------------


def test_a_model_is_read_as_it_was_written(kind, written, tmp_path):
    model, found = KINDS[kind], load_model(written)
    assert type(found) is type(model)
    assert found.labels == model.labels
    exact = {f.name for f in fields(model)} - {"features", "seen", "Z", "beta", "b", "w", "support"}
    for name in exact - {"zero_based"} if model.zero_based else exact:
        assert same(getattr(found, name), getattr(model, name)), name
    assert np.array_equal(found.seen, model.seen)
    # Support vectors are grouped by class, so that sums may round otherwise.
    np.testing.assert_allclose(decisions(found), decisions(model), rtol=1e-12, atol=1e-13)
    save_model(found, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == written.read_bytes()


def test_coefficients_beyond_float32_are_read(kind, tmp_path):
    name = "beta" if isinstance(KINDS[kind], KernelModel) else "w"
    # Small features have large coefficients.
    model = replace(KINDS[kind], **{name: 1e45 * getattr(KINDS[kind], name)})
    save_model(model, tmp_path / "m")
    found, expected = (
        np.sort(getattr(one, name), axis=None) for one in (load_model(tmp_path / "m"), model)
    )
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_programs_predict_the_same_or_refuse_the_file(kind, written, capfd):
    model = KINDS[kind]
    kernel = isinstance(model, KernelModel)
    loaded = (svmutil.svm_load_model if kernel else liblinearutil.load_model)(str(written))
    if kind == "zero-based":
        return  # LIBSVM's programs have no index base
    if kind not in PLAIN:
        assert loaded is None
        assert "unknown text in model file: [randsvm_model]" in capfd.readouterr().err
        return
    if kernel:
        _, _, values = svmutil.svm_predict([], ROWS.tolist(), loaded, "-q")
    else:
        _, values = oracle.liblinear_predictions(written, ROWS)
    found = np.array(values).reshape(len(ROWS), -1)
    np.testing.assert_allclose(found, decisions(model), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["rbf", "linear"])
def test_numbers_that_are_not_finite_are_not_written(kind, tmp_path, number):
    path = tmp_path / "m"
    path.write_text("old")
    with pytest.raises(ModelError, match="expected finite numbers in"):
        save_model(replace(KINDS[kind], b=np.array([number])), path)
    assert path.read_text() == "old"
    with pytest.raises(OutputError):
        save_model(KINDS[kind], tmp_path / "no" / "m")


def test_standard_output(kind, written, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    save_model(KINDS[kind], "-")
    assert out.buffer.getvalue() == written.read_bytes()


def test_the_numbers_of_another_run_are_found(tmp_path):
    assert metadata_of(tmp_path / "m") is None
    save_model(KINDS["rbf"], tmp_path / "m")
    found = metadata_of(tmp_path / "m")
    assert (found.configuration, found.gap) == (METADATA.configuration, 0.5)
    (tmp_path / "m").write_bytes(LIBSVM)
    assert metadata_of(tmp_path / "m") is None


# ---- what LIBLINEAR writes is read (for LIBSVM see test_kernel_model.py) ---------------------

SOLVERS = [
    "L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", "MCSVM_CS",
    "L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL", "L2R_L2LOSS_SVR", "L2R_L2LOSS_SVR_DUAL",
    "L2R_L1LOSS_SVR_DUAL", "ONECLASS_SVM",
]  # fmt: skip


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("bias", [-1.0, 0.0, 1.0, 100.0])
def test_models_of_liblinear_are_read_and_written_for_it_again(tmp_path, solver, classes, bias):
    if classes > 2 and ("SVR" in solver or "ONECLASS" in solver):
        return
    rng = np.random.default_rng(5)
    y = (np.arange(60) % classes) * 5 - 7
    X = rng.normal(size=(60, 4)).round(3)
    X[:, 0] += y
    X[:, 1] = 0  # no weight
    number = int(bindings.solver_names[solver])
    options = f"-s {number} -q" + (f" -B {bias}" if solver != "ONECLASS_SVM" else "")
    liblinearutil.save_model(str(tmp_path / "m"), liblinearutil.train(y, X, options))
    found = load_model(tmp_path / "m")
    save_model(found, tmp_path / "n")
    predicted = found.predicted(decisions(found))
    ours = predicted if found.is_regression else np.array(found.labels, float)[predicted]
    for name in ("m", "n"):
        labels, _ = oracle.liblinear_predictions(tmp_path / name, ROWS)
        np.testing.assert_allclose(ours, labels, rtol=1e-9, atol=1e-9)


# ---- the trailer ----------------------------------------------------------------------------

BODY = b"any\nmodel 0.5\n"


LINES = METADATA.lines()


def sealed(body=BODY, items=LINES):
    stream = io.BytesIO()
    writer = SealedStream(stream)
    writer.write(body)
    writer.seal(items)
    return stream.getvalue()


def test_the_trailer_is_lines_of_json_and_the_sha256_of_all_before_its_line():
    lines = sealed(items={"seed": 7, "labels": ("ham", "é")}).splitlines(keepends=True)
    before = b"".join(lines[:-1])
    expected = '# randsvm format 2\n# randsvm seed 7\n# randsvm labels ["ham", "é"]\n'
    assert before == BODY + expected.encode()
    assert lines[-1] == b"# randsvm sha256 " + hashlib.sha256(before).hexdigest().encode() + b"\n"


keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    st.lists,
)


@given(st.dictionaries(keys.filter(lambda key: key not in ("format", "sha256")), values))
@settings(max_examples=40)
def test_values_come_back_and_stay_on_their_lines(items):
    content = sealed(items=items)
    assert content.count(b"\n") == BODY.count(b"\n") + len(items) + 2
    assert b"\0" not in content  # a string of C ends there, and LIBSVM's reader counts lines so
    end, found = split_trailer(content, "m")
    assert (content[:end], found) == (BODY, items)


def test_a_text_in_bytes_that_are_not_utf8_and_arrays_are_values():
    name = b"caf\xe9".decode(errors="surrogateescape")
    items = {"labels": [name], "shift": np.array([[0.1, 2]])}
    items |= {"gap": float("nan"), "primal": float("inf")}
    found = split_trailer(sealed(items=items), "m")[1]
    assert found == {"labels": [name], "shift": [[0.1, 2.0]], "gap": None, "primal": None}


def test_a_file_without_trailer_is_all_body():
    assert split_trailer(BODY, "m") == (len(BODY), None)


def test_every_flipped_bit_and_every_cut_is_refused():
    content = sealed()
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            with pytest.raises(ModelError, match=r"^m:([0-9]+:)? expected .*, found "):
                split_trailer(bytes(flipped), "m")
    for size in range(len(BODY) + len(b"# randsvm "), len(content)):
        with pytest.raises(ModelError, match="found"):
            split_trailer(content[:size], "m")


OTHER = "another version of randsvm wrote this model, train again"
FORMAT = "m:3: expected '# randsvm format 2', found '# randsvm"
JSON = "expected '# randsvm', a key that no line before it has, and JSON, found "
SEAL_MISSING = "m: expected the line '# randsvm sha256 .* truncated, altered or damaged"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BODY + b"# randsvm format 1\n# randsvm seed 7\n", f"{FORMAT} format 1': {OTHER}"),
        (BODY + b"# randsvm format 12\n# x\n", f"{FORMAT} format 12': {OTHER}"),
        (resealed(BODY + b"# randsvm format \n"), f"{FORMAT} format ': {OTHER}"),
        (resealed(BODY + b"# randsvm seed 7\n"), f"{FORMAT} seed 7': {OTHER}"),
        (BODY + b"# randsvm format 2\n# randsvm x 7\n", SEAL_MISSING),
        (sealed()[:-1], SEAL_MISSING),
        (sealed().replace(b"0.5\n", b"0.6\n", 1), SEAL_MISSING),
        (sealed() + b"x", SEAL_MISSING),
        (sealed() + sealed(), SEAL_MISSING),
        (resealed(BODY + b"# randsvm format 2\n# comment\n"), f"m:4: {JSON}"),
        (resealed(BODY + b"# randsvm format 2\n# randsvm a b\n"), f"m:4: {JSON}"),
        (resealed(BODY + b"# randsvm format 2\n" + b"# randsvm a 1\n" * 2), f"m:5: {JSON}"),
    ],
)  # fmt: skip
def test_a_bad_trailer_is_refused_in_one_line(content, message):
    with pytest.raises(ModelError, match=message) as caught:
        split_trailer(content, "m")
    assert caught.value.exit_code == 65
    assert "\n" not in str(caught.value)


# ---- features -------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 40), max_size=30) | st.sets(st.integers(0, 2**31 - 1), max_size=9))
def test_features_are_written_as_runs_and_read_back(features):
    given = np.array(sorted(features), np.int32)
    assert features_of(runs_of(given)).tolist() == given.tolist()


def test_runs_are_ascending_indices_of_limited_number():
    assert runs_of(np.array([1, 2, 3, 7, 9], np.int32)) == "1-3,7,9"
    for text in ("3-1", "4,2", "-1", "2147483648", "1-2147483647", "a"):
        with pytest.raises(ValueError):
            features_of(text)


def test_a_model_of_many_features_is_read_again_if_two_lines_agree(monkeypatch, tmp_path):
    save_model(KINDS["rbf"], tmp_path / "m")
    allow_features(monkeypatch, 3)
    assert len(load_model(tmp_path / "m").seen) == 4
    content = (tmp_path / "m").read_bytes()
    for old, new in (
        (b'features "1-4', b'features "1-2147483647'),
        (b"randsvm d 4", b"randsvm d 3"),
    ):
        (tmp_path / "m").write_bytes(resealed(edited(content, old, new)))
        with pytest.raises(ModelError, match=r"expected at most \d ascending indices as"):
            load_model(tmp_path / "m")


# ---- headers and rows of other programs -----------------------------------------------------

LIBSVM = (
    b"svm_type c_svc\nkernel_type rbf\ngamma 0.1\nnr_class 2\ntotal_sv 2\nrho -0.25\n"
    b"label 1 -1\nnr_sv 1 1\nSV\n0.5 1:0.5 3:-1.25 \n-0.5 \n"
)
LIBLINEAR = (
    b"solver_type L2R_LR\nnr_class 3\nlabel 1 -1 7\nnr_feature 2\nbias 1\nw\n"
    b"0.5 0 -1.25 \n-0.5 3 8e-05 \n1 2 3 \n"
)
ONE_COLUMN = (
    b"solver_type ONECLASS_SVM\nnr_class 2\nnr_feature 3\nbias -1\nrho 0.25\nw\n1 \n2 \n3 \n"
)
FOREIGN = (LIBSVM, LIBLINEAR, ONE_COLUMN)


def refused(content, body=LIBSVM):
    with pytest.raises((ModelError, DataError)) as caught:
        read_body(content, body)
    assert caught.value.exit_code == 65
    assert str(caught.value).startswith("m:")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edited(body, old, new):
    assert body.count(old) == 1
    return body.replace(old, new)


def parts(body):
    """Return the lines of the header, the last of them, and the rows."""
    end = b"SV\n" if body is LIBSVM else b"\nw\n"
    header, _, rows = body.partition(end)
    return header.splitlines(), end.strip(), rows


@pytest.mark.parametrize("body", FOREIGN)
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_header_lines_in_any_order_and_line_ends_of_windows_are_read(body, step, newline):
    lines, end, rows = parts(body)
    content = newline.join([*lines[::step], end, rows.replace(b"\n", newline)])
    expected = "libsvm" if body is LIBSVM else "liblinear"
    assert format_of(content) == expected
    np.testing.assert_array_equal(decisions(read_body(content)), decisions(read_body(body)))


def test_a_model_with_line_ends_of_windows_is_read(kind, written):
    """The seal holds for it, and its own bytes."""
    expected = load_model(written)
    written.write_bytes(written.read_bytes().replace(b"\n", b"\r\n"))
    for field in fields(expected):
        assert same(*(getattr(one, field.name) for one in (load_model(written), expected)))
    assert metadata_of(written)
    written.write_bytes(
        written.read_bytes().replace(b"SV\r\n", b"SV \r\n").replace(b"w\r\n", b"w \r\n")
    )
    with pytest.raises(ModelError, match="altered"):
        load_model(written)


@pytest.mark.parametrize("body", [LIBSVM, LIBLINEAR])
@pytest.mark.parametrize("end", [b"\n", b"\r\n\r\n", b" \n\t\n", b"  "])
def test_blank_lines_at_the_end_of_a_model_of_libsvm_are_ignored(tmp_path, body, end):
    (tmp_path / "m").write_bytes(body + end)
    expected = read_body(body)
    assert all(
        same(*(getattr(one, f.name) for one in (load_model(tmp_path / "m"), expected)))
        for f in fields(expected)
    )
    # LIBSVM's own program reads it, too.
    if body is LIBSVM:
        assert svmutil.svm_load_model(str(tmp_path / "m"))


def test_numbers_in_any_decimal_notation_are_read():
    content = edited(LIBLINEAR, b"0.5 0 -1.25 \n", b"\t+.5  00. -125E-2\r\n")
    np.testing.assert_array_equal(read_body(content).w, read_body(LIBLINEAR).w)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"+1 1:0.5\n",
        b"svm_typ",
        b"nr_class 2\n" * 40 + b"svm_type c_svc\n",
        b"\xff" * 9,
    ],
)
def test_what_is_no_model_has_no_format(content):
    assert format_of(content) is None


def test_messages_name_standard_input_and_the_file_as_given(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    with pytest.raises(ModelError, match=r"^<stdin>:1: expected"):
        load_model("-")
    (tmp_path / "m").write_bytes(b"x\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"^m:1: expected"):
        load_model("m")


@pytest.mark.parametrize("body", FOREIGN)
def test_every_line_of_the_header_is_needed_once(body):
    lines, _, _ = parts(body)
    for number, line in enumerate(lines, 1):
        keyword = line.split()[0].decode()
        message = refused(edited(body, line + b"\n", b""), body)
        assert message.startswith(f"m: expected a line '{keyword} ...' before the line '")
        message = refused(edited(body, line + b"\n", 2 * (line + b"\n")), body)
        assert message == (
            f"m:{number + 1}: expected '{keyword}' once (line {number}), found it again"
        )
        message = refused(edited(body, line, b"x" + line), body)
        assert f"m:{number}: expected a keyword of LIB" in message


@pytest.mark.parametrize("body", FOREIGN)
def test_damaged_ends_are_refused(body):
    assert "expected the end of the model" in refused(body + b"\n1 1:1\n", body)
    assert "expected the end of the model" in refused(body + b"x", body)
    assert "whole lines of them (truncated?)" in refused(body[:-1], body)
    assert "m:1: expected a model with a line" in refused(b"", body)
    assert "(is it a model?)" in refused(b"+1 1:0.5\n", body)
    assert "(is it a model?)" in refused(b"\x00\xff" * 9000, body)
    assert "no" not in refused(b"randsvm_model 2\n" + body, body).split("found ")[0]


@pytest.mark.parametrize(
    ("first_line", "message"),
    [
        (b"randsvm_model 2\n", "m:1: expected '# randsvm' lines at the end of the file, found "),
        (b"randsvm_model 1\n", "m:1: expected 'randsvm_model 2', found 'randsvm_model 1': ano"),
        (b"randsvm_model\n", f"m:1: expected 'randsvm_model 2', found 'randsvm_model': {OTHER}"),
    ],
)
def test_our_own_layout_has_a_version_and_a_trailer(first_line, message):
    assert refused(first_line + LIBSVM).startswith(message)


BAD = [
    (LIBSVM, b"gamma 0.1", b"gamma -1", "m:3: expected finite numbers of 0 or more"),
    (LIBSVM, b"gamma 0.1", b"gamma 0x1p3", "m:3: expected finite numbers of 0 or more after"),
    (LIBSVM, b"gamma 0.1", b"gamma", "m:3: expected 1 value after 'gamma', found 0"),
    (LIBSVM, b"-0.25", b"inf", "m:6: expected finite numbers after 'rho', found 'inf'"),
    (LIBSVM, b"-0.25", b"-1e999", "m:6: expected finite numbers after 'rho', found '-1e999'"),
    (LIBSVM, b"label 1 -1", b"label 1 2147483648", "m:7: expected whole numbers below 2^31"),
    (LIBSVM, b"label 1 -1", b"label 1 1.5", "m:7: expected whole numbers below 2^31 after 'la"),
    (LIBSVM, b"label 1 -1", b"label 1", "m:7: expected 2 values after 'label', found 1"),
    (LIBSVM, b"label 1 -1", b"label 1 1", "m:7: expected different labels, found [1, 1]"),
    (LIBSVM, b"nr_sv 1 1", b"nr_sv 1 2", "m:8: expected counts with the sum 2 (total_sv)"),
    (LIBSVM, b"nr_sv 1 1", b"nr_sv 3 -1", "m:8: expected whole numbers of 0 or more"),
    (LIBSVM, b"c_svc", b"c_scv", "m:1: expected c_svc, one_class, epsilon_svr, nu_svc or nu_"),
    (LIBSVM, b"rbf", b"chi2", "m:2: expected linear, polynomial, rbf, sigmoid or precomputed aft"),
    (LIBSVM, b"nr_class 2", b"nr_class 3", "m:7: expected 3 values after 'label', found 2"),
    (LIBSVM, b"nr_class 2", b"nr_class 1", "m:7: expected 1 value after 'label', found 2"),
    (LIBSVM, b"nr_class 2", b"nr_class 0", "m:4: expected whole numbers of 1 or more, bel"),
    (LIBSVM, b"total_sv 2", b"total_sv -2", "m:5: expected whole numbers of 0 or more"),
    (LIBSVM, b"-0.5 \n", b"-0.5 \n1 1:1 \n# end\n", "m:12: expected the end of the model"),
    (LIBSVM, b"-0.5 \n", b"\n", "m:11: expected 1 number in a support vector, found ''"),
    (LIBSVM, b"-0.5 \n", b" \r\n", "m:11: expected 1 number in a support vector, found ''"),
    (LIBSVM, b"-0.5 \n", b"# 0.5\n", "m:11: expected a support vector, found '#'"),
    (LIBSVM, b"3:-1.25", b"qid:1", "m:10: expected a support vector, found 'q'"),
    (LIBSVM, b"-0.5 \n", b"? 1:1\n", "m:11: expected a support vector, found '?'"),
    (LIBSVM, b"3:-1.25", b"3:-1.2x", "m:10:"),
    (LIBSVM, b"3:-1.25", b"1:-1.25", "m:10:"),
    (LIBSVM, b"3:-1.25", b"3:1e999", "m:10:"),
    (LIBSVM, b"-0.5 \n", b"nan \n", "m:11:"),
    (LIBSVM, b"rbf\ngamma 0.1", b"precomputed", "m:9: expected '0:number' of a training row"),
    (ONE_COLUMN, b"rho 0.25\n", b"", "m: expected a line 'rho ...'"),
    (LIBLINEAR, b"L2R_LR", b"L2R_RL", "m:1: expected L2R_LR, L2R_L2LOSS_SVC_DUAL, L2R_L2LOSS_SV"),
    (LIBLINEAR, b"nr_class 3", b"nr_class 0", "m:2: expected whole numbers of 2 or more"),
    (LIBLINEAR, b"nr_class 3", b"nr_class 4", "m:3: expected 4 values after 'label', found 3"),
    (LIBLINEAR, b"nr_class 3", b"nr_class 3.0", "m:2: expected whole numbers of 2 or more"),
    (LIBLINEAR, b"nr_class 3", b"nr_class 2147483647", "m:3: expected 2147483647 values after"),
    (ONE_COLUMN, b"nr_class 2", b"nr_class 3", "m:2: expected nr_class 2 of a model of one"),
    (LIBLINEAR, b"-1 7", b"-1 1", "m:3: expected different labels, found [1, -1, 1]"),
    (LIBLINEAR, b"nr_feature 2", b"nr_feature -2", "m:4: expected whole numbers of 0 or more"),
    (ONE_COLUMN, b"nr_feature 3", b"nr_feature 2147483647", "m:10: expected 2147483647 rows of w"),
    (LIBLINEAR, b"nr_feature 2", b"nr_feature 3", "m:10: expected 4 rows of w (nr_feature and th"),
    (LIBLINEAR, b"bias 1", b"bias -1", "m:9: expected the end of the model after 2 rows of w (nr"),
    (LIBLINEAR, b"1 2 3 \n", b" \r\n", "m:9: expected 3 numbers in a row of w, found ''"),
    (LIBLINEAR, b"1 2 3 \n", b"1 2\n", "m:9: expected 3 numbers in a row of w, found '1 2'"),
    (LIBLINEAR, b"0 -1.25 \n-0.5", b"0 \n-1.25 -0.5", "m:8:14: expected index:value, found"),
    (LIBLINEAR, b"1 2 3", b"1 x 3", "m:9: expected 3 numbers in a row of w, found '1 "),
    (LIBLINEAR, b"1 2 3", b"1 nan 3", "m:9: expected 3 numbers in a row of w, found '1 "),
    (LIBLINEAR, b"1 2 3", b"1 1e999 3", "m:9: expected 3 numbers in a row of w, found '1 "),
    (LIBLINEAR, b"1 2 3", b"1 1_0 3", "m:9: expected 3 numbers in a row of w, found '1 "),
    (LIBLINEAR, b"1 2 3", b"1 0x1p3 3", "m:9: expected 3 numbers in a row of w, found '1 "),
    (LIBLINEAR, b"1 2 3", b"1 2\x003", "m:9: expected 3 numbers in a row of w, found '1 "),
    (ONE_COLUMN, b"2 \n", b"2 2 \n", "m:8:3: expected index:value, found '2'"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "old", "new", "message"), BAD)
def test_a_bad_model_is_refused_with_its_line(body, old, new, message):
    assert message in refused(edited(body, old, new), body)


@pytest.mark.parametrize("components", [8, 2**31 - 1])
@pytest.mark.parametrize("layout", ["linear", "fourier features"])
def test_random_features_that_are_not_the_rows_of_w_are_refused(tmp_path, layout, components):
    """In LIBLINEAR's layout, too: the features of a damaged model could take any memory."""
    path = tmp_path / "m"
    save_model(KINDS[layout], path)
    before = path.read_bytes().partition(b"# randsvm sha256")[0].partition(b"# randsvm map")[0]
    mapping = f'# randsvm map "rbf components {components} gamma 0.5 seed 0"\n'
    path.write_bytes(resealed(before + mapping.encode()))
    with pytest.raises(ModelError, match="expected a row of w for each feature"):
        load_model(path)
