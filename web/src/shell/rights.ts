/** What a login may do. The gateway decides; here it is only not offered what would be refused. */
import type { Who } from "../api/types";

export function isUnlimited(who: Who): boolean {
  return who.spaces === null && who.agents === null;
}

export function isOwner(who: Who): boolean {
  return who.scope === "admin" && isUnlimited(who);
}

/** Memory lies in no space. */
export function seesMemory(who: Who): boolean {
  return who.spaces === null;
}

/** Who invites and changes people, and reads what everybody did. */
export function managesPeople(who: Who): boolean {
  return who.role === null ? isOwner(who) : who.role === "owner" || who.role === "admin";
}

/** Who edits the files of their teams: all but those who only read. */
export function writesForTeams(who: Who): boolean {
  return who.scope !== "read" && who.role !== "viewer";
}
