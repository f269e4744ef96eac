"""Options of all commands: frozen dataclasses that check their values and define the defaults."""
