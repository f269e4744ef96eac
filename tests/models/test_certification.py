"""`randsvm-predict certify`: P, D and gap of LIBSVM's models and of models that were changed."""

import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal

import exact_judge
import numpy as np
import oracle
import pytest
import random_problems
from commands import run_predict, run_train
from libsvm import svm as bindings
from libsvm import svmutil
from oracle import write_rows
from scipy import sparse

import randsvm
from randsvm.errors import GapError, ModelError
from randsvm.parameters.run import CertifyParams

FRIEDMAN = oracle.as_float32(np.random.default_rng(1).random((120, 3)))
TARGETS = np.round(np.sin(5 * FRIEDMAN[:, 0]) + FRIEDMAN[:, 1], 3)
# Equal rows with different targets; their bound must stay a bound.
FRIEDMAN[60:80] = FRIEDMAN[:20]

TRAININGS = {
    "two classes": (*oracle.checkerboard(200), "-c 1 -g 2"),
    "weights": (*oracle.two_gaussians(200), "-c 1 -g 0.5 -w1 5 -w-1 2"),
    "linear kernel": (*oracle.two_gaussians(200), "-t 0 -c 1"),
    "polynomial kernel": (*oracle.two_gaussians(200), "-t 1 -d 2 -g 0.5 -r 1 -c 1"),
    "sparse rows": (*oracle.sparse_rows(150), "-c 1 -g 0.5"),
    "several classes": (*oracle.clouds(160), "-c 2 -g 0.3 -w1 2 -w2 3"),
    "regression": (TARGETS, FRIEDMAN, "-s 3 -c 1 -g 2 -p 0.1"),
    "nu regression": (TARGETS, FRIEDMAN, "-s 4 -c 1 -g 2 -n 0.3"),
    "nu classes": (*oracle.two_gaussians(200), "-s 1 -n 0.4 -g 0.5"),
    "several nu classes": (*oracle.clouds(160), "-s 1 -n 0.3 -g 0.3"),
    "novelty detection": (*oracle.two_gaussians(200), "-s 2 -n 0.2 -g 0.5"),
}
# LIBSVM scales its objective: of nu-SVC by 1/rho^2.
SCALED = ("nu classes", "several nu classes")
EXACT = "-e 1e-7"


def solved(y, X, options, path):
    """Return LIBSVM's optimum and its model, which is written to `path`."""
    emitted = []
    wanted = bindings.svm_parameter(f"{options} {EXACT}")
    wanted.print_func = bindings.PRINT_STRING_FUN(lambda text: emitted.append(text.decode()))
    model = svmutil.svm_train(bindings.svm_problem(y, sparse.csr_matrix(X)), wanted)
    bindings.libsvm.svm_save_model(str(path).encode(), model)
    lines = "".join(emitted).splitlines()
    return sum(float(line.split()[2].rstrip(",")) for line in lines if line[:3] == "obj"), model


def params_of(options):
    """Return the options that `certify` takes."""
    words = options.split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    weights = {name[2:]: float(value) for name, value in given.items() if name[:2] == "-w"}
    return CertifyParams(
        C=float(given.get("-c", 1)),
        epsilon=float(given.get("-p", 0.1)),
        nu=float(given.get("-n", 0.5)),
        weights=weights,
    )


def certificate_of(train, model, options):
    return randsvm.certify(train, model, params=params_of(options))


def changed(path, change):
    """Rewrite a model: change(coefficients) of each support vector."""
    head, rows = path.read_text().split("SV\n")
    entries = dict(line.split(" ", 1) for line in head.splitlines())
    columns = max(1, int(entries["nr_class"]) - 1)
    lines = []
    for line in rows.splitlines():
        words = line.split(" ", columns)
        values = change(np.array(words[:columns], float))
        lines.append(" ".join([*map(repr, values.tolist()), words[-1]]))
    path.write_text("\n".join([f"{head}SV", *lines, ""]))


