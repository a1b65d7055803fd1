"""How an index cuts text into terms, and a stamp by which it knows when that has changed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

Analyse = Callable[[str], list[str]]
_PROBES = (
    "The Café's parse_json v1.2.3 für die Straße ran 10 times: 東京 /usr/lib running",
    "Die Kassenwartin hat das Zimmer, das reserviert war, umgebucht und die Operation bestätigt.",
    "Die Schiffsreise und die Wärmepumpe stehen in der Steuererklärung, auch die Förderzusage.",
    "She has reserved the rooms that were cancelled before the bookings.",
)


def stamp_of(analyse: Analyse) -> str:
    """The same for the same way of cutting, and hardly for another."""
    terms = [term for probe in _PROBES for term in analyse(probe)]
    return blake2b(" ".join(terms).encode(), digest_size=8).hexdigest()
