import { usePending } from "./pending";

/** How many calls wait for a decision; nothing where none does. */
export function PendingBadge() {
  const { rows, more } = usePending();
  const count = rows.filter((row) => row.status === "pending").length;
  if (count === 0) return null;
  return (
    <span className="badge">
      {more ? `${count}+` : count}
      <span className="spoken"> waiting</span>
    </span>
  );
}
