"""What an adoption did: counts of everything, and a note for whatever a person should know of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Area = Literal["config", "workspace", "sessions", "credentials", "skills", "cron", "approvals", "home"]
Outcome = Literal["added", "grown", "unchanged", "differs", "refused", "left out", "damaged", "failed"]

MAX_NOTES: Final = 500


@dataclass(frozen=True, slots=True)
class Note:
    """One thing worth saying: what it is about, what became of it, and why."""

    area: Area
    outcome: Outcome
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.area}: {self.what}: {self.outcome}{f' ({self.detail})' if self.detail else ''}"


@dataclass(slots=True)
class Report:
    """Filled while an adoption runs. Names of files and keys are in it, what they hold is not."""

    source: str
    dry_run: bool
    counts: Counter[tuple[Area, Outcome]] = field(default_factory=Counter)
    notes: list[Note] = field(default_factory=list)
    notes_left_off: int = 0
    entries_added: int = 0
    progress: Callable[[str], None] | None = None

    def count(self, area: Area, outcome: Outcome) -> None:
        self.counts[area, outcome] += 1

    def note(self, area: Area, outcome: Outcome, what: str, detail: str = "") -> None:
        """Count it, and keep the note while there is room."""
        self.count(area, outcome)
        self.remark(area, outcome, what, detail)

    def begin(self, what: str) -> None:
        """Tell whoever waits what is being looked at now."""
        if self.progress is not None:
            self.progress(what)

    def remark(self, area: Area, outcome: Outcome, what: str, detail: str = "") -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(area, outcome, what, detail))
        else:
            self.notes_left_off += 1

    @property
    def changed(self) -> bool:
        """Whether anything was taken over, or would be."""
        return any(outcome in ("added", "grown") for _, outcome in self.counts)

    @property
    def failed(self) -> bool:
        return any(outcome == "failed" for _, outcome in self.counts)

    def as_json(self) -> dict[str, Any]:
        counts: dict[str, dict[str, int]] = {}
        for (area, outcome), number in sorted(self.counts.items()):
            counts.setdefault(area, {})[outcome] = number
        return {
            "source": self.source,
            "dryRun": self.dry_run,
            "changed": self.changed,
            "entriesAdded": self.entries_added,
            "counts": counts,
            "notes": [
                {"area": n.area, "outcome": n.outcome, "what": n.what, "detail": n.detail} for n in self.notes
            ],
            "notesLeftOff": self.notes_left_off,
        }
