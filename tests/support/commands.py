"""Run the commands within this process; errors are raised as exceptions."""

from randsvm.cli import predict as predicting
from randsvm.cli import train as training


def run_train(*words: object) -> None:
    """Run `randsvm-train WORDS`."""
    training.train.main([str(word) for word in words], standalone_mode=False)


def run_predict(*words: object) -> None:
    """Run `randsvm-predict WORDS`."""
    predicting.predict.main([str(word) for word in words], standalone_mode=False)
