"""Backups of a home: taken while a gateway runs, as large as what changed, verified, and restored."""

from holdfast.backup.repository import Manifest, Repository
from holdfast.backup.restoring import Restored, restore
from holdfast.backup.taking import Taken, take

__all__ = ["Manifest", "Repository", "Restored", "Taken", "restore", "take"]
