import { useWaiting } from "../conversation/outbox";
import { useLiveState } from "../live/hooks";
import { live } from "../live/live";
import { Icon } from "../parts/icon";

/** Says so while the gateway cannot be reached: what is kept meanwhile, and what happens to it. */
export function Connection() {
  const { status } = useLiveState();
  const waiting = useWaiting();
  return (
    <div role="status" className="connection">
      {status === "down" && (
        <p>
          <Icon name="offline" /> The connection to the gateway is down; what you see may be old.{" "}
          {waiting > 0
            ? `${waiting === 1 ? "One message is" : `${waiting} messages are`} kept here and will be sent when it is back.`
            : "What you write is kept here."}{" "}
          <button type="button" className="plain" onClick={live.tryNow}>
            Try now
          </button>
        </p>
      )}
    </div>
  );
}
