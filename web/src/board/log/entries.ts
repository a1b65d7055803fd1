/** Entries of the log as a list that is live, read on backwards on demand. */
import { useMemo, useState, useSyncExternalStore } from "react";

import { get } from "../../api/client";
import { Collection, type Held } from "../../live/collection";
import { topics } from "../places";
import type { Entry } from "../types";
import { asQuery, type LogFilter, matches } from "./matches";

export interface Entries {
  entries: Collection<Entry>;
  held: Held<Entry>;
}

const PAGE = 60;

export function useEntries(filter: LogFilter): Entries {
  const key = JSON.stringify(filter);
  const entries = useMemo(() => {
    const wanted = JSON.parse(key) as LogFilter;
    return new Collection<Entry>({
      path: "/api/log",
      query: { ...asQuery(wanted), limit: PAGE },
      prefix: "log.",
      paged: true,
      holds: (entry) => matches(entry, wanted, spacesOf),
    });
  }, [key]);
  return { entries, held: useSyncExternalStore(entries.watch, entries.current) };
}

/** One entry alone. */
export function useEntry(id: string): Entries {
  const entries = useMemo(
    () =>
      new Collection<Entry>({
        path: "/api/log",
        prefix: "log.",
        read: async () => ({ rows: [await get<Entry>(`/api/log/${encodeURIComponent(id)}`)], next: null }),
        holds: (entry) => entry.id === id,
      }),
    [id],
  );
  return { entries, held: useSyncExternalStore(entries.watch, entries.current) };
}

/** Reads the page behind the last one, and says while it does. */
export function useOlder(entries: Collection<Entry>): { reading: boolean; read: () => Promise<void> } {
  const [reading, setReading] = useState(false);
  async function read(): Promise<void> {
    setReading(true);
    await entries.older();
    setReading(false);
  }
  return { reading, read };
}

function spacesOf(topicId: string): readonly string[] {
  return topics.current().rows.find((topic) => topic.id === topicId)?.spaceIds ?? [];
}
