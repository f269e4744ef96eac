"""What a command or a Python user calls: paths and parameters in, a model file out."""

from randsvm.startup import import_sparse, undisturbed

with undisturbed():
    import_sparse()
    from randsvm.models.prediction import predict
    from randsvm.parameters.prediction import PredictParams
    from randsvm.training.kernel_svm import train_osuna, train_randsvm
    from randsvm.training.linear_svm import train_sgd
    from randsvm.training.run import Job

__all__ = ["Job", "PredictParams", "predict", "train_osuna", "train_randsvm", "train_sgd"]
