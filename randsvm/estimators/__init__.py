"""Estimators for scikit-learn: SVC, NuSVC, SVR, NuSVR, OneClassSVM, LinearSVC and LinearSVR.

Names, parameters and checks are those of scikit-learn's estimators. `gap_` bounds the relative
distance of the objective from the optimum, except for two losses of LinearSVC. The estimators need
scikit-learn 1.6 (the extra `sklearn`).
"""

from randsvm.estimators.kernel_machines import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from randsvm.estimators.linear_machines import LinearSVC, LinearSVR

__all__ = ["SVC", "SVR", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM"]
