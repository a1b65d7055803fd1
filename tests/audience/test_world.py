from marked_world import World

def test_it(world: World) -> None:
    print(world.rows("select audience, agent_id, count(*) from entries group by 1,2"))
    print(world.rows("select key, audience, status from sessions"))
    print(world.rows("select name, audience, agent_id, space_id, substr(digest,1,60) from topics"))
    print(world.rows("select name, last_status, last_error, enabled, runs, next_due from standing_tasks"), world.clock.now())
    print(world.rows("select kind,status,due_at from agenda where status in ('queued','running')"))
    print(world.rows("select * from continuation_records limit 2"))
    print(world.rows("select kind,target,status, payload from outbox limit 5"))
