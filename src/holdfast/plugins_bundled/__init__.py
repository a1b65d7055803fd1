"""Plugins that come with Holdfast, each loaded where the config asks for it: a program that searches, and
chat services on their ecosystems' libraries, which are extras."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.channels import SendFailed


def missing(extra: str, error: ImportError) -> SendFailed:
    """What to install where a service's library is not there."""
    from holdfast.channels import SendFailed

    install = f"pip install 'holdfast[{extra}]'"
    return SendFailed(f"{extra} needs a library that is not installed ({error.name}): {install}")
