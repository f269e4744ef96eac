"""The user's options: frozen dataclasses checked when made; every default lives here."""
