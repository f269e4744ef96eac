"""Estimators for scikit-learn: SVC, NuSVC, SVR, NuSVR, OneClassSVM and LinearSVC.

Names, parameters and checks are those of scikit-learn's estimators. All except LinearSVC are
certified: `gap_` bounds the relative distance of the objective from the optimum. The estimators
need scikit-learn 1.6 (the extra `sklearn`).
"""

from randsvm.estimators.classifiers import SVC, NuSVC
from randsvm.estimators.linear_machines import LinearSVC
from randsvm.estimators.novelty import OneClassSVM
from randsvm.estimators.regressors import SVR, NuSVR

__all__ = ["SVC", "SVR", "LinearSVC", "NuSVC", "NuSVR", "OneClassSVM"]
