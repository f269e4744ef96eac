"""From text to D: parsed rows, chunks, views, random rows, scaling. Knows no kernel and no task."""
