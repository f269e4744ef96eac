"""SVC, NuSVC, SVR, NuSVR, OneClassSVM and LinearSVC with the parameters, checks and names of
scikit-learn's.

Kernel machines are certified: `gap_` bounds the distance of the objective from the optimum. Needs
scikit-learn 1.6 (the extra `sklearn`).
"""

from randsvm.estimators.classifiers import SVC, NuSVC
from randsvm.estimators.linear_machines import LinearSVC
from randsvm.estimators.novelty import OneClassSVM
from randsvm.estimators.regressors import SVR, NuSVR

__all__ = ["SVC", "SVR", "LinearSVC", "NuSVC", "NuSVR", "OneClassSVM"]
