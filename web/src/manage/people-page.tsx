/** People who may log in, the teams they are in, and invitations that are open. */
import "./manage.css";

import { type SyntheticEvent, useState } from "react";

import { api } from "../api/client";
import type { InvitationOut, TeamOut, UserOut } from "../api/schema";
import type { Who } from "../api/types";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Choice } from "../parts/choice";
import { Confirm } from "../parts/confirm";
import { CopyButton } from "../parts/copy";
import { OneLine } from "../parts/one-line";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { isOwner } from "../shell/rights";

type Role = UserOut["role"];
const STALE = ["/api/users", "/api/teams", "/api/invitations"];
const ROLES: readonly (readonly [Role, string])[] = [
  ["viewer", "viewer: reads what is shared"],
  ["member", "member: talks to the team's agents"],
  ["admin", "admin: looks after people"],
  ["owner", "owner: reads and does everything"],
];

export default function PeoplePage() {
  const users = useApi("/api/users");
  const teams = useApi("/api/teams");
  return (
    <>
      <div className="head">
        <h1>People</h1>
      </div>
      <Invite teams={teams.data ?? []} />
      <section aria-labelledby="users-title">
        <h2 id="users-title" className="more">
          Who may log in
        </h2>
        {users.error !== null && <Trouble problem={users.error} again={() => void users.refetch()} />}
        {users.data === undefined && users.error === null && <Skeleton rows={4} what="the people" />}
        {users.data?.length === 0 && <Nothing>Nobody but you. Invite somebody above: they choose their own login and password.</Nothing>}
        {users.data !== undefined && users.data.length > 0 && <Users rows={users.data} />}
      </section>
      <Teams teams={teams.data ?? []} users={users.data ?? []} />
    </>
  );
}

/** The roles that a login may give: none that may do more than itself. */
function useRoles(): readonly (readonly [Role, string])[] {
  const who: Who = useLoggedIn();
  return who.role === "admin" ? ROLES.slice(0, 3) : ROLES;
}

