"""Holdfast: a context runtime for persistent AI agents."""

__version__ = "0.1.0"
