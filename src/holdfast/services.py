"""What runs while a gateway serves: the agenda's runner with the rooms' work on it, the feed, the bridge."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

from holdfast import __version__, logs
from holdfast.agents import approvals
from holdfast.agents.models import BoardModels
from holdfast.agents.subagents import registry as spawned
from holdfast.board import pending, review, routing
from holdfast.board.classifier import Classifier
from holdfast.board.digests import KIND as DIGEST
from holdfast.board.digests import Digester
from holdfast.board.ingest import prepare_all
from holdfast.board.pending import KIND as CLASSIFY
from holdfast.clock import DAY_MS, Millis
from holdfast.config import Config
from holdfast.config.board import BoardConfig
from holdfast.context.blobs import prune as prune_contexts
from holdfast.context.engine_records import DELIVER
from holdfast.context.lossless import KIND as COMPACT
from holdfast.context.lossless import compaction_kind
from holdfast.errors import HoldfastError
from holdfast.log import SYSTEM, Allowance, Bridge, Feed, Pace, Retention, Tx, agenda, audit, entries, prune
from holdfast.log.ingest import INGEST, drafts_from
from holdfast.log.retention import archive_unused
from holdfast.memory.cycles import MemoryCycles
from holdfast.plugins import GatewayStart, GatewayStop, Plugin, Service
from holdfast.runtime import Holdfast, shared_home
from holdfast.runtime.config_trail import ConfigTrail
from holdfast.runtime.rooms import index_recall
from holdfast.supervision import Supervisor

log = logging.getLogger(__name__)

RETENTION: Final = "log.retention"
_LEAST_GRACE_SECONDS: Final = 0.5
_SORTING_GAP_SECONDS: Final = 10.0
"""How close upon one another much is sorted in a rush; embedding then waits."""


class Services:
    """What runs while a gateway serves: the runner of the agenda, the change feed, the bridge."""

    def __init__(self, hold: Holdfast) -> None:
        self.hold = hold
        options = hold.settings
        self.runner = agenda.Runner(
            hold.store,
            hold.threads,
            max_concurrent=options.agenda.max_concurrent,
            lease_ms=options.agenda.lease_seconds * 1000,
            caps=lambda: hold.settings.agenda.per_kind,
        )
        self.feed = Feed(
            hold.store,
            hold.threads,
            ping_seconds=options.gateway.stream.ping_seconds,
            replay_limit=options.gateway.stream.replay_limit,
        )
        self.supervisor = Supervisor(hold.store, lambda: hold.settings.gateway.health)
        self._bridge = Bridge(hold.store)
        self.stopping = asyncio.Event()
        self.config_trail = ConfigTrail(hold.config, hold.store)
        self._grace_until = 0.0
        self._routing_swept = Millis(0)
        self._sweeps: list[Callable[[Tx], object]] = []
        self.runner.register(INGEST, agenda.Kind(self._ingest, limit=2))
        self.runner.register(RETENTION, agenda.Kind(self._retain, limit=1))
        asks = approvals.workflow.asking_kind(hold.store, hold.threads, lambda: hold.settings)
        self.runner.register(approvals.requests.ASKING, asks)
        self._sorting = Pace(gap=_SORTING_GAP_SECONDS)
        self.cycles = MemoryCycles(
            hold.store,
            hold.threads,
            lambda: hold.memory,
            lambda: [agent.id for agent in hold.settings.agent_list],
            hold.settings_for_memory,
            hold.workspace,
            pace=hold.pace,
            before_embedding=self._sorting,
        )
        self.cycles.register(self.runner)
        self._register_board()
        hold.runs.register(self.runner)
        hold.agency.subagents.register(self.runner, hold.runs)
        hold.agency.continuation.register(self.runner)
        hold.agency.channels.register(self.runner)
        hold.agency.heartbeats.register(self.runner)
        hold.agency.standing.register(self.runner, hold.runs)
        self.runner.register(
            COMPACT,
            compaction_kind(
                hold.store,
                hold.threads,
                lambda agent: hold.context.engine(agent),
                compacted=lambda session: hold.context.tell_compacted(session),
            ),
        )
        self.runner.register(DELIVER, hold.context.delivery_kind())
        self._supervise()
        self._supervise_plugins()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Services]:
        """Serve until the block ends; then take no new work and let what runs finish or be marked."""
        self.hold.stopping = False
        await self.hold.threads(self._schedule_retention)
        await self.hold.threads(self.cycles.schedule_boot)
        await self.hold.threads(self._schedule_backlog)
        await self.hold.threads(self._take_up_work)
        await self.hold.agency.continuation.recover()
        await self.hold.threads(self.config_trail.begin)
        forget = self.hold.config.subscribe(self._settings_changed)
        self.supervisor.start()
        self.hold.plugins.started()
        self.hold.plugin_hooks.tell(GatewayStart(version=__version__))
        try:
            yield self
        finally:
            self.begin_stop()
            self.hold.plugin_hooks.tell(GatewayStop())
            forget()
            await self.runner.stop(max(_LEAST_GRACE_SECONDS, self._grace_until - time.monotonic()))
            await self.supervisor.stop()
            await self.hold.threads(self.hold.plugin_hooks.drain, _LEAST_GRACE_SECONDS)
            await self.hold.aclose()
            self._bridge.stop()

    def _supervise(self) -> None:
        """Without the vital parts nothing that was promised is done; the others only keep things fresh."""
        watch = self.supervisor.add
        watch(self.runner.pulse, lambda: self._until_stopped(self.runner.run()), vital=True)
        watch(self.runner.lease_pulse, vital=True)
        watch(self.feed.pulse, self.feed.run, vital=True)
        watch(self._bridge.pulse, self._follow_others, vital=True)
        if (checkpointer := self.hold.store.checkpointer()) is not None:
            watch(checkpointer.pulse, checkpointer.run, slow=True)
        watch("config", lambda: self._until_stopped(self.hold.config.watch(self.stopping)))
        watch("shared config", lambda: self._until_stopped(self._follow_shared()))
        watch(self.cycles.pulse, self.cycles.follow_log, slow=True)
        watch("files", lambda: self._until_stopped(self.cycles.watch_files(self.stopping)))
        watch("models", self._discover, once=True)

    def _supervise_plugins(self) -> None:
        """What plugins run: their services, and the connections of their channels. They are begun again as
        any part, and the gateway is ready without them."""
        for plugin in self.hold.plugins.plugins:
            for service in plugin.registered.services if plugin.is_in else ():
                self._supervise_one(f"plugin {plugin.id}: {service.name}", partial(_served, plugin, service))
        for name, channel in self.hold.settings.channels.items():
            adapter = self.hold.agency.plugged_channels.get(channel.adapter or name)
            for account in channel.accounts or (None,) if adapter is not None else ():
                if adapter is not None and channel.of_account(account).enabled:
                    label = f"channel {name}" if account is None else f"channel {name}/{account}"
                    self._supervise_one(label, partial(adapter.run, name, account))

    def _supervise_one(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self.supervisor.add(name, lambda: self._until_stopped(run()), optional=True)

    def supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Have what a higher room runs for as long as the gateway looked after with the rest."""
        self.supervisor.add(name, lambda: self._until_stopped(run()))

    async def _until_stopped(self, work: Awaitable[None]) -> None:
        """What ends when the gateway stops has then done its work, and is not begun again."""
        await work
        if self.stopping.is_set():
            await asyncio.Event().wait()

    async def _follow_shared(self) -> None:
        hold = self.hold
        await shared_home.follow(hold.home, hold.store, hold.threads, hold.config, self.stopping)

    async def _follow_others(self) -> None:
        """The bridge runs on a thread; this ends when that does."""
        self._bridge.start()
        while self._bridge.alive:
            await asyncio.sleep(1)

    def begin_stop(self) -> None:
        """Refuse new work, end the live streams, and have long work end with the piece it is at.

        Safe to call from a signal handler. The time of grace is counted from here, once for all that waits.
        """
        if not self.hold.stopping:
            self._grace_until = time.monotonic() + self.hold.settings.gateway.shutdown_grace_seconds
        self.hold.stopping = True
        self.stopping.set()
        self.feed.close()

    def _take_up_work(self) -> None:
        """What was under way when the last gateway stopped, and what happens unasked from now on."""
        self.hold.context.recover()
        self.hold.agency.subagents.recover()
        self._schedule_standing()
        self.hold.agency.heartbeats.boot()

    def _settings_changed(self, config: Config) -> None:
        """What happens unasked, and what was logged while sorting was off."""
        self.config_trail.changed(config)
        self._schedule_standing()
        self._schedule_backlog()

    def _schedule_standing(self) -> None:
        self.hold.agency.heartbeats.schedule()
        self.hold.agency.standing.schedule()

    async def _discover(self) -> None:
        """Look once for model servers on this machine, so that an agent without a model finds one, and load
        the client of the model in use before the first turn waits for it."""
        models = self.hold.agency.models
        agent = self.hold.settings.agent(self.hold.settings.default_agent_id)
        await models.discover()
        try:
            await models.warm(models.choice(agent))
        except HoldfastError as error:
            log.warning("the model of agent %s cannot be used: %s", agent.id, error.message)

    def _register_board(self) -> None:
        """Sorting and digests, by rules; where there is a model it helps, so often in an hour."""
        hold = self.hold
        helpers = BoardModels(hold.agency.models, lambda: hold.settings)
        allowance = Allowance()
        candidates = index_recall(hold)

        def options() -> BoardConfig:
            return hold.settings.board

        classifier = Classifier(
            hold.store,
            hold.threads,
            options,
            has_judge=lambda key: helpers.judge(review.agent_of(key)) is not None,
            candidates=candidates,
            audit=hold.board_audit,
            pace=hold.pace,
            rush=self._sorting,
        )
        self.runner.register(CLASSIFY, classifier.kind())
        reviewer = review.Reviewer(
            hold.store,
            hold.threads,
            options,
            judge=helpers.judge,
            allowance=allowance,
            candidates=candidates,
            audit=hold.board_audit,
        )
        self.runner.register(review.KIND, reviewer.kind())
        digester = Digester(
            hold.store,
            hold.threads,
            options,
            scribe=helpers.scribe,
            allowance=allowance,
        )
        self.runner.register(DIGEST, digester.kind())

    def _schedule_backlog(self) -> None:
        """What waits to be sorted, and was perhaps written by an older or another program."""
        options = self.hold.settings.board.classifier
        if options.enabled:
            with self.hold.store.write(SYSTEM, ordered=False, durable=False) as tx:
                pending.backlog(tx, options)

    def on_sweep(self, sweep: Callable[[Tx], object]) -> None:
        """Have what a higher room keeps for a while only pruned with the rest."""
        self._sweeps.append(sweep)

    def _sweep_rooms(self, tx: Tx) -> None:
        """What the rooms above the log keep for a while only."""
        for sweep in self._sweeps:
            sweep(tx)
        settings = self.hold.settings
        if tx.now >= self._routing_swept + settings.board.routing_memory.gc_hours * 3_600_000:
            routing.sweep(tx, settings.board.routing_memory)
            self._routing_swept = tx.now
        approvals.requests.expire(tx)
        if settings.retention.outbox_days is not None:
            over = tx.now - settings.retention.outbox_days * DAY_MS
            spawned.prune(tx, over)
            self.hold.agency.channels.prune(tx, over)
        if settings.teams.audit_days is not None:
            approvals.requests.prune(tx, settings.teams.audit_days)
            approvals.audit.prune(tx, settings.teams.audit_days)
            audit.prune(tx, settings.teams.audit_days)

    async def _ingest(self, job: agenda.Job) -> None:
        """Write what was accepted by `POST /api/ingest`, and finish its agenda item, in one transaction."""
        drafts = drafts_from(job.item.payload)

        def write() -> None:
            with self.hold.store.write(SYSTEM) as tx:
                entries.load(tx, prepare_all(tx, drafts, self.hold.settings.board))
                job.settle(tx)

        await self.hold.threads(write)

    async def _retain(self, job: agenda.Job) -> None:
        removed = await self.hold.threads(prune, self.hold.store, _retention(self.hold.settings))
        if any(removed.values()):
            log.info("retention removed %s", {k: v for k, v in removed.items() if v})
        days = self.hold.settings.retention.manifest_days
        if days is not None:
            await self.hold.threads(prune_contexts, self.hold.store, days)
        kept = self.hold.settings.session.retention
        await self.hold.threads(
            archive_unused, self.hold.store, days=kept.archive_after_days, most=kept.max_sessions
        )
        await self.hold.threads(
            logs.sweep, self.hold.home.logs, self.hold.settings.logging, self.hold.clock.now()
        )
        await self.hold.agency.continuation.upkeep()
        await self.hold.threads(self.hold.store.run, SYSTEM, self._sweep_rooms)
        await self.hold.threads(self._schedule_retention, after=job)

    def _schedule_retention(self, after: agenda.Job | None = None) -> None:
        """One sweep waits at any time; the end of one and the wait for the next are one transaction."""
        with self.hold.store.write(SYSTEM, ordered=False, durable=False) as tx:
            due = int(tx.now)
            if after is not None:
                after.settle(tx)
                due += self.hold.settings.retention.sweep_minutes * 60_000
            agenda.enqueue(tx, RETENTION, {}, lane=RETENTION, key=RETENTION, due_at=due, max_attempts=5)


async def _served(plugin: Plugin, service: Service) -> None:
    """A service of a plugin's, on the plugin's own loop."""
    await asyncio.wrap_future(plugin.loop.begin(service.run))


def _retention(config: Config) -> Retention:
    given = config.retention
    return Retention(
        agenda_days=given.agenda_days,
        agenda_rows=given.agenda_rows or None,
        changes_days=given.changes_days,
        changes_rows=given.changes_rows or None,
        deleted_days=given.deleted_days,
        transcript_days=given.transcript_days,
        outbox_days=given.outbox_days,
        batch=given.batch_rows,
    )
