"""Adopting an OpenClaw home: its config, workspaces, sessions and credentials. It is only read."""

from holdfast.adopt.home import adopt_openclaw_home
from holdfast.adopt.report import Note, Report

__all__ = ["Note", "Report", "adopt_openclaw_home"]
