"""The account of who has computed which micro-batches."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

#: Numbers of ranks that are kept for the next report.
MOST = 4096


class DealtSteps:
    """Steps in a row whose micro-batches the same ranks of one generation have computed, one entry for them together.
    All ranks keep it, and it is part of the state, so that whichever reports has it."""

    def __init__(self) -> None:
        self.entries: List[Dict[str, Any]] = []

    def add(self, step: int, generation: int, ranks: List[int], again: Optional[int]) -> None:
        """Adds a step. again is how many of its micro-batches had been dealt to a rank that was lost; None = that is
        not known."""
        last = self.entries[-1] if self.entries else {}
        alike = last.get("ranks") == ranks and last.get("generation") == generation
        if alike and last["last"] == step - 1 and last.get("again") == again and not again:
            last["last"] = step
            return
        entry: Dict[str, Any] = {"first": step, "last": step, "generation": generation, "ranks": ranks}
        if again is not None:
            entry["again"] = again
        self.entries.append(entry)
        while len(self.entries) > 1 and sum(len(e["ranks"]) for e in self.entries) > MOST:
            del self.entries[0]

    def take(self) -> List[Dict[str, Any]]:
        """What was added since the last call."""
        taken, self.entries = self.entries, []
        return taken
