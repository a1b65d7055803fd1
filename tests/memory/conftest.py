"""Fixtures of the memory room; the types live beside them so that tests can name them."""

from conftest_memory import desk, new_desk, static

__all__ = ["desk", "new_desk", "static"]
