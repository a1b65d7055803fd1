"""What an agent is told of its filling window, once for each band that it enters."""

from __future__ import annotations

from holdfast.config.autonomy import Continuation
from holdfast.context import Pressure


def bands(threshold: float, early: float) -> tuple[tuple[float, int], ...]:
    """The shares of the room at which a band begins, with its name in percent; lowest first."""
    found = [threshold * early] if early > 0 else []
    found.append(threshold)
    if threshold < 0.9:
        found.append(0.9)
    if max(threshold, 0.9) < 0.95:
        found.append(0.95)
    return tuple((share, round(share * 100)) for share in found)


def band_of(pressure: Pressure | None, settings: Continuation) -> int | None:
    """The highest band that the window has crossed; None below all of them, or where it is not known."""
    threshold = settings.context_pressure_threshold
    if threshold is None or pressure is None or pressure.window <= 0 or pressure.used <= 0:
        return None
    crossed = [
        band for share, band in bands(threshold, settings.early_warning_band) if pressure.share >= share
    ]
    return max(crossed, default=None)


def news(pressure: Pressure | None, last: int | None, settings: Continuation) -> int | None:
    """The band that the agent is to be told of; None if it knows."""
    band = band_of(pressure, settings)
    return None if band == last else band


def text(band: int, pressure: Pressure) -> str:
    head = f"[system:context-pressure] {pressure.share:.0%} of the context is in use ({band}% band)."
    if band >= 95:
        return (
            f"{head} COMPACTION IMMINENT: hand forward now what your successor needs (continue_delegate with "
            "mode post-compaction, or notes in memory), then call request_compaction."
        )
    if band >= 90:
        return (
            f"{head} First stage a post-compaction delegate with what your successor needs, "
            "then call request_compaction."
        )
    return (
        f"{head} Consider staging what must outlast a compaction: notes in memory, "
        "or a post-compaction delegate."
    )


def after_compaction(released: int, kept: int) -> str:
    """Told once after every compaction."""
    told = "[system:post-compaction] Your history was just compacted; what came before is a summary."
    if released:
        told += f" {released} staged delegate{'s' if released > 1 else ''} now run and will report to you."
    if kept:
        told += f" {kept} more stay staged for the next compaction: the cap for one turn was reached."
    return told
