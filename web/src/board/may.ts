import { useLoggedIn } from "../shell/login-state";

/** Whether this login may change anything: to one that may only read, nothing is offered that would be refused. */
export function useMayWrite(): boolean {
  return useLoggedIn().scope !== "read";
}

/** Whether this login may talk to agents on the board: their runs lie in no space, and the key names no agent. */
export function useMayAsk(): boolean {
  const may = useMayWrite();
  return useSeesRuns() && may;
}

/** Whether this login sees what goes on in the sessions of the board. */
export function useSeesRuns(): boolean {
  const who = useLoggedIn();
  return who.spaces === null && who.agents === null;
}