@pytest.mark.parametrize("name", TRAININGS)
def test_the_certificate_has_libsvms_objective_and_a_small_gap(tmp_path, name):
    y, X, options = TRAININGS[name]
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    optimum, _ = solved(y, X, options, path)
    found = certificate_of(train, path, options)
    if name not in SCALED:
        assert found.dual == pytest.approx(-optimum, rel=1e-5)
    assert found.primal == pytest.approx(found.dual, rel=1e-5)
    assert found.feasible
    assert found.unknown_support_vectors == 0
    # LIBSVM writes 8 digits of a value, so the certificate is for slightly different rows.
    assert -1e-7 <= found.gap < 1e-5
    assert (found.largest_gap is None) == ("several" not in name)


@pytest.mark.parametrize("name", TRAININGS)
def test_a_dual_bound_stays_a_bound_for_infeasible_coefficients(tmp_path, name):
    """Twice each coefficient is infeasible, and so is half of a sum that must be nu n."""
    y, X, options = TRAININGS[name]
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, options, path)
    optimum = certificate_of(train, path, options)
    for factor in (0.5, 2.0):
        solved(y, X, options, path)
        changed(path, lambda beta, factor=factor: factor * beta)
        found = certificate_of(train, path, options)
        # The scale of nu-SVC is free: its coefficients are divided by rho.
        assert found.feasible == (name in SCALED or (factor < 1 and name != "novelty detection"))
        # LIBSVM writes 8 digits of a value, so the certificate is for slightly different rows.
        rounding = 1e-7 * abs(optimum.primal)
        assert found.dual <= optimum.primal + rounding
        assert found.primal >= optimum.dual - rounding
        if name not in (*SCALED, "novelty detection"):
            assert found.gap > 0.05


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_our_models_of_several_classes_have_the_gap_that_they_report(tmp_path, multiclass):
    y, X = oracle.clouds(300)
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    options = "-c", 2, "-g", 0.3, "-w", 2, 3
    run_train("-q", *options, "--multiclass", multiclass, train, path)
    found = certificate_of(train, path, "-c 2 -w2 3")
    assert found.feasible
    assert len(found.machines) == {"ovo": 6, "ovr": 4}[multiclass]
    said = oracle.trailer(path)
    assert found.primal == pytest.approx(float(said["primal"]), rel=1e-5)
    assert found.gap == pytest.approx(float(said["gap"]), abs=2e-5)


OURS = {
    "two classes": "-c 8 -g 2",
    "weights": "-c 0.5 -g 0.5 -w -1 5 -w balanced",
    "several classes": "-c 4 -g 0.3 -w 2 3",
    "regression": "-s svr -c 3 -g 2 -p 0.02",
    "nu regression": "-s nu-svr -c 3 -g 2 -n 0.2",
    "nu classes": "-s nu-svc -n 0.3 -g 0.5",
    "novelty detection": "-s one-class -n 0.3 -g 0.5",
}


@pytest.mark.parametrize("name", OURS)
def test_the_problem_of_our_own_model_is_that_of_its_training(tmp_path, name, capsys):
    y, X, _ = TRAININGS[name]
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    run_train("-q", *OURS[name].split(), train, path)
    found, said = randsvm.certify(train, path), oracle.trailer(path)
    assert found.feasible
    assert found.primal == pytest.approx(float(said["primal"]), rel=1e-5)
    assert found.gap == pytest.approx(float(said["gap"]), abs=2e-5)
    # What is given is taken.
    other = randsvm.certify(train, path, params=CertifyParams(C=0.1, nu=0.9, epsilon=0.5))
    assert not other.feasible or other.primal != pytest.approx(found.primal, rel=1e-3)


