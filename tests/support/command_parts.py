"""Parts of the commands that are tested one by one."""

from randsvm.cli import commands, lines, report
from randsvm.cli.log import COMMAND_ENDS, Failed, as_json
from randsvm.cli.options import KindType
from randsvm.cli.report import Bar, Report, can_draw
