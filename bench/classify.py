"""How well the classifier sorts a stream of conversations into topics, without any model.

    python bench/classify.py --data locomo.json --tune conv-26,conv-41
    python bench/classify.py --data locomo.json --rate 10000 [--store postgresql+psycopg://…]
    python bench/classify.py --data locomo.json --outside 60000 [--static]

Sessions of real conversations are interleaved into one stream, as a person switches between matters and comes
back to them. Each session is one true topic. Speakers' names are taken out of the texts, so that nothing but
what is talked about can tell them apart. Quality is counted over pairs of messages: two messages that share
a topic in truth should share one on the board, and no others should. Names are judged as
`bench/continuity.py` does it: a noun phrase, nothing torn, with a word of the topic's own.

With `--rate` instead: how many entries of a backlog are sorted for a CPU second, with the search index at
hand, over many sessions. It finds nothing there, as nothing is sorted yet: `--outside` has a gateway take in,
index and sort so many entries through `POST /api/ingest`, all of which counts.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from common import Client, cpu_seconds, request
from continuity_judges import name_faults

from holdfast.board.words import is_filler, terms
from holdfast.log import OWNER, Allowance

THREADS = 6
SWITCH = 0.2


@dataclass(frozen=True)
class Message:
    topic: str
    role: str
    text: str


Stream = list[Message]
Sorter = Callable[[Stream], list[str]]


def threads_of(sample: dict[str, Any]) -> list[Stream]:
    """Each session of a conversation as a thread of messages without the speakers' names."""
    talk = sample["conversation"]
    names = [talk["speaker_a"], talk["speaker_b"]]
    forms = {form for name in names for form in (name, name[:3], name[:4]) if len(form) > 2}
    pattern = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, forms), key=len, reverse=True))})\b'?s?")
    found = []
    for number in range(1, 100):
        lines = talk.get(f"session_{number}") or []
        thread = [
            Message(
                f"{sample['sample_id']}:{number}",
                "user" if line["speaker"] == names[0] else "assistant",
                pattern.sub("", line.get("text", "")).strip(),
            )
            for line in lines
            if line.get("text", "").strip()
        ]
        if thread:
            found.append(thread)
    return found


def streams(samples: Sequence[dict[str, Any]], count: int, seed: int) -> list[Stream]:
    """Streams of several threads, drawn evenly from the conversations, switching only where a user speaks."""
    rng = random.Random(seed)
    pools = [threads_of(sample) for sample in samples]
    made = []
    for _ in range(count):
        chosen = [rng.choice(pools[i % len(pools)]) for i in range(THREADS)]
        while len({thread[0].topic for thread in chosen}) < THREADS:
            chosen = [rng.choice(pools[i % len(pools)]) for i in range(THREADS)]
        made.append(_interleaved([list(thread) for thread in chosen], rng))
    return made


def _interleaved(left: list[Stream], rng: random.Random) -> Stream:
    stream: Stream = []
    now = rng.choice(left)
    while left:
        stream.append(now.pop(0))
        if not now:
            left = [thread for thread in left if thread]
        if left and (not now or (now[0].role == "user" and len(left) > 1 and rng.random() < SWITCH)):
            now = rng.choice([thread for thread in left if thread is not now] or left)
    return stream


def pairwise(truth: Sequence[str], found: Sequence[str]) -> tuple[float, float, float]:
    """Precision, recall and F1 over all pairs of messages."""

    def pairs(labels: Sequence[Any]) -> int:
        return sum(n * (n - 1) // 2 for n in Counter(labels).values())

    both = pairs(list(zip(truth, found, strict=True)))
    precision = both / max(1, pairs(found))
    recall = both / max(1, pairs(truth))
    return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)


def one_topic(stream: Stream) -> list[str]:
    return ["all"] * len(stream)


