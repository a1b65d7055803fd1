"""Taking over an OpenClaw config: what we know is kept, what differs is renamed, the rest named."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from holdfast.config.root import Config, expand_shortcuts
from holdfast.config.section import Loc, dotted

_RENAMED = (
    ("agent", "agents.defaults"),
    ("routing.bindings", "bindings"),
    ("session.idleMinutes", "session.reset.idleMinutes"),
    ("session.maintenance.pruneAfter", "session.retention.archiveAfterDays"),
    ("session.maintenance.maxEntries", "session.retention.maxSessions"),
    ("agents.defaults.memorySearch.query.hybrid.vectorWeight", "memory.search.vectorWeight"),
    ("agents.defaults.memorySearch.query.hybrid.textWeight", "memory.search.textWeight"),
    ("agents.defaults.memorySearch.query.maxResults", "memory.search.limits.maxResults"),
    ("agents.defaults.memorySearch.query.minScore", "memory.search.limits.minScore"),
    ("agents.defaults.memorySearch.chunking", "memory.search.chunking"),
    ("agents.defaults.memorySearch.provider", "memory.search.provider"),
    ("agents.defaults.memorySearch.model", "memory.search.model"),
    ("agents.defaults.memorySearch.extraPaths", "memory.search.extraPaths"),
    ("agents.defaults.memorySearch.sources", "memory.search.sources"),
    ("memory.search.query.maxResults", "memory.search.limits.maxResults"),
    ("memory.search.query.minScore", "memory.search.limits.minScore"),
    ("memory.search.remote.baseUrl", "memory.search.embedding.openai.baseUrl"),
    ("memory.search.remote.apiKey", "memory.search.embedding.openai.apiKey"),
    ("agents.defaults.memorySearch.remote.baseUrl", "memory.search.embedding.openai.baseUrl"),
    ("agents.defaults.memorySearch.remote.apiKey", "memory.search.embedding.openai.apiKey"),
    ("agents.defaults.memorySearch.sync.watch", "memory.search.update.watch"),
    ("agents.defaults.memorySearch.sync.watchDebounceMs", "memory.search.update.watchDebounceMs"),
    ("agents.defaults.compaction.reserveTokensFloor", "agents.defaults.compaction.reserveTokens"),
    ("tools.bash", "tools.exec"),
    ("tools.exec.timeoutSec", "tools.exec.timeoutSeconds"),
    ("gateway.auth.password", "gateway.auth.token"),
    ("gateway.trustedProxies", "gateway.auth.trustedProxies"),
    ("gateway.controlUi.allowedOrigins", "gateway.corsOrigins"),
    ("logging.redactSensitive", "logging.redact"),
)
_HOSTS = {"loopback": "127.0.0.1", "lan": "0.0.0.0", "auto": "127.0.0.1"}
_LEVELS = {"trace": "debug", "warn": "warning", "fatal": "error", "silent": "error"}
_EMBEDDERS = ("openai", "gemini", "local")
_MAX_ROUNDS = 1000
_OUR_ENGINES = ("legacy", "lossless")


def adopt_openclaw(data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Config data that loads here, and the paths of the original that were left out, sorted.

    A key is left out when we have none like it or when its value is not one that we take.
    """
    kept: dict[str, Any] = expand_shortcuts(copy.deepcopy(data))
    origins = _rename(kept)
    _translate_values(kept)
    dropped = _leave_plugins(kept)
    for _ in range(_MAX_ROUNDS):
        try:
            Config.model_validate(kept)
            break
        except ValidationError as error:
            for loc in _bad_locs(error):
                cut = _remove(kept, loc)
                dropped.add(_original(cut, origins))
    whole = [path for path in dropped if not any(_is_within(path, other) for other in dropped)]
    return _without_empty(kept), sorted(whole)


def _leave_plugins(data: dict[str, Any]) -> set[str]:
    """Plugins of OpenClaw do not run here: of what is said of them, that of our own engines alone holds."""
    given = data.get("plugins")
    if not isinstance(given, dict):
        return set()
    left = {f"plugins.{name}" for name in given.keys() - {"entries", "slots"}}
    for part, known in (("entries", _OUR_ENGINES), ("slots", ("contextEngine",))):
        inner = given.get(part)
        left |= {
            f"plugins.{part}.{name}"
            for name in (inner if isinstance(inner, dict) else {})
            if name not in known
        }
    slots = given.get("slots")
    if isinstance(slots, dict) and slots.get("contextEngine") not in (None, *_OUR_ENGINES):
        left.add("plugins.slots.contextEngine")
    for path in left:
        _take(data, path.split("."))
    return left


def _is_within(path: str, other: str) -> bool:
    return path != other and path.startswith((f"{other}.", f"{other}["))


def _rename(data: dict[str, Any]) -> dict[str, str]:
    origins: dict[str, str] = {}
    for old, new in _RENAMED:
        value = _take(data, old.split("."))
        if value is None:
            continue
        if _put(data, new.split("."), value):
            origins[new] = old
    return origins


