"""Models: training results that predict, their text formats, prediction of files, metrics."""
