"""Transcripts into the log and out of it; what came in goes out byte for byte."""

from holdfast.log.transfer.incoming import Arrival, Imported, import_lines, import_transcript
from holdfast.log.transfer.outgoing import export_markdown, export_transcript, is_imported, session_lines

__all__ = [
    "Arrival",
    "Imported",
    "export_markdown",
    "export_transcript",
    "import_lines",
    "import_transcript",
    "is_imported",
    "session_lines",
]
