"""The tables of the PostgreSQL index, in a schema of their own that may be dropped at any time.

`groups` holds the places that a coarse filter tells apart, `counts` in how many documents of each a
term stands: what BM25 needs of a whole scope is read from there, without touching its documents.
Vectors are the int8 codes of the embedded index, which a half-precision vector holds without loss.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import Conflict, Unavailable
from holdfast.ids import uuid7

FORMAT = "3"
_TABLES = """
create table meta (key text primary key, value text not null);
create table groups (
    code integer generated always as identity primary key, key text not null unique,
    audience text not null, agent text, collection text, source text not null, spaces text[] not null,
    population bigint not null default 0, total_length bigint not null default 0);
create sequence nums;
create table docs (
    num bigint primary key, id text not null unique, grp integer not null, text text not null,
    topic text, task text, session text, speaker text, writer text, at bigint not null,
    curated boolean not null, thread text, ordinal integer not null, position bigint, path text,
    from_line integer, to_line integer, payload text not null, length integer not null,
    terms bigint[] not null, freqs smallint[] not null);
create index docs_scope on docs (grp, at, curated, num);
create index docs_place on docs (thread, ordinal, num);
create index docs_at on docs (at);
create index docs_terms on docs using gin (terms);
create table counts (
    term bigint, grp integer, documents bigint not null, primary key (term, grp)) with (fillfactor = 80);
create table spaces (
    code integer generated always as identity primary key, fingerprint text not null unique,
    dims integer not null);
create table vectors (
    space integer, num bigint, scale real not null, codes halfvec not null,
    primary key (space, num)) with (toast_tuple_target = 8160);
"""


def prepare(connection: Any, schema: str) -> None:
    """Make the tables, or make them anew if another version of Holdfast laid them out."""
    if _is_ours(connection, schema) and meta(connection, "format") == FORMAT:
        return
    connection.execute(f"drop schema if exists {schema} cascade")
    connection.execute(f"create schema {schema}")
    connection.execute(_TABLES)
    facts = {"format": FORMAT, "identity": uuid7(), "position": "0", "stamp": ""}
    for key, value in facts.items():
        connection.execute("insert into meta values (%s, %s)", (key, value))


def _is_ours(connection: Any, schema: str) -> bool:
    """Whether an index lies in the schema; one in which someone else keeps tables is refused."""
    find = "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where nspname = %s"
    names = {name for (name,) in connection.execute(find, (schema,))}
    if names and not {"meta", "groups", "docs", "counts", "vectors"} <= names:
        raise Conflict(
            f"the schema {schema} holds tables that are not a search index",
            code="index_in_use",
            hint="Give the index a schema of its own.",
        )
    return bool(names)


def extension_schema(connection: Any) -> str:
    """Where pgvector lies, installed if this role may do so."""
    from psycopg import Error

    find = "select quote_ident(nspname) from pg_extension e join pg_namespace n on n.oid = extnamespace"
    known = connection.execute(f"{find} where extname = 'vector'").fetchone()
    if known is None:
        try:
            connection.execute("create extension if not exists vector")
        except Error as error:
            raise Unavailable(
                "this PostgreSQL has no vector extension for the search index",
                code="index_unavailable",
                hint="Install pgvector 0.7 or newer and run `create extension vector` as the database's "
                "owner, or set memory.search.engine to embedded.",
            ) from error
        known = connection.execute(f"{find} where extname = 'vector'").fetchone()
    return str(known[0])


def meta(connection: Any, key: str) -> str:
    row = connection.execute("select value from meta where key = %s", (key,)).fetchone()
    return "" if row is None else str(row[0])


def set_meta(connection: Any, key: str, value: str) -> None:
    connection.execute("update meta set value = %s where key = %s", (value, key))
