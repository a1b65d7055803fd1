"""Coding agents: hooks that log their sessions and give them the continuity block.

`hook` is run by the coding agent itself, at every event, and needs nothing but Python.
"""
