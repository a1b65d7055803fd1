"""Talking to an agent from a terminal: one turn, or a conversation; in process or through a gateway."""
