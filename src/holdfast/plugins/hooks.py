"""Telling plugins of what happens, and asking those that may change it.

Handlers are called by priority, those of equal priority in the order of precedence. One that fails or takes
too long changes nothing and is counted; after a few times in a row it is left out.
"""

from __future__ import annotations

import copy
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.agents.plugin_hooks import AfterToolCall, BeforeToolCall, HookEvent
from holdfast.plugins.api import Handler
from holdfast.plugins.host import Plugin, PluginHost
from holdfast.plugins.running import Part, PluginFailed

log = logging.getLogger(__name__)
MOST_WAITING: Final = 1_000
E = TypeVar("E", bound=HookEvent)


@dataclass(frozen=True, slots=True)
class _Listener:
    plugin: Plugin
    part: Part
    handler: Handler


class PluginHooks:
    """The `HookBus` of a home. What is only told waits in one bounded line, so that handlers hear of events
    in their order; where that line is full, events are dropped and counted."""

    def __init__(self, host: PluginHost, hook_ms: Callable[[], int]) -> None:
        self._host = host
        self._hook_ms = hook_ms
        self._listeners: dict[type[HookEvent], list[_Listener]] = {}
        self._waiting: queue.Queue[HookEvent] = queue.Queue(MOST_WAITING)
        self._teller: threading.Thread | None = None
        self._lock = threading.Lock()
        self.dropped = 0

    def listen(self) -> None:
        """Take up the handlers of all plugins that are in."""
        found = [
            (-one.priority, place, plugin, one)
            for place, plugin in enumerate(self._host.plugins)
            if plugin.is_in
            for one in plugin.registered.hooks
        ]
        for _, _, plugin, one in sorted(found, key=lambda each: each[:2]):
            part = self._host.part(plugin, f"hook {one.event.hook}")
            part.tells = False
            self._listeners.setdefault(one.event, []).append(_Listener(plugin, part, one.handler))

    def wants(self, event: type[HookEvent]) -> bool:
        return event in self._listeners

    async def ask(self, event: E) -> E:
        for one in self._who_hear(event):
            current = event
            try:
                event = await one.part.call(
                    one.handler,
                    _handed_out(current),
                    seconds=self._hook_ms() / 1000,
                    check=partial(_changed, current, one.plugin.id),
                )
            except PluginFailed:
                continue
            if getattr(event, "blocked", None) is not None:
                break
        return event

    def tell(self, event: HookEvent) -> None:
        if type(event) not in self._listeners:
            return
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self.dropped += 1
            log.warning("plugins hear of nothing more for now: %d events were dropped", self.dropped)
            return
        with self._lock:
            if self._teller is None:
                self._teller = threading.Thread(target=self._tell_on, name="plugin-hooks", daemon=True)
                self._teller.start()

    def drain(self, seconds: float) -> None:
        """Wait until all that was told has been heard, or for so long."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, seconds)

    def _tell_on(self) -> None:
        while True:
            event = self._waiting.get()
            try:
                self._tell_all(event)
            except Exception:  # the line must go on, whatever one event met
                log.exception("telling plugins of %s met a fault", event.hook)
            finally:
                self._waiting.task_done()

    def _tell_all(self, event: HookEvent) -> None:
        for one in self._who_hear(event):
            try:
                one.part.call_here(
                    one.handler,
                    _handed_out(event),
                    seconds=self._hook_ms() / 1000,
                    check=partial(_changed, event, one.plugin.id),
                )
            except PluginFailed:
                continue

    def _who_hear(self, event: HookEvent) -> list[_Listener]:
        return [
            one
            for one in self._listeners.get(type(event), ())
            if self._host.usable(one.plugin)
            and not one.part.is_out
            and one.plugin.reader.may_read(event.audience)
        ]


def _handed_out(event: E) -> E:
    """The event with nothing in it that a handler could change under our hands."""
    if isinstance(event, BeforeToolCall | AfterToolCall):
        return replace(event, params=copy.deepcopy(dict(event.params)))
    return event


def _changed(event: E, plugin_id: str, change: Any) -> E:
    if change is None:
        return event
    if event.change is None or not isinstance(change, event.change):
        wanted = "nothing" if event.change is None else f"{event.change.__name__} or nothing"
        raise TypeError(f"expected {wanted}, found {type(change).__name__}")
    return event.changed(change, plugin_id)
