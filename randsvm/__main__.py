"""Name the programs of the package, for `python -m randsvm`."""

import sys

PROGRAMS = """\
randsvm has four programs. Each has --help, and is also a module:
  randsvm-train    python -m randsvm.cli.train    train a model
  randsvm-predict  python -m randsvm.cli.predict  predict; certify, explain or export a model
  randsvm-check    python -m randsvm.check        verify the certificate of a model
  randsvm-plot     python -m randsvm.cli.plot     draw training runs, searches and models
"""

if __name__ == "__main__":
    sys.stderr.write(PROGRAMS)
    sys.exit(2)
