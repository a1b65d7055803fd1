import { useWaiting } from "../conversation/outbox";
import { useFrozen } from "../live/answering";
import { useLiveState } from "../live/hooks";
import { live } from "../live/live";
import { Icon } from "../parts/icon";
import { begin } from "./login-state";

/** Says so while the gateway cannot be reached, or is there and does not answer: what is kept meanwhile. */
export function Connection() {
  const { status } = useLiveState();
  const frozen = useFrozen();
  const kept = useKept();
  return (
    <div role="status" className="connection">
      {status === "down" ? (
        <p>
          <Icon name="offline" /> The connection to the gateway is down; what you see may be old. {kept}{" "}
          <button type="button" className="plain" onClick={live.tryNow}>
            Try now
          </button>
        </p>
      ) : (
        frozen && (
          <p>
            <Icon name="offline" /> The gateway is there and does not answer; what you see may be old. {kept}
          </p>
        )
      )}
    </div>
  );
}

function useKept(): string {
  const waiting = useWaiting();
  if (waiting === 0) return "What you write is kept here.";
  return `${waiting === 1 ? "One message is" : `${waiting} messages are`} kept here and will be sent when it is back.`;
}

/** In place of everything, where the pages were opened and no gateway answered yet. */
export function Away() {
  const kept = useKept();
  return (
    <main className="login" role="status">
      <h1>
        <img src="/icon.svg" alt="" width="32" height="32" /> Holdfast
      </h1>
      <p>
        <Icon name="offline" /> <strong>The gateway cannot be reached.</strong> It is tried again by itself. {kept}
      </p>
      <p>
        <button type="button" onClick={() => void begin()}>
          Try now
        </button>
      </p>
      <p className="quiet">
        If it runs on this machine, <code>holdfast status</code> says how it is, and <code>holdfast up</code> starts it.
      </p>
    </main>
  );
}
