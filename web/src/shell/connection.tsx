import { useLiveState } from "../live/hooks";
import { live } from "../live/live";

/** Says so while the live connection is down: what is shown may be old. */
export function Connection() {
  const { status } = useLiveState();
  return (
    <div role="status" className="connection">
      {status === "down" && (
        <p>
          The connection to the gateway is down; what you see may be old. Trying again by itself.{" "}
          <button type="button" className="plain" onClick={live.tryNow}>
            Try now
          </button>
        </p>
      )}
    </div>
  );
}
