"""The commands: options, output on a terminal, signals and exit codes."""
