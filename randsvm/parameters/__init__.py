"""Options of the user: frozen dataclasses that check their values and state all defaults."""