def lexical_nearest(threshold: float) -> Sorter:
    """Each exchange goes to the topic with the most similar words (tf-idf cosine), or begins a new one."""

    def run(stream: Stream) -> list[str]:
        seen: Counter[str] = Counter()
        topics: list[Counter[str]] = []
        labels: list[str] = []
        for count, exchange in enumerate(exchanges(stream), start=1):
            words = Counter(w for m in exchange for w in terms(m.text) if not is_filler(w))
            seen.update(set(words))
            idf = {w: math.log(1 + count / n) for w, n in seen.items()}
            scores = [_cosine(words, topic, idf) for topic in topics]
            best = max(range(len(scores)), key=scores.__getitem__, default=None)
            if best is None or scores[best] < threshold:
                topics.append(Counter())
                best = len(topics) - 1
            topics[best].update(words)
            labels += [str(best)] * len(exchange)
        return labels

    return run


def _cosine(a: Counter[str], b: Counter[str], idf: dict[str, float]) -> float:
    def norm(counts: Counter[str]) -> float:
        return math.sqrt(sum((n * idf[w]) ** 2 for w, n in counts.items())) or 1.0

    return sum(n * b[w] * idf[w] ** 2 for w, n in a.items() if w in b) / norm(a) / norm(b)


def exchanges(stream: Stream) -> list[Stream]:
    """What a user said, with the replies to it."""
    found: list[Stream] = []
    for message in stream:
        if not found or message.role == "user":
            found.append([])
        found[-1].append(message)
    return found


def measure(sorter: Sorter, many: Sequence[Stream]) -> tuple[float, float, float, float]:
    """Mean precision, recall and F1 over the streams, and how many topics were made on average."""
    results = [(sorter(stream), stream) for stream in many]
    scores = [pairwise([m.topic for m in stream], found) for found, stream in results]
    made = statistics.mean(len(set(found)) for found, _ in results)
    p, r, f = (statistics.mean(column) for column in zip(*scores, strict=True))
    return p, r, f, made


def ours(stream: Stream) -> list[str]:
    return ours_with_names(stream)[0]


@functools.cache
def _sorted_by_us(stream: tuple[Message, ...]) -> tuple[list[str], dict[str, str]]:
    """The real thing: each message is logged into a fresh store, and the agenda is run after each reply. The
    topic of each message, and the topics' names."""
    import asyncio

    from holdfast.board import classifier, ingest, pending, review, topics
    from holdfast.clock import ManualClock
    from holdfast.config.board import BoardConfig
    from holdfast.log import EntryDraft, Threads, agenda, entries, open_store, sqlite_url

    options = BoardConfig()
    clock = ManualClock()

    async def run(folder: str) -> tuple[list[str], dict[str, str]]:
        store = open_store(sqlite_url(Path(folder) / "bench.db"), clock=clock)
        threads = Threads(2)
        runner = agenda.Runner(store, threads)
        room = classifier.Classifier(store, threads, lambda: options)
        reviewer = review.Reviewer(
            store, threads, lambda: options, judge=lambda agent: None, allowance=Allowance()
        )
        runner.register(pending.KIND, room.kind())
        runner.register(review.KIND, reviewer.kind())
        ids = []
        for exchange in exchanges(list(stream)):
            for message in exchange:
                clock.advance(seconds=20)
                draft = EntryDraft(content=message.text, role=message.role, session_key="agent:main:main")
                with store.write(OWNER) as tx:
                    ids.append(entries.append(tx, ingest.prepare(tx, draft, options)).entry.id)
            clock.advance(seconds=5)
            await runner.drain()
        with store.read(OWNER) as tx:
            found = {entry.id: entry.topic_id or f"none:{entry.id}" for entry in entries.get_many(tx, ids)}
            named = {one.id: one.name for one in topics.get_many(tx, list(set(found.values())))}
        threads.close()
        store.close()
        return [found[id_] for id_ in ids], named

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(folder))


def ours_with_names(stream: Stream) -> tuple[list[str], dict[str, str]]:
    return _sorted_by_us(tuple(stream))