@pytest.mark.parametrize("options", ["", "--scale minmax", "--scale unit"])
@pytest.mark.parametrize("name", OURS)
def test_the_last_line_is_the_verdict_on_the_claimed_gap(tmp_path, name, options, capsys):
    y, X, _ = TRAININGS[name]
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    run_train("-q", *OURS[name].split(), *options.split(), train, path)
    said = float(oracle.trailer(path)["gap"])
    found = randsvm.certify(train, path)
    assert found.claimed_gap == said
    # No more than rounding may be against the claim.
    assert found.verdict == "verified" if found.gap <= said else "verified up to rounding"
    assert found.gap <= 1.01 * said
    # A claim of less than P and D are apart.
    trailer = f"# randsvm gap {oracle.trailer(path)['gap']}\n"
    assert trailer in path.read_text()
    lower = tmp_path / "lower"
    resealed(path, lower, trailer, f"# randsvm gap {said / 2!r}\n")
    assert randsvm.certify(train, lower).verdict == "refuted"
    capsys.readouterr()
    for model, word in (path, "verified"), (lower, "refuted"):
        is_refuted = word == "refuted"
        with pytest.raises(ModelError, match="does not hold") if is_refuted else nullcontext():
            run_predict("certify", train, model)
        numbers, verdict = capsys.readouterr().out.splitlines()
        assert numbers.startswith("P ") and verdict.startswith(word)
    # Only the gap that is required counts.
    run_predict("certify", "--require-gap", 0.5, train, lower)


def resealed(path, other, old, new):
    """Write a model with another line, and its seal."""
    body = path.read_text().replace(old, new).rpartition("# randsvm sha256 ")[0]
    other.write_text(f"{body}# randsvm sha256 {hashlib.sha256(body.encode()).hexdigest()}\n")


def test_a_claim_is_judged_for_its_own_options_and_coefficients_only(tmp_path, capsys):
    y, X = oracle.checkerboard(300)
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, "-c 1 -g 2", path)
    found = certificate_of(train, path, "-c 1")
    assert (found.claimed_gap, found.verdict) == (None, None)
    capsys.readouterr()
    run_predict("certify", train, path, "-c", 1)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        f"proven: the optimum is at most {100 * found.gap:.2g}% below P; the model claims "
        "no gap for these options"
    )
    run_train("-q", "-c", 8, "-g", 2, train, path)
    assert certificate_of(train, path, "-c 8").verdict is not None
    assert certificate_of(train, path, "-c 4").verdict is None
    # D is of the full model, which the file does not have.
    run_train("-q", "-c", 8, "-g", 2, "--reduce", 40, "--overwrite", train, path)
    found = randsvm.certify(train, path)
    assert found.gap > found.claimed_gap and found.verdict == "undecided"


def test_weights_of_rows_of_the_training_are_asked_for(tmp_path, capsys):
    y, X = oracle.checkerboard(200)
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    weights = tmp_path / "w"
    weights.write_text("2\n0.5\n" * 100)
    run_train("-q", "-c", 8, "-g", 2, "--row-weights", weights, train, path)
    with pytest.raises(ModelError, match="does not hold"):
        run_predict("certify", train, path)
    assert f"note: trained with --row-weights {weights}: give it" in capsys.readouterr().err
    run_predict("certify", train, path, "--row-weights", weights, "--require-gap", 0.002)
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize("name", TRAININGS)
def test_a_row_of_weight_w_is_w_equal_rows(tmp_path, name):
    """LIBSVM solves the repeated rows; the sums of their coefficients are those of the weights."""
    y, X, options = TRAININGS[name]
    weights = np.random.default_rng(30).integers(0, 4, len(y))
    y, X = np.asarray(y), oracle.as_float32(X)
    times, path = np.repeat(np.arange(len(y)), weights), tmp_path / "model"
    solved(y[times], X[times], options, path)
    repeated = certificate_of(write_rows(tmp_path / "repeated", y[times], X[times]), path, options)
    write_rows(tmp_path / "costs", y, X, 1, weights)
    (tmp_path / "w").write_text("".join(f"{weight}\n" for weight in weights))
    params = replace(params_of(options), row_weights=str(tmp_path / "w"))
    plain = write_rows(tmp_path / "plain", y, X)
    for found in (
        certificate_of(tmp_path / "costs", path, options),
        randsvm.certify(plain, path, params=params),
    ):
        assert found.feasible
        assert found.unknown_support_vectors == 0
        assert found.rows == (weights > 0).sum()
        assert found.primal == pytest.approx(repeated.primal, rel=1e-9)
        assert found.dual == pytest.approx(repeated.dual, rel=1e-7)
    assert f"--row-weights {tmp_path / 'w'}" in found.problem


