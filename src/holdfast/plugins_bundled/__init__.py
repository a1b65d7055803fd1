"""Plugins that come with Holdfast: chat services, each on its ecosystem's library, which is an extra."""

from __future__ import annotations

from holdfast.channels import SendFailed


def missing(extra: str, error: ImportError) -> SendFailed:
    """What to install where a service's library is not there."""
    install = f"pip install 'holdfast[{extra}]'"
    return SendFailed(f"{extra} needs a library that is not installed ({error.name}): {install}")