def _translate_values(data: dict[str, Any]) -> None:
    gateway, logging = data.get("gateway"), data.get("logging")
    if isinstance(gateway, dict) and gateway.get("bind") in _HOSTS:
        gateway.setdefault("host", _HOSTS[gateway.pop("bind")])
    if isinstance(logging, dict):
        level = logging.get("level")
        logging["level"] = _LEVELS.get(level, level) if isinstance(level, str) else "info"
        if isinstance(logging.get("redact"), str):
            logging["redact"] = logging["redact"] != "off"
    memory = data.get("memory")
    if isinstance(memory, dict) and isinstance(memory.get("search"), dict):
        _translate_search(memory["search"])


def _translate_search(search: dict[str, Any]) -> None:
    """Whose embeddings, which folders and whether conversations are searched, in our form."""
    provider = search.get("provider")
    if provider in _EMBEDDERS:
        del search["provider"]
        _put(search, ["embedding", "providers"], [provider])
        if isinstance(search.get("model"), str):
            _put(search, ["embedding", str(provider), "model"], search.pop("model"))
    paths = search.get("extraPaths")
    if isinstance(paths, list) and (taken := list(_collections(paths))):
        search["extraPaths"] = [one for one in paths if not _is_rooted(one)]
        if not search["extraPaths"]:
            del search["extraPaths"]
        search.setdefault("paths", taken)
    if isinstance(search.get("sources"), list):
        _put(search, ["sessions", "enabled"], "sessions" in search.pop("sources"))


def _collections(paths: list[Any]) -> Iterator[dict[str, str]]:
    """Folders with a path of their own; those within a workspace are found there."""
    for number, one in enumerate(filter(_is_rooted, paths), 1):
        path = one if isinstance(one, str) else one["path"]
        mask = {"mask": one["pattern"]} if isinstance(one, dict) and one.get("pattern") else {}
        yield {"path": path, "name": f"openclaw-{number}", **mask}


def _is_rooted(one: Any) -> bool:
    path = one.get("path") if isinstance(one, dict) else one
    return isinstance(path, str) and path.startswith(("/", "~/"))


def _bad_locs(error: ValidationError) -> list[tuple[str | int, ...]]:
    """Where to cut: last items of lists first, so that the indexes before them hold."""
    locs = set()
    for item in error.errors(include_url=False, include_input=False):
        loc = tuple(element for element in item["loc"] if element != "[key]")
        locs.add(loc[:-1] if item["type"] == "missing" else loc)
    return sorted(locs, key=lambda loc: [str(e).zfill(9) for e in loc], reverse=True)


def _remove(data: Any, loc: Loc) -> tuple[str | int, ...]:
    """Delete what stands at the path, or the nearest thing above it that is there."""
    loc = _whole_item(loc)
    holder, done = data, 0
    for done, element in enumerate(loc):
        inside = _get(holder, element)
        if inside is None or done == len(loc) - 1:
            break
        holder = inside
    cut = tuple(loc[: done + 1])
    if not cut or _get(holder, cut[-1]) is None:
        cut = cut[:1]
        holder = data
    if isinstance(holder, list):
        holder.pop(int(cut[-1]))
    elif cut:
        holder.pop(cut[-1], None)
    else:
        data.clear()
    return cut


def _whole_item(loc: Loc) -> Loc:
    """A binding with a fault, or an agent without a usable id, goes as a whole."""
    if loc[:1] == ("bindings",):
        return loc[:2]
    return loc[:3] if loc[:2] == ("agents", "list") and loc[-1] == "id" else loc


def _get(holder: Any, element: str | int) -> Any:
    if isinstance(holder, dict):
        return holder.get(element)
    if isinstance(holder, list) and isinstance(element, int) and element < len(holder):
        return holder[element]
    return None


def _original(cut: Loc, origins: dict[str, str]) -> str:
    path = dotted(cut)
    for new, old in origins.items():
        if path == new or path.startswith(f"{new}."):
            return old + path[len(new) :]
    return path


def _take(data: Any, path: list[str]) -> Any:
    """Remove and return the value at a path, and the objects on the way that it leaves empty."""
    name, *rest = path
    if not isinstance(data, dict) or name not in data:
        return None
    if not rest:
        return data.pop(name)
    value = _take(data[name], rest)
    if value is not None and data[name] == {}:
        del data[name]
    return value


def _put(data: dict[str, Any], path: list[str], value: Any) -> bool:
    """Set the value unless something stands there already, or on the way there."""
    for element in path[:-1]:
        inside = data.setdefault(element, {})
        if not isinstance(inside, dict):
            return False
        data = inside
    if isinstance(value, dict) and isinstance(data.get(path[-1]), dict):
        data[path[-1]] = {**value, **data[path[-1]]}
        return True
    return data.setdefault(path[-1], value) is value


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value != {}}
