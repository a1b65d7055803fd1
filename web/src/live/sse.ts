/** Server-sent events from a stream of bytes, as the gateway sends them. */
export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

export async function* serverEvents(stream: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = stream.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const found = parsed(block);
        if (found !== null) yield found;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parsed(block: string): ServerEvent | null {
  const found: ServerEvent = { id: null, event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "id") found.id = value;
    else if (name === "event") found.event = value;
  }
  return data.length === 0 ? null : { ...found, data: data.join("\n") };
}
