import { useEffect, useEffectEvent, useSyncExternalStore } from "react";

import { live, type Change, type LiveState } from "./live";

export function useLiveState(): LiveState {
  return useSyncExternalStore(live.watch, live.current);
}

/** Call `handler` with each change whose type begins with `prefix`, for as long as the component is there. */
export function useChanges(prefix: string, handler: (change: Change) => void): void {
  const heard = useEffectEvent(handler);
  useEffect(() => live.on(prefix, (change) => heard(change)), [prefix]);
}
