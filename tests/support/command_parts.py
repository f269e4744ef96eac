"""Parts of the commands that are tested one by one."""

from randsvm.cli import lines, options, report
from randsvm.cli.options import KindType
from randsvm.cli.report import (
    COMMAND_ENDS,
    Bar,
    Failed,
    Report,
    as_json,
    can_draw,
    read_trials,
)
