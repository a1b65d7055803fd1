"""Plugins that come with Holdfast, each loaded where the config asks for it."""
