"""What a command or a Python user calls: paths and parameters in, a model file out."""

import randsvm.startup  # noqa: F401 - before anything imports scipy  # isort: skip
from randsvm.jobs import Job
from randsvm.linear import train_sgd
from randsvm.prediction import Wanted, predict
from randsvm.rounds import train_osuna, train_randsvm

__all__ = ["Job", "Wanted", "predict", "train_osuna", "train_randsvm", "train_sgd"]
