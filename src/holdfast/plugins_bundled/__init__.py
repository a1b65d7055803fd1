"""Plugins that come with Holdfast, each loaded where the config asks for it: a program that searches, and
chat services on their ecosystems' libraries, which are extras."""