@pytest.mark.parametrize("weighted", [False, True])
def test_a_precomputed_kernel_is_judged_by_its_numbers(tmp_path, weighted):
    """Rows of weight 0 keep their columns."""
    y, X = oracle.two_gaussians(80)
    K = oracle.kernel_matrix("rbf", X, X, 0.5)
    i = np.arange(80)
    weights = np.where(i % 5 == 0, 0.0, 1.0 + i % 3) if weighted else np.ones(80)
    train, plain = tmp_path / "train", tmp_path / "plain"
    numbered = np.column_stack([i + 1, K])
    write_rows(train, y, numbered, 0, weights)
    write_rows(plain, y, X, 1, weights)
    words = "-q", "-c", 1, "--gap", 1e-5
    run_train(*words, "-t", "precomputed", train, tmp_path / "m")
    run_train(*words, "-g", 0.5, plain, tmp_path / "n")
    found = certificate_of(train, tmp_path / "m", "-c 1")
    other = certificate_of(plain, tmp_path / "n", "-c 1")
    assert found.feasible
    assert found.primal == pytest.approx(other.primal, rel=1e-4)
    assert found.gap == pytest.approx(float(oracle.trailer(tmp_path / "m")["gap"]), abs=2e-5)
    assert 0 <= found.gap < 1e-4


def test_support_vectors_that_are_no_rows_of_the_file_give_no_bound(tmp_path):
    """Without a class's rows, or with moved rows, the coefficients are those of other rows."""
    y, X = oracle.two_gaussians(200)
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    _, model = solved(y, X, "-c 1 -g 0.5", path)
    fewer = write_rows(tmp_path / "fewer", y[50:], X[50:])
    found = certificate_of(fewer, path, "-c 1")
    rows = np.array(model.get_sv_indices()) - 1
    assert found.unknown_support_vectors == (rows < 50).sum() > 0
    own, _ = solved(y[50:], X[50:], "-c 1 -g 0.5", tmp_path / "own")
    assert found.dual <= -own * (1 + 1e-9)
    moved = certificate_of(write_rows(tmp_path / "moved", y, X + 1e-3), path, "-c 1")
    assert moved.unknown_support_vectors == len(rows)
    swapped = certificate_of(write_rows(tmp_path / "swapped", -y, X), path, "-c 1")
    # No row is left in the class of its coefficient; the rows are those of the other one.
    assert not swapped.feasible
    assert swapped.dual == pytest.approx(0, abs=1e-9)
    assert certificate_of(train, path, "-c 1").feasible


@pytest.mark.parametrize("change", ["a value", "another feature"])
def test_a_row_that_differs_in_one_of_many_features_is_no_support_vector(tmp_path, change):
    y, X = oracle.sparse_rows(40, d=20_000)
    X[:, 0] = 1 + np.arange(40) / 8
    train, path = oracle.write_svmlight(tmp_path / "train", y, X), tmp_path / "model"
    run_train("-q", "-g", 0.01, train, path)
    assert randsvm.certify(train, path).unknown_support_vectors == 0
    if change == "a value":
        X[:, 0] *= 1 + 1e-4
    else:
        X = np.hstack([X, np.full((40, 1), 1e-9)])
    moved = oracle.write_svmlight(tmp_path / "moved", y, X)
    found = randsvm.certify(moved, path)
    assert found.unknown_support_vectors == found.support_vectors > 0


def test_each_row_serves_for_one_support_vector(tmp_path):
    """Two support vectors at C on one row are more than the row's bound allows."""
    y, X = oracle.two_gaussians(100)
    doubled, single = np.tile(y, 2), np.tile(X, (2, 1))
    train, path = write_rows(tmp_path / "train", y, X), tmp_path / "model"
    solved(doubled, single, "-c 1 -g 0.5", path)
    assert certificate_of(write_rows(tmp_path / "both", doubled, single), path, "-c 1").feasible
    found = certificate_of(train, path, "-c 1")
    assert not found.feasible
    assert found.beyond_bounds == pytest.approx(1)
    assert found.unknown_support_vectors == 0


