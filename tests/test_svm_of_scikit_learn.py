"""scikit-learn's own sklearn/svm/tests/test_svm.py with our estimators in place of its own.

What is expected to fail is listed with its reason, and must fail; all else must pass. LinearSVR is
scikit-learn's. tests/test_svm_within_the_gap.py has some of the same cases in other words, where
only digits beyond the gap differ.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import sklearn
from sklearn import svm

import randsvm

NAMES = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR")
OURS = {name: getattr(randsvm, name) for name in NAMES}
PATH = Path(sklearn.__file__).parent / "svm" / "tests" / "test_svm.py"

LISTED = PATH.exists() and sklearn.__version__.startswith("1.9.")
# The dependencies for developers pin this version where Python is new enough for it.
assert LISTED or sys.version_info < (3, 11) or "CI" not in os.environ, sklearn.__version__
if not LISTED:
    pytest.skip("the lists are for the tests of scikit-learn 1.9", allow_module_level=True)

# Reason: names of tests, without the parameters where it holds for all of them.
FAILING = {
    "the intercept is not penalised": ["test_dense_liblinear_intercept_handling"],
    "two machines within the gap agree in 3 digits and not in 6": [
        "test_precomputed",
        "test_svc_clone_with_callable_kernel",
    ],
    "sparse rows are predicted by machines that were fitted to dense ones": ["test_bad_input"],
    "sparse kernel values are taken": ["test_sparse_precomputed"],
    "fit refuses a wrong shape of kernel values, where scikit-learn's predict does": [
        "test_svr_errors"
    ],
    "values beyond float32 are refused before the training, in other words": [
        "test_svc_nonfinite_params"
    ],
    "max_iter counts rounds and Newton steps, which end a training in other words": [
        "test_libsvm_convergence_warnings",
        "test_linear_svm_convergence_warnings",
    ],
    "predictions are those of model_, whatever is written to private attributes": [
        "test_tweak_params",
        "test_svc_raises_error_internal_representation",
    ],
    "coef_ cannot be set: predictions are those of model_": ["test_liblinear_set_coef"],
    "two of the classes have no margin at nu = 0.5, which LIBSVM does not notice": [
        "test_n_iter_libsvm[4-NuSVC-ndarray]"
    ],
    "probability is not deprecated here": ["test_probability_raises_futurewarning"],
    "probA_ and probB_, which scikit-learn deprecates, are left out": [
        "test_svc_nusvc_probA_probB_deprecated"
    ],
}


def loaded():
    """The module of tests with our estimators."""
    spec = importlib.util.spec_from_file_location("sklearn_test_svm", PATH)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.multiple(svm, **OURS):
        spec.loader.exec_module(module)
    vars(module)["svm"] = SimpleNamespace(**{**vars(svm), **OURS})
    return module


TESTS = {name: value for name, value in vars(loaded()).items() if name.startswith("test_")}
globals().update(TESTS)

# As scikit-learn runs them.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(autouse=True)
def expected(request):
    names = {request.node.name, request.node.originalname}
    for reason, tests in FAILING.items():
        if names & set(tests):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


def test_every_name_of_the_lists_is_a_test():
    listed = [name for tests in FAILING.values() for name in tests]
    assert len(listed) == len(set(listed))
    assert {name.partition("[")[0] for name in listed} <= TESTS.keys()
