"""What a sweep came to: in the protocol's words, and as what is still owed."""

from __future__ import annotations

from holdfast.context.engine import CompactOutcome, CompactResult
from holdfast.context.lossless.sweep import Report


def result_of(report: Report) -> CompactResult:
    """The outcome of a sweep in the protocol's words."""
    if report.made:
        outcome, reason = CompactOutcome.COMPACTED, report.fault or report.made[-1].fault or ""
    elif report.fault is not None:
        outcome = CompactOutcome.FAILED
        reason = f"the summary could not be had ({report.fault}); history is kept as it was"
    elif report.stale:
        outcome, reason = CompactOutcome.NO_PROGRESS, "the session changed meanwhile; nothing was done"
    elif report.stuck:
        outcome, reason = CompactOutcome.NO_PROGRESS, "a summary would be no shorter than what it replaces"
    else:
        outcome, reason = CompactOutcome.NOTHING_TO_DO, "no history older than what is kept"
    return CompactResult(
        outcome=outcome,
        reason=reason,
        tokens_before=report.before,
        tokens_after=report.after,
        summary_id=report.made[-1].id if report.made else None,
        extractive=report.extracts,
    )


def left_of(report: Report, *, has_model: bool) -> str | None:
    """The reason for which a session still owes something after a sweep, if it does."""
    if report.more or report.stale:
        return "backlog"
    if report.fault is not None:
        return "threshold"
    return "repair" if (report.extracts or report.unmended) and has_model else None
