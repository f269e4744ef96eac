"""Progress bars on a terminal."""

from __future__ import annotations

from typing import Any

from randsvm.events import Progress

# Stage of work -> what its bar counts in.
UNITS: dict[str, dict[str, Any]] = {
    "B": {"unit": "B", "unit_scale": True},
    "row": {"unit": " rows", "unit_scale": True},
    "fit": {"unit": " fits"},
}


class Bar:
    """The bar of the stage of work that is under way."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.stage = ""

    def draw(self, event: Progress) -> None:
        from tqdm import tqdm

        if event.stage != self.stage:
            self.close()
            layout = "{desc}: {elapsed}" if event.unit == "beat" else None
            self.bar = tqdm(
                desc=event.stage,
                total=event.total,
                leave=False,
                bar_format=layout,
                dynamic_ncols=True,
                **UNITS.get(event.unit, {}),
            )
            self.stage = event.stage
        self.bar.update(event.done - self.bar.n)

    def close(self) -> None:
        """Take the bar away, so that a line can be printed."""
        if self.bar is not None:
            self.bar.close()
            self.bar, self.stage = None, ""
