"""SVC, NuSVC, SVR, NuSVR, OneClassSVM and LinearSVC as scikit-learn has them: its parameters,
checks and names.

What a kernel machine has fitted is certified: `gap_` bounds how far its objective is from the exact
answer's; of LinearSVC it is nan. `fit` takes no `sample_weight`: bounds of coefficients are of
classes, in LIBSVM as in the scans. Needs scikit-learn 1.6 (the extra `sklearn`).
"""

from randsvm.estimators.kernel_machines import SVC, SVR, OneClassSVM
from randsvm.estimators.linear_machines import LinearSVC
from randsvm.estimators.nu_machines import NuSVC, NuSVR

__all__ = ["SVC", "SVR", "LinearSVC", "NuSVC", "NuSVR", "OneClassSVM"]
