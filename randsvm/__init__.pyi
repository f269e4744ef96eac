"""Where the names come from that `__getattr__` imports when somebody asks."""

from randsvm.api import train as train
from randsvm.data.in_memory import Arrays as Arrays
from randsvm.estimators import SVC as SVC
from randsvm.estimators import SVR as SVR
from randsvm.estimators import LinearSVC as LinearSVC
from randsvm.estimators import LinearSVR as LinearSVR
from randsvm.estimators import NuSVC as NuSVC
from randsvm.estimators import NuSVR as NuSVR
from randsvm.estimators import OneClassSVM as OneClassSVM
from randsvm.models.export import export as export
from randsvm.models.fitted import load as load
from randsvm.models.prediction import predict as predict
from randsvm.models.shapley import explain as explain
from randsvm.training.certification import certify as certify

__version__: str
