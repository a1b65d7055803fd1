"""Memory: what is indexed, how it is searched, and who may search it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import model_validator

from holdfast.config.section import Section, key, part
from holdfast.config.values import (
    Bytes,
    Count,
    Days,
    DurationMinutes,
    Flag,
    Id,
    Int,
    Ms,
    Num,
    Positive,
    Ratio,
    Secret,
)

QMD_WEIGHTS = {"vectorWeight": 0.7, "textWeight": 0.3}
FLOOR = 0.4


class Limits(Section):
    """What one search may return."""

    max_results: Int = key(6, "Results.", ge=1, le=100)
    max_snippet_chars: Positive = key(700, "Characters per snippet.", le=100_000)
    max_injected_chars: Positive = key(4000, "Characters of all snippets together.", le=1_000_000)
    timeout_ms: Ms = key(4000, "Time for one query.", ge=1)
    min_score: Ratio | None = key(
        None,
        "Results below this score are left out; unset: 0.4 for the built-in index, whose score is how likely"
        " memory has an answer, and 0 for what `qmd` scores.",
    )

    @property
    def floor(self) -> float:
        """The least score of a result of the built-in index."""
        return FLOOR if self.min_score is None else self.min_score


class ScopeMatch(Section):
    """The chats that a rule is about; every field given must match."""

    chat_type: Literal["direct", "group", "channel", "room", "thread"] | None = key(None, "Kind of chat.")
    channel: str | None = key(None, "Name of the channel.")
    key_prefix: str | None = key(None, "Start of the session key.")


class ScopeRule(Section):
    """One rule of the scope; the first that matches decides."""

    action: Literal["allow", "deny"] = key(..., "What the rule does.")
    match: ScopeMatch = part("Which chats; empty: all.")


class Scope(Section):
    """Which chats may search memory."""

    default: Literal["allow", "deny"] = key("deny", "When no rule matches.")
    rules: tuple[ScopeRule, ...] = key(
        (
            ScopeRule.model_construct(
                action="allow",
                match=ScopeMatch.model_construct(chat_type="direct", channel=None, key_prefix=None),
            ),
        ),
        "Rules in order; the first that matches decides.",
    )


class TranscriptIndexing(Section):
    """Searching past conversations."""

    enabled: Flag = key(True, "Whether conversations are indexed.")
    retention_days: Days = key(30, "How far back; 0: all.")
    delta_bytes: Bytes = key(100 * 1024, "New text that triggers an update.")
    delta_messages: Positive = key(50, "New messages that trigger an update.")


class UpdateCycle(Section):
    """How the index is kept fresh."""

    interval: DurationMinutes = key(
        "5m", "Between updates of the text index; bare numbers are minutes.", validate_default=True
    )
    debounce_ms: Ms = key(15000, "Changes within this time are taken in together.")
    watch: Flag = key(True, "Whether files are watched.")
    watch_debounce_ms: Ms = key(1500, "Quiet time before the watcher reports.")
    on_boot: Flag = key(True, "Whether to update at start.")
    embed_interval: DurationMinutes = key(
        "60m", "Between refreshes of embeddings; bare numbers are minutes.", validate_default=True
    )
    update_timeout_ms: Ms = key(
        120000, "Limit for one update of a text index that another program keeps.", ge=1
    )
    embed_timeout_ms: Ms = key(120000, "Limit for one refresh of embeddings by another program.", ge=1)


class CollectionPath(Section):
    """A further set of files to search."""

    path: str = key(..., "Folder or file.", min_length=1)
    name: Id = key(..., "Name of the collection.")
    mask: str = key("**/*.md", "Which files in the folder.", min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _pattern_is_mask(cls, data: Any) -> Any:
        if isinstance(data, dict) and "pattern" in data and "mask" not in data:
            return {("mask" if name == "pattern" else name): v for name, v in data.items()}
        return data


class Weights(Section):
    """How much meaning and how much wording count; used normalised to a sum of 1."""

    vector_weight: Num = key(0.6, "Weight of similar meaning.", ge=0, le=1000)
    text_weight: Num = key(0.4, "Weight of matching words.", ge=0, le=1000)

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if self.vector_weight + self.text_weight == 0:
            raise ValueError("expected vectorWeight or textWeight to be above 0")
        return self

    @property
    def normalised(self) -> tuple[float, float]:
        """Vector and text weight with a sum of 1."""
        total = self.vector_weight + self.text_weight
        return self.vector_weight / total, self.text_weight / total


class Chunking(Section):
    """How files are cut; never within a line."""

    tokens: Int = key(1024, "Tokens per chunk.", ge=16, le=32768)
    overlap: Count = key(128, "Tokens shared by neighbours.")

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap >= self.tokens:
            raise ValueError("expected overlap to be below tokens")
        return self


class EmbeddingProvider(Section):
    """One source of embeddings."""

    model: str | None = key(None, "Model name; unset: the provider's usual one.")
    dimensions: Positive | None = key(None, "Length of a vector; unset: the model's.", le=65536)
    base_url: str | None = key(None, "Address; unset: the provider's own.")
    api_key: Secret | None = key(None, "Key; `${NAME}` is taken from the environment.")


def _provider(model: str, dimensions: int) -> EmbeddingProvider:
    return EmbeddingProvider.model_construct(model=model, dimensions=dimensions, base_url=None, api_key=None)


class Embedding(Section):
    """Where embeddings come from: the first of the chain, and the next only when it fails."""

    providers: tuple[Id, ...] = key(
        ("openai", "gemini", "local"),
        "The chain: `openai`, `gemini`, `local`, or a plugin's by name; one without a key is passed over.",
    )
    openai: EmbeddingProvider = key(
        _provider("text-embedding-3-small", 1536), "OpenAI, or an endpoint like it."
    )
    gemini: EmbeddingProvider = key(_provider("text-embedding-004", 768), "Gemini.")
    local: EmbeddingProvider = part("On this machine.")
    batch_size: Positive = key(64, "Texts per request.", le=2048)
    cache_entries: Count = key(50000, "Embeddings kept by provider, model and content; 0: no limit.")
    shared_cache_entries: Count = key(
        1_000_000, "Embeddings that gateways on one PostgreSQL keep for each other; 0: none."
    )
    timeout_ms: Ms = key(60000, "Limit for one request.", ge=1)
    failover_after: DurationMinutes = key(
        "10m",
        "How long one must have failed before the next embeds documents; bare numbers are minutes. One that"
        " refuses, for instance the key, is not waited for.",
        validate_default=True,
    )
    local_beside: Flag = key(
        False, "Whether the local model embeds everything too, to serve at once when the others fail."
    )

    @model_validator(mode="before")
    @classmethod
    def _keep_usual_models(cls, data: Any) -> Any:
        usual = {"openai": ("text-embedding-3-small", 1536), "gemini": ("text-embedding-004", 768)}
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        for name, (model, dimensions) in usual.items():
            given = data.get(name)
            if isinstance(given, dict) and "model" not in given:
                filled[name] = {"model": model, "dimensions": dimensions, **given}
        return filled


class Rerank(Section):
    """A second look at the best results."""

    enabled: Flag = key(False, "Whether qmd judges its results again by its own model.")


class MemoryGet(Section):
    """What one read may return."""

    max_chars: Positive = key(12000, "Characters.", le=1_000_000)
    max_lines: Positive = key(120, "Lines when none are asked for.", le=100_000)


class DailyLogs(Section):
    """Daily notes that a new session starts with."""

    days: Int = key(2, "Today and so many before, counted together.", ge=0, le=31)
    max_chars: Count = key(2800, "Characters of each; 0: none are given.")


class MemorySearch(Weights):
    """The built-in index."""

    profile: Literal["builtin", "qmd"] = key(
        "builtin", "Usual weights: `builtin` 0.6/0.4, `qmd` 0.7/0.3; weights that are given win."
    )
    engine: Literal["auto", "embedded", "postgres"] = key(
        "auto",
        "Where the index lies: `embedded` beside the home, exact and local, for one gateway; `postgres` in"
        " the store's database, shared between gateways. `auto` is `embedded`.",
    )
    chunking: Chunking = part("How files are cut.")
    embedding: Embedding = part("Where embeddings come from.")
    rerank: Rerank = part("A second look at the best results.")
    limits: Limits = part("What one search may return.")
    sessions: TranscriptIndexing = part("Searching past conversations.")
    update: UpdateCycle = part("How the index is kept fresh.")
    scope: Scope = part("Which chats may search.")
    include_default_memory: Flag = key(True, "Whether MEMORY.md, memory.md and memory/ are searched.")
    paths: tuple[CollectionPath, ...] = key((), "Further collections.")
    dictionaries: tuple[str, ...] = key(
        ("/usr/share/trans/de-en",),
        "German and English word lists in the form of the program Ding (Debian: trans-de-en), by which a"
        " question in one language finds notes in the other; one that is not there is passed over.",
    )

    @model_validator(mode="before")
    @classmethod
    def _profile_sets_weights(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("profile") != "qmd":
            return data
        given = {"vectorWeight", "textWeight", "vector_weight", "text_weight"} & data.keys()
        return data if given else {**QMD_WEIGHTS, **data}


class Qmd(Section):
    """The `qmd` program as memory backend; the built-in index stands in when it fails."""

    command: str = key("qmd", "The program.", min_length=1)
    include_default_memory: Flag = key(True, "Whether MEMORY.md, memory.md and memory/ are searched.")
    vector_weight: Num = key(0.7, "Weight of similar meaning.", ge=0, le=1000)
    text_weight: Num = key(0.3, "Weight of matching words.", ge=0, le=1000)
    paths: tuple[CollectionPath, ...] = key((), "Further collections.")
    sessions: TranscriptIndexing = part("Searching past conversations.")
    update: UpdateCycle = part("How the index is kept fresh.")
    limits: Limits = part("What one search may return.")
    scope: Scope = part("Which chats may search.")

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if self.vector_weight + self.text_weight == 0:
            raise ValueError("expected vectorWeight or textWeight to be above 0")
        return self


class MemoryConfig(Section):
    """Memory."""

    backend: Literal["builtin", "qmd"] = key("builtin", "Which backend serves searches.")
    citations: Literal["auto", "on", "off"] = key(
        "auto", "`auto` shows sources in direct chats and hides them in groups."
    )
    search: MemorySearch = part("The built-in index.")
    get: MemoryGet = part("What one read may return.")
    daily_logs: DailyLogs = part("Daily notes at the start of a session.")
    qmd: Qmd = part("The `qmd` backend.")