def test_the_result_is_the_same_for_several_files_and_threads(tmp_path):
    y, X = oracle.checkerboard(4000)
    train, path = oracle.write_svmlight(tmp_path / "train", y, X), tmp_path / "model"
    run_train("-q", "-g", 5, train, path)
    oracle.write_svmlight(tmp_path / "part1", y[:1500], X[:1500])
    oracle.write_svmlight(tmp_path / "part2", y[1500:], X[1500:])
    one = randsvm.certify(train, path)
    two = randsvm.certify(str(tmp_path / "part?"), path)
    assert (two.primal, two.dual) == pytest.approx((one.primal, one.dual), rel=1e-12)
    assert two.feasible


def test_the_command_prints_the_certificate_and_requires_a_gap(tmp_path, capsys):
    y, X = oracle.checkerboard(200)
    train, path = oracle.write_svmlight(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, "-c 1 -g 2", path)
    run_predict("certify", train, path, "-c", 1, "--require-gap", 0.01)
    out, err = capsys.readouterr()
    found = randsvm.certify(train, path)
    assert out.startswith(f"P {found.primal:.6g}  D {found.dual:.6g}  gap ")
    assert "P and D with -c 1 over 200 rows" in err
    run_predict("certify", train, path, "-c", 1, "-p", 0.5, "-n", 0.2)
    said = capsys.readouterr().err
    for flag in "-p", "-n":
        assert f"note: {flag} has no effect with this model\n" in said
    assert "-c has no effect" not in said
    run_predict("certify", train, path, "-c", 1, "--report", "json", "-q")
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert (record["event"], record["feasible"], err) == ("certified", True, "")
    assert record["gap"] == found.gap
    with pytest.raises(GapError, match=r"gap 0\.\d+ is above 0.01") as caught:
        run_predict("certify", train, path, "-c", 0.2, "--require-gap", 0.01)
    assert caught.value.exit_code == 75


def test_a_kernel_without_certificate_meets_no_gap(tmp_path):
    y, X = oracle.two_gaussians(100)
    train, path = oracle.write_svmlight(tmp_path / "train", y, X), tmp_path / "model"
    solved(y, X, "-t 3 -g 0.1 -c 1", path)
    found = certificate_of(train, path, "-c 1")
    assert np.isnan(found.gap)
    with pytest.raises(GapError, match=r"the gap is unknown, expected at most 0\.9"):
        run_predict("certify", train, path, "--require-gap", 0.9)


# Numbers of wide_case: all tasks and kernels, duplicates, weights, large and small C and gamma.
WIDE = (1, 2, 5, 7, 8, 12, 17, 18, 20, 21, 24, 28, 36, 38, 43, 44, 51, 54)


@pytest.mark.parametrize("number", WIDE)
def test_an_exact_judge_confirms_p_and_d(tmp_path, number):
    case = random_problems.wide_case(1, number)
    data, model = case.save(tmp_path / "data"), tmp_path / "model"
    run_train(*case.command(data, model))
    numbers = random_problems.exact_numbers(case)
    weights = [(label, float(weight)) for label, weight in numbers["class_weights"].items()]
    C, epsilon, nu = (float(numbers[name]) for name in ("C", "epsilon", "nu"))
    params = CertifyParams(C=C, epsilon=epsilon, nu=nu, weights=tuple(weights))
    found = randsvm.certify(data, model, params=params)
    assert found.feasible
    others = random_problems.better_machines
    verdict = exact_judge.judge(data, model, found._asdict(), case.task, others, **numbers)
    assert not verdict.wrong
    assert verdict.doubt < 1e-3


