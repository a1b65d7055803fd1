"""Channels: surfaces where people see messages, what comes in from them, and what goes out to them.

channels = Channels(store, threads, config, runs=lambda: runs, children=lambda: spawner, context=lambda: room)
channels.register(runner)
received = await channels.receive(Inbound(surface=Surface("slack", "dm", "U7"), message_id="1", ...))
"""

from holdfast.channels.connecting import ChannelContext
from holdfast.channels.inbound import Changed, Inbound, Pressed
from holdfast.channels.records import Received
from holdfast.channels.room import Channels, Office
from holdfast.channels.surface import Surface
from holdfast.channels.transport import Abilities, BaseChannel, Channel, File, Message, Said, SendFailed

__all__ = [
    "Abilities",
    "BaseChannel",
    "Changed",
    "Channel",
    "ChannelContext",
    "Channels",
    "File",
    "Inbound",
    "Message",
    "Office",
    "Pressed",
    "Received",
    "Said",
    "SendFailed",
    "Surface",
]
