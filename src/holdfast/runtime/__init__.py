"""The composition root: builds the rooms from the config and hands each what it needs of the others."""

from holdfast.runtime.hold import Holdfast
from holdfast.runtime.opening import configured_url, open, open_home  # noqa: A004

__all__ = ["Holdfast", "configured_url", "open", "open_home"]