@pytest.mark.parametrize("options", ["-s svr -p 0.1", "-s nu-svr -n 0.5"])
@pytest.mark.parametrize("seed", range(3))
def test_equal_rows_with_other_targets_and_weights_are_no_obstacle(tmp_path, seed, options):
    """Only the sum of the coefficients of equal rows matters: D is at least that of the training,
    whatever row each support vector came from."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(1, 6, (300, 1)).astype(float), rng.normal(size=300).round(4)
    train, path = tmp_path / "train", tmp_path / "model"
    write_rows(train, y, X, 1, 10 ** rng.uniform(-1.5, 1.5, 300))
    words = *options.split(), "-g", 1e9, "-c", 0.01
    run_train("-q", *words, "--gap", 0.01, "--sample-size", 25, train, path)
    found = certificate_of(train, path, f"{options} -c 0.01".replace("-s svr ", ""))
    reported = oracle.trailer(path)
    assert found.feasible
    assert found.dual >= float(reported["dual"]) * (1 - 1e-9)
    assert found.gap <= float(reported["gap"]) + 1e-9


def test_rounding_above_the_objectives_is_said_and_not_hidden(tmp_path, capsys):
    """A constant column of 100,000 under a polynomial kernel: sums of products of 1e20.

    Two equal rows of both classes have opposite coefficients, so that w = 0.
    """
    train, path = tmp_path / "train", tmp_path / "model"
    train.write_text("+1 1:0.1 2:100000\n-1 1:0.1 2:100000\n-1 1:0.3 2:100000\n")
    path.write_text(
        "svm_type c_svc\nkernel_type polynomial\ndegree 2\ngamma 1\ncoef0 1\nnr_class 2\n"
        "total_sv 2\nrho 0\nlabel 1 -1\nnr_sv 1 1\nSV\n1 1:0.1 2:100000\n-1 1:0.1 2:100000\n"
    )
    run_predict("certify", train, path, "-c", 1)
    assert "is larger than the objectives: scale the features" in capsys.readouterr().err
    found = certificate_of(train, path, "-c 1")
    assert found.gap > 1
    assert (found.primal, found.dual) == (3, 2)
    with pytest.raises(GapError):
        run_predict("certify", train, path, "-c", 1, "--require-gap", 0.5)


def written(path, kernel, vectors):
    """Write a model of two classes with b = 0. vectors : text of each support vector."""
    half = len(vectors) // 2
    path.write_text(
        f"svm_type c_svc\nkernel_type {kernel}\nnr_class 2\ntotal_sv {2 * half}\nrho 0\n"
        f"label 1 -1\nnr_sv {half} {half}\nSV\n" + "\n".join(vectors) + "\n"
    )


def test_the_rounding_of_many_other_features_counts(tmp_path):
    """The third row has 50,000 features that no support vector has. P is computed with decimals."""
    train, path, others = tmp_path / "train", tmp_path / "model", 50_000
    value = Decimal("0.0021")
    words = " ".join(f"{j + 2}:{value}" for j in range(others))
    train.write_text(f"1 1:1\n-1 1:-1\n1 1:1 {words}\n")
    written(path, "rbf\ngamma 1", ["1 1:1", "-1 1:-1"])
    found = randsvm.certify(train, path)
    f = 1 - Decimal(-4).exp()
    primal = f + 2 * (1 - f) + 1 - f * (-others * value**2).exp()
    assert abs(primal - Decimal(found.primal)) <= found.primal_error


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_without_weights_has_a_bound(tmp_path, seed):
    """w = 0 but for rounding, after which |w|^2 may be below 0."""
    train, path = tmp_path / "train", tmp_path / "model"
    rng = np.random.default_rng(seed)
    for _ in range(20):
        a, b, C = rng.integers(1, 1000, 3).tolist()
        rows = [f"1:{v / 1000} 2:{3 * v / 1000}" for v in (a, b, a + b, 0)]
        signs = (1, 1, -1, -1)
        train.write_text("".join(f"{y} {row}\n" for y, row in zip(signs, rows, strict=True)))
        written(path, "linear", [f"{y * C / 1000} {x}" for y, x in zip(signs, rows, strict=True)])
        found = randsvm.certify(train, path, params=CertifyParams(C=C / 1000))
        assert 0 <= found.gap < 1e-9


def test_rows_of_novelty_detection_need_no_labels(tmp_path):
    y, X = oracle.two_gaussians(200)
    named, unnamed, model = (tmp_path / name for name in ("named", "unnamed", "m"))
    write_rows(named, y, X)
    unnamed.write_text(oracle.svmlight_text(["?"] * len(y), X))
    run_train("-q", "-s", "one-class", unnamed, model)
    found = [randsvm.certify(path, model, params=CertifyParams()) for path in (named, unnamed)]
    assert found[0].primal == found[1].primal
    assert found[1].gap <= 1e-3
