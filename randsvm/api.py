"""What a command or a Python user calls: paths and parameters in, a model file out."""

from randsvm.startup import import_sparse, undisturbed

with undisturbed():
    import_sparse()
    from randsvm.jobs import Job
    from randsvm.linear import train_sgd
    from randsvm.models.prediction import Wanted, predict
    from randsvm.rounds import train_osuna, train_randsvm

__all__ = ["Job", "Wanted", "predict", "train_osuna", "train_randsvm", "train_sgd"]
