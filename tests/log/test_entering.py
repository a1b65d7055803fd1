"""What a message from outside makes of its session."""

from __future__ import annotations

from holdfast.clock import ManualClock
from holdfast.config.session import SessionConfig
from holdfast.log import OWNER, SessionStatus, Store, sessions, turns
from holdfast.log.reset import Entered, enter

KEY = "agent:main:telegram:dm:7"


def say(store: Store, text: str = "hello", zone: str = "UTC", key: str = KEY, **config: object) -> Entered:
    with store.write(OWNER) as tx:
        entered = enter(
            tx, sessions.ensure(tx, key), text, SessionConfig.model_validate(config), user_zone=zone
        )
        turns.accept(tx, entered.session, None, key=f"t-{entered.session.id}-{tx.now}")
        return entered


def test_a_session_that_is_fresh_goes_on(store: Store, clock: ManualClock) -> None:
    first = say(store)
    clock.advance(hours=3)
    again = say(store)
    assert (again.session.id, again.reset) == (first.session.id, None)


def test_a_day_later_a_new_session_begins_and_the_old_one_is_archived(
    store: Store, clock: ManualClock
) -> None:
    first = say(store)
    clock.advance(hours=5)
    second = say(store)
    assert second.reset == "daily"
    with store.read(OWNER) as tx:
        old = sessions.get(tx, first.session.id)
    assert (old.status, old.successor_id, old.archive_cause) == (
        SessionStatus.ARCHIVED,
        second.session.id,
        "daily",
    )


def test_the_hour_is_that_of_the_user_s_clock(store: Store, clock: ManualClock) -> None:
    """At midnight UTC it is nine in Tokyo: four hours later the day there has not turned."""
    first = say(store, zone="Asia/Tokyo")
    clock.advance(hours=5)
    assert say(store, zone="Asia/Tokyo").session.id == first.session.id


def test_a_system_event_never_makes_a_session_fresher(store: Store, clock: ManualClock) -> None:
    idle = {"mode": "idle", "idleMinutes": 60}
    first = say(store, reset=idle)
    clock.advance(minutes=50)
    with store.write(OWNER) as tx:
        sessions.touch(tx, sessions.get(tx, first.session.id), external=False)
    clock.advance(minutes=20)
    assert say(store, reset=idle).reset == "idle"


def test_the_channel_s_policy_beats_the_type_s_which_beats_the_default(
    store: Store, clock: ManualClock
) -> None:
    config = {
        "reset": {"mode": "idle", "idleMinutes": 10},
        "resetByType": {"dm": {"mode": "idle", "idleMinutes": 240}},
        "resetByChannel": {"discord": {"mode": "idle", "idleMinutes": 10080}},
    }
    keys = ("agent:main:main", KEY, "agent:main:discord:dm:7", "agent:main:slack:group:7")
    first = {key: say(store, key=key, **config).session.id for key in keys}
    clock.advance(minutes=100)
    kept = [say(store, key=key, **config).session.id == first[key] for key in keys]
    assert kept == [True, True, True, False]


def test_a_command_resets_and_what_stands_behind_it_is_the_first_message(
    store: Store, clock: ManualClock
) -> None:
    first = say(store, reset={"mode": "none"})
    clock.advance(ms=1)
    second = say(store, "/new tell me a story", reset={"mode": "none"})
    assert (second.reset, second.text) == ("new", "tell me a story")
    assert second.session.id != first.session.id


def test_a_session_in_which_nothing_was_said_is_not_left_behind(store: Store) -> None:
    with store.write(OWNER) as tx:
        first = enter(tx, sessions.ensure(tx, KEY), "/reset", SessionConfig()).session
        assert enter(tx, sessions.ensure(tx, KEY), "/reset", SessionConfig()).session.id == first.id
