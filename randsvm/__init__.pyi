"""Where the names come from that `__getattr__` imports when somebody asks."""

from randsvm.api import Arrays as Arrays
from randsvm.api import certify as certify
from randsvm.api import explain as explain
from randsvm.api import export as export
from randsvm.api import load as load
from randsvm.api import predict as predict
from randsvm.api import train as train
from randsvm.api import train_osuna as train_osuna
from randsvm.api import train_randsvm as train_randsvm
from randsvm.api import train_sgd as train_sgd
from randsvm.estimators import SVC as SVC
from randsvm.estimators import SVR as SVR
from randsvm.estimators import LinearSVC as LinearSVC
from randsvm.estimators import LinearSVR as LinearSVR
from randsvm.estimators import NuSVC as NuSVC
from randsvm.estimators import NuSVR as NuSVR
from randsvm.estimators import OneClassSVM as OneClassSVM

__version__: str