def name_faults_of(stream: Stream) -> list[str]:
    """Of each topic's name what is wrong with it, "" for a good one: a noun phrase, nothing torn, with a word
    that is said often in its topic and seldom in others."""
    labels, named = ours_with_names(stream)
    said = {id_: [m.text for m, label in zip(stream, labels, strict=True) if label == id_] for id_ in named}
    words = {id_: Counter(w for text in texts for w in set(terms(text))) for id_, texts in said.items()}
    every = Counter(w for counts in words.values() for w in counts.elements())
    faults = []
    for id_, name in named.items():
        own = frozenset(w for w, n in words[id_].items() if n >= 0.5 * every[w] and not is_filler(w))
        faults.append(name_faults(name, own, said[id_]))
    return faults


def backlog(samples: Sequence[dict[str, Any]], count: int, per_session: int) -> list[tuple[str, Message]]:
    """So many messages over many sessions, each with its session; no text comes twice: later rounds put the
    first half of one and the second of another together."""
    threads = [thread for sample in samples for thread in threads_of(sample)]
    rng = random.Random(5)
    found: list[tuple[str, Message]] = []
    while len(found) < count:
        thread = threads[rng.randrange(len(threads))]
        other = threads[rng.randrange(len(threads))]
        for number, message in enumerate(thread):
            words, more = message.text.split(), other[number % len(other)].text.split()
            text = " ".join([*words[: len(words) // 2 + 1], *more[len(more) // 2 :]])
            key = f"agent:main:chat:{len(found) // per_session}"
            found.append((key, Message(message.topic, message.role, text)))
    return found[:count]


def rate(samples: Sequence[dict[str, Any]], count: int, per_session: int, store_url: str | None) -> None:
    """The CPU of sorting a backlog; loading it, and taking it into the index, is not counted."""
    import asyncio

    from holdfast.board import classifier, ingest, pending
    from holdfast.log import EntryDraft, Threads, agenda, entries
    from holdfast.runtime import open_home
    from holdfast.runtime.rooms import index_recall

    async def run(folder: str) -> tuple[float, float, Counter[str]]:
        hold = open_home(folder, store_url=store_url)
        talk = backlog(samples, count, per_session)
        for start in range(0, count, 500):
            with hold.store.write(OWNER) as tx:
                drafts = [
                    EntryDraft(content=message.text, role=message.role, session_key=key)
                    for key, message in talk[start : start + 500]
                ]
                entries.load(tx, [ingest.prepare(tx, draft) for draft in drafts])
        while hold.memory.follow(2_000):
            pass
        threads = Threads(4)
        runner = agenda.Runner(hold.store, threads)
        room = classifier.Classifier(
            hold.store, threads, lambda: hold.settings.board, candidates=index_recall(hold)
        )
        runner.register(pending.KIND, room.kind())
        with hold.store.write(OWNER) as tx:
            pending.backlog(tx, hold.settings.board.classifier)
        began, wall = time.process_time(), time.monotonic()
        left = count
        while left:
            await runner.drain()
            await asyncio.sleep(0.05)
            with hold.store.read(OWNER) as tx:
                left = len(pending.listing(tx, limit=1))
        spent, took = time.process_time() - began, time.monotonic() - wall
        with hold.store.read(OWNER) as tx:
            query = "SELECT method, count(*) FROM decisions GROUP BY method"
            methods = Counter(dict(map(tuple, tx.conn.exec_driver_sql(query))))
        threads.close()
        hold.close()
        return spent, took, methods

    with tempfile.TemporaryDirectory() as folder:
        spent, took, methods = asyncio.run(run(folder))
    print(f"{count} entries, {per_session} a session: {spent:.1f} CPU s, {took:.1f} s")
    print(f"{count / spent:.0f} entries for a CPU second (target 1,000); {dict(methods.most_common())}")


GATEWAY = """
import sys
from holdfast.gateway import listen, serve
from holdfast.runtime import open_home
hold = open_home(sys.argv[1], store_url=sys.argv[2] or None)
sock = listen("127.0.0.1", 0)
print(sock.getsockname()[1], hold.home.admin_token(), flush=True)
serve(hold, sock)
"""
BATCH = 500


def outside(
    samples: Sequence[dict[str, Any]], count: int, per_session: int, store_url: str | None, *, static: bool
) -> None:
    """From the first request until nothing waits to be sorted; with MiniLM, embedding goes on after that."""
    with tempfile.TemporaryDirectory() as folder:
        embedding: dict[str, Any] = {"embedding": {"providers": []}} if static else {}
        Path(folder, "holdfast.json").write_text(json.dumps({"memory": {"search": embedding}}))
        gateway, (port, token) = common.start(GATEWAY, folder, store_url or "")
        client = Client(int(port))
        talk = backlog(samples, count, per_session)
        before, began = cpu_seconds(gateway.pid), time.monotonic()
        for first in range(0, count, BATCH):
            batch = [
                {
                    "content": message.text,
                    "agentId": "user" if message.role == "user" else "main",
                    "source": {"sessionKey": key},
                }
                for key, message in talk[first : first + BATCH]
            ]
            status, _ = client.send(request("POST", "/api/ingest", token, json.dumps(batch).encode()))
            assert status == 202
        accepted = time.monotonic() - began
        last = talk[-1][0]
        of_last = min(100, sum(key == last for key, _ in talk))
        while _unsorted(client, token, last, of_last):
            time.sleep(1)
        spent, took = cpu_seconds(gateway.pid) - before, time.monotonic() - began
        gateway.terminate()
        gateway.wait()
    print(f"{count} entries from outside: accepted after {accepted:.0f} s, sorted after {took:.0f} s")
    print(f"{spent:.0f} CPU s of the gateway for all of it, {count / spent:.0f} entries for each")


def _unsorted(client: Client, token: str, last: str, count: int) -> bool:
    """Whether entries wait to be sorted, or some of the last session to be written."""

    def rows(query: str) -> int:
        return len(json.loads(client.send(request("GET", f"/api/log?{query}", token))[1]))

    return rows("classificationStatus=pending&limit=1") > 0 or rows(f"sessionKey={last}&limit=100") < count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="conversations in the LoCoMo form")
    parser.add_argument("--tune", default="conv-26,conv-41", help="samples left out of the report")
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rate", type=int, help="sort a backlog of so many entries instead")
    parser.add_argument("--per-session", type=int, default=100)
    parser.add_argument("--store", help="where the backlog is kept; else SQLite in a new folder")
    parser.add_argument("--outside", type=int, help="have a gateway take in and sort so many entries")
    parser.add_argument("--static", action="store_true", help="with --outside: without a better embedder")
    options = parser.parse_args()
    samples = json.loads(options.data.read_text())
    if options.outside:
        given = options.outside, options.per_session, options.store
        outside(samples, *given, static=options.static)
        return
    if options.rate:
        rate(samples, options.rate, options.per_session, options.store)
        return
    held = set(options.tune.split(","))
    tuning = streams([s for s in samples if s["sample_id"] in held], options.streams, options.seed)
    reported = streams([s for s in samples if s["sample_id"] not in held], options.streams, options.seed)
    steps = (0.02, 0.03, 0.04, 0.06, 0.08, 0.1)
    threshold = max(steps, key=lambda step: measure(lexical_nearest(step), tuning)[2]) if held else 0.03
    sorters: dict[str, Sorter] = {
        "one topic per session": one_topic,
        f"lexical nearest (threshold {threshold})": lexical_nearest(threshold),
        "holdfast, no model": ours,
    }
    messages = statistics.mean(map(len, reported))
    print(
        f"{len(reported)} streams of {THREADS} threads, {messages:.0f} messages each; without {sorted(held)}"
    )
    print(f"{'':<36} {'precision':>9} {'recall':>9} {'F1':>9} {'ratio':>7} {'topics':>7}")
    baseline = 0.0
    for name, sorter in sorters.items():
        p, r, f, made = measure(sorter, reported)
        ratio = f / baseline if sorter is ours else 1.0
        baseline = max(baseline, f)
        print(f"{name:<36} {p:>9.3f} {r:>9.3f} {f:>9.3f} {ratio:>7.2f} {made:>7.1f}")
    faults = [fault for stream in reported for fault in name_faults_of(stream)]
    kinds = Counter(fault.partition(" (")[0] for fault in faults if fault)
    print(f"names that are no names: {sum(kinds.values()) / len(faults):.2f} of {len(faults)} {dict(kinds)}")


if __name__ == "__main__":
    main()
