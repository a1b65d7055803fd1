/** What is typed into a heartbeat's form, and what of it the config is told. */
import type { HeartbeatOut } from "../api/schema";

export interface Typed {
  every: string;
  target: string;
  prompt: string;
  start: string;
  end: string;
}

export function typedOf({ every, target, prompt, activeHours }: Pick<HeartbeatOut, "every" | "target" | "prompt" | "activeHours">): Typed {
  return { every, target, prompt: prompt ?? "", start: activeHours?.start ?? "", end: activeHours?.end ?? "" };
}

/** A merge patch of what was changed; an emptied field takes its setting out. Hours go and come together. */
export function changesOf(before: Typed, after: Typed): Record<string, unknown> {
  const is = (name: keyof Typed): string => after[name].trim();
  const given = (name: keyof Typed): string | null => (is(name) === "" ? null : is(name));
  const moved = (name: keyof Typed): boolean => is(name) !== before[name].trim();
  const changes: Record<string, unknown> = {};
  for (const name of ["every", "target", "prompt"] as const) if (moved(name)) changes[name] = given(name);
  if (moved("start") || moved("end")) {
    changes.activeHours = is("start") === "" && is("end") === "" ? null : { start: given("start"), end: given("end") };
  }
  return changes;
}
