/** What came with a message: pictures, which lie in its raw form and are read when they are looked at; and files. */
import { api } from "../api/client";
import type { AttachmentOut } from "../api/schema";
import type { Spoken } from "../api/types";
import { useApi } from "../live/query";
import { Icon } from "../parts/icon";
import { Told } from "../parts/verbatim";
import { base64 } from "./attachments";
import type { Enclosure } from "./outbox";

/** Pictures are shown, all else is to be saved. What the model was shown as a picture stands there once. */
export function Enclosed({ entry }: { entry: Spoken }) {
  const shown = entry.images > 0 ? [] : entry.files.filter(isPicture);
  const saved = entry.files.filter((file) => !isPicture(file));
  return (
    <>
      {entry.images > 0 && <Pictures entryId={entry.id} />}
      {shown.length > 0 && (
        <div className="pictures">
          {shown.map((file) => (
            <a key={file.id} href={to(file)} target="_blank" rel="noopener noreferrer">
              <img src={to(file)} alt={file.fileName} loading="lazy" />
            </a>
          ))}
        </div>
      )}
      {saved.length > 0 && (
        <ul className="chips" aria-label="Files">
          {saved.map((file) => (
            <li key={file.id} className="chip">
              <Icon name="clip" />
              <a href={to(file)} download={file.fileName}>
                <Told text={file.fileName} />
              </a>
              <span className="quiet">{size(file.sizeBytes)}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function isPicture(file: AttachmentOut): boolean {
  return file.mimeType.startsWith("image/");
}

function to(file: AttachmentOut): string {
  return `/api/attachments/${encodeURIComponent(file.id)}`;
}

function size(bytes: number): string {
  return bytes < 1024 ? `${bytes} bytes` : bytes < 1024 ** 2 ? `${Math.round(bytes / 1024)} kB` : `${(bytes / 1024 ** 2).toFixed(1)} MB`;
}

interface Block {
  type?: string;
  data?: string;
  mimeType?: string;
}

const RAW = { includeRaw: true } as const;

function Pictures({ entryId }: { entryId: string }) {
  const { data } = useApi("/api/log/{id}", { path: { id: entryId }, query: RAW });
  return (
    <div className="pictures">
      {blocksOf(data?.raw ?? null).map((block, index) => (
        <img key={index} src={`data:${block.mimeType};base64,${block.data}`} alt={`Picture ${index + 1}`} />
      ))}
    </div>
  );
}

/** What came with a message, to go along when it is sent again. */
export async function enclosedIn(entry: Spoken): Promise<Enclosure[]> {
  const files = entry.images > 0 ? entry.files.filter((file) => !isPicture(file)) : entry.files;
  return [...(await picturesOf(entry)), ...(await Promise.all(files.map(read)))];
}

async function picturesOf(entry: Spoken): Promise<Enclosure[]> {
  if (entry.images === 0) return [];
  const { raw } = await api.get("/api/log/{id}", { path: { id: entry.id }, query: RAW });
  return blocksOf(raw ?? null).map((block, index) => ({ ...block, name: `Picture ${index + 1}` }));
}

async function read(file: AttachmentOut): Promise<Enclosure> {
  const found = await fetch(to(file));
  if (!found.ok) throw new Error(`${file.fileName} is no longer there.`);
  return { name: file.fileName, mimeType: isPicture(file) ? file.mimeType : "", data: await base64(await found.blob()) };
}

function blocksOf(raw: string | null): { data: string; mimeType: string }[] {
  if (raw === null) return [];
  try {
    const found = JSON.parse(raw) as { content?: unknown; message?: { content?: unknown } };
    const content = found.message?.content ?? found.content;
    if (!Array.isArray(content)) return [];
    return (content as Block[]).flatMap(({ type, data, mimeType = "image/png" }) => (type === "image" && data !== undefined ? [{ data, mimeType }] : []));
  } catch {
    return [];
  }
}
