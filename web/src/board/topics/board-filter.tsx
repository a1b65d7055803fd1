import { Choice } from "../../parts/choice";
import { PRIORITIES, wordFor } from "../statuses";

interface BoardFilterProps {
  text: string;
  priority: string;
  tag: string;
  onChange: (name: "q" | "priority" | "tag", value: string) => void;
}

export function BoardFilter({ text, priority, tag, onChange }: BoardFilterProps) {
  const priorities = [["", "Any priority"], ...PRIORITIES.map((one) => [one, wordFor(one)] as const)] as const;
  return (
    <div className="row filter" role="search" aria-label="Filter topics">
      <input
        type="search"
        className="grow"
        aria-label="Filter by words"
        placeholder="Filter topics…"
        value={text}
        onChange={(event) => onChange("q", event.target.value)}
      />
      <Choice label="Filter by priority" value={priority} options={priorities} onChange={(one) => onChange("priority", one)} />
      {tag !== "" && (
        <button type="button" className="tag" onClick={() => onChange("tag", "")} title="Show all tags">
          {tag} <span aria-hidden="true">×</span>
          <span className="spoken"> no longer filter by this tag</span>
        </button>
      )}
    </div>
  );
}