function Invite({ teams }: { teams: readonly TeamOut[] }) {
  const roles = useRoles();
  const [role, setRole] = useState<Role>("member");
  const [team, setTeam] = useState("");
  const [made, setMade] = useState<InvitationOut>();
  const { data: open = [] } = useApi("/api/invitations");
  const link = made?.code == null ? "" : `${location.origin}/invitation#${made.code}`;

  async function invite(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    await attempt(async () => setMade(await api.post("/api/invitations", { role, teamId: team === "" ? null : team, days: 7 })), STALE);
  }

  return (
    <>
      <form className="row" aria-label="Invite somebody" onSubmit={(event) => void invite(event)}>
        <Choice label="As what" value={role} options={roles} onChange={setRole} />
        <Choice label="Into which team" value={team} onChange={setTeam} options={[["", "into no team yet"] as const, ...teams.map((one) => [one.id, `into ${one.name}`] as const)]} />
        <button type="submit" className="primary">
          Invite somebody
        </button>
      </form>
      {link !== "" && (
        <div className="panel once" role="status">
          <p>Send them this link. It works once, for seven days, and is not shown again.</p>
          <div className="row">
            <code className="grow">{link}</code>
            <CopyButton text={link} />
            <button type="button" className="quiet-button" onClick={() => setMade(undefined)}>
              I have it
            </button>
          </div>
        </div>
      )}
      {open.length > 0 && (
        <ul className="plain-list more" aria-label="Open invitations">
          {open.map((one) => (
            <li key={one.id} className="row">
              <span className="grow">
                Somebody is invited as {one.role}
                {one.teamId === null ? "" : ` into ${one.teamId}`} <span className="quiet">by {one.invitedBy}, </span>
                <Ago at={one.createdAt} />
              </span>
              <button
                type="button"
                className="quiet-button"
                onClick={() => void attempt(() => api.delete("/api/invitations/{id}", { path: { id: one.id } }), STALE, "The invitation is withdrawn.")}
              >
                Withdraw
              </button>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Users({ rows }: { rows: readonly UserOut[] }) {
  const roles = useRoles();
  const mayChange = (user: UserOut): boolean => roles.some(([role]) => role === user.role);
  const change = (user: UserOut, body: { role?: Role; disabled?: boolean }, done: string): void =>
    void attempt(() => api.patch("/api/users/{id}", body, { path: { id: user.id } }), STALE, done);
  const columns: readonly Column<UserOut>[] = [
    {
      name: "Name",
      as: "head",
      cell: (user) => (
        <>
          <Told text={user.name} /> {user.disabled && <span className="tag bad">shut out</span>}
        </>
      ),
    },
    { name: "Login", named: true, as: "code", cell: (user) => user.login },
    {
      name: "Role",
      named: true,
      cell: (user) =>
        mayChange(user) ? (
          <Choice
            label={`Role of ${user.name}`}
            value={user.role}
            options={roles.map(([role]) => [role, role] as const)}
            onChange={(role) => change(user, { role }, `${user.name} is ${role} now.`)}
          />
        ) : (
          user.role
        ),
    },
    { name: "Teams", named: true, cell: (user) => (user.teams.length === 0 ? null : user.teams.join(", ")) },
    { name: "Last here", named: true, cell: (user) => (user.lastLoginAt === null ? "never" : <Ago at={user.lastLoginAt} />) },
    {
      name: "Do",
      as: "does",
      cell: (user) =>
        !mayChange(user) ? null : user.disabled ? (
          <button type="button" onClick={() => change(user, { disabled: false }, `${user.name} may log in again.`)}>
            Let in again
          </button>
        ) : (
          <Confirm label="Shut out" question="All their logins end at once." onConfirm={() => change(user, { disabled: true }, `${user.name} is shut out.`)} />
        ),
    },
  ];
  return <Table rows={rows} keyOf={(user) => user.id} columns={columns} />;
}

function Teams({ teams, users }: { teams: readonly TeamOut[]; users: readonly UserOut[] }) {
  const add = async (name: string): Promise<void> => {
    const id = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
    await api.post("/api/teams", { id, name, agents: [] });
    await attempt(() => Promise.resolve(), STALE);
  };
  return (
    <section aria-labelledby="teams-title">
      <div className="head more">
        <h2 id="teams-title">Teams</h2>
        <OneLine label="Name of the team" placeholder="A new team" button="Make" maxLength={60} onSubmit={add} />
      </div>
      {teams.length === 0 && <Nothing>No team yet. A team shares a space of the board, and the agents that you give it.</Nothing>}
      <ul className="cards beside" aria-label="Teams">
        {teams.map((team) => (
          <li key={team.id}>
            <Team team={team} users={users} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Team({ team, users }: { team: TeamOut; users: readonly UserOut[] }) {
  const who: Who = useLoggedIn();
  const { data: agents = [] } = useApi("/api/agents");
  const path = { id: team.id };
  const others = users.filter((user) => !team.members.includes(user.login));
  const give = (id: string, on: boolean): void =>
    void attempt(
      () => api.patch("/api/teams/{id}", { agents: on ? [...team.agents, id] : team.agents.filter((one) => one !== id) }, { path }),
      STALE,
    );
  return (
    <article className="card">
      <header>
        <h3>
          <Told text={team.name} />
        </h3>
        <span className="quiet">{team.members.length === 1 ? "one person" : `${team.members.length} people`}</span>
      </header>
      <ul className="row" aria-label={`Members of ${team.name}`}>
        {team.members.map((login) => (
          <li key={login} className="tag removable">
            {login}
            <button
              type="button"
              className="tool"
              aria-label={`Take ${login} out of ${team.name}`}
              onClick={() => void attempt(() => api.delete("/api/teams/{id}/members/{user}", { path: { id: team.id, user: login } }), STALE)}
            >
              ×
            </button>
          </li>
        ))}
        {others.length > 0 && (
          <li>
            <Choice
              label={`Take somebody into ${team.name}`}
              value=""
              options={[["", "Add somebody…"] as const, ...others.map((user) => [user.login, user.name] as const)]}
              onChange={(login) => login !== "" && void attempt(() => api.put("/api/teams/{id}/members/{user}", undefined, { path: { id: team.id, user: login } }), STALE)}
            />
          </li>
        )}
      </ul>
      {agents.length > 0 && (
        <fieldset className="row">
          <legend>Agents they may talk to</legend>
          {agents.map((agent) => (
            <label key={agent.id} className="tick">
              <input type="checkbox" checked={team.agents.includes(agent.id)} onChange={(event) => give(agent.id, event.target.checked)} />
              {agent.name}
            </label>
          ))}
        </fieldset>
      )}
      {team.channels.length > 0 && (
        <p className="quiet">
          Its channels:{" "}
          {team.channels.map((one) => `${one.address}${one.exposed ? " (others write there)" : ""}`).join(", ")}
        </p>
      )}
      <div className="row">
        {(isOwner(who) || who.teams.includes(team.id)) && <Link to={`/teams/${team.id}/files`}>Files</Link>}
        <Confirm
          label="End the team"
          question="Its space and what was said in it stay."
          onConfirm={() => void attempt(() => api.delete("/api/teams/{id}", { path }), STALE, `${team.name} is no team any more.`)}
        />
      </div>
    </article>
  );
}
