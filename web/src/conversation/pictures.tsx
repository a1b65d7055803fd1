/** The pictures of a message. They lie in its raw form, which is read when they are looked at. */
import { useApi } from "../live/query";

interface Block {
  type?: string;
  data?: string;
  mimeType?: string;
  url?: string;
}

export function Pictures({ entryId }: { entryId: string }) {
  const { data } = useApi("/api/log/{id}", { path: { id: entryId }, query: { includeRaw: true } });
  return (
    <div className="pictures">
      {blocksOf(data?.raw ?? null).map((block, index) => (
        <img key={index} src={`data:${block.mimeType ?? "image/png"};base64,${block.data ?? ""}`} alt={`Picture ${index + 1}`} />
      ))}
    </div>
  );
}

function blocksOf(raw: string | null): Block[] {
  if (raw === null) return [];
  try {
    const found = JSON.parse(raw) as { content?: unknown; message?: { content?: unknown } };
    const content = found.message?.content ?? found.content;
    if (!Array.isArray(content)) return [];
    return (content as Block[]).filter((block) => block.type === "image" && typeof block.data === "string");
  } catch {
    return [];
  }
}
