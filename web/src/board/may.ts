import { useLogin } from "../shell/login-state";

/** Whether this login may change anything: to one that may only read, nothing is offered that would be refused. */
export function useMayWrite(): boolean {
  const login = useLogin();
  return login.is === "in" && login.who.scope !== "read";
}

/** Whether this login may talk to agents on the board: their runs lie in no space, and the key names no agent. */
export function useMayAsk(): boolean {
  const login = useLogin();
  return useMayWrite() && login.is === "in" && login.who.spaces === null && login.who.agents === null;
}
