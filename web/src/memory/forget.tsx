/** Forgetting something that was said: what goes with it, and what else quotes it, before it is done. */
import { useEffect, useRef, useState } from "react";

import { api } from "../api/client";
import type { ForgottenOut, QuoteOut, QuotesOut } from "../api/schema";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";

export function Forget({ entryId, close }: { entryId: string; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const { data, error } = useApi("/api/memory/quotes", { query: { entryId } });
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="forget" aria-labelledby="forget-title" onClose={close}>
      <h2 id="forget-title">Forget this for good?</h2>
      {error !== null && <Trouble problem={error} />}
      {data === undefined && error === null && <Skeleton rows={4} what="what quotes it" />}
      {data !== undefined && <Choice found={data} close={() => dialog.current?.close()} />}
    </dialog>
  );
}

function Choice({ found, close }: { found: QuotesOut; close: () => void }) {
  const others = found.quotes.filter((quote) => quote.kind === "entry");
  const files = found.quotes.filter((quote) => quote.kind === "file");
  const going = found.quotes.filter((quote) => quote.goes);
  const [also, setAlso] = useState<readonly string[]>([]);

  async function forget(): Promise<void> {
    let done: ForgottenOut | undefined;
    const act = async (): Promise<void> => {
      done = await api.post("/api/memory/forget", { entryIds: [found.entryId, ...also] });
    };
    if (await attempt(act, ["/api/memory/search", "/api/memory/status"])) {
      toast(told(done));
      close();
    }
  }

  return (
    <>
      <blockquote className="verbatim">
        <Told text={found.text} />
      </blockquote>
      <p className="quiet">
        Said <Ago at={found.createdAt} />. It leaves the log, the index and the accounts of what models were given. This cannot be undone.
      </p>
      {going.length > 0 && (
        <p>
          {going.length === 1 ? "A digest or summary that quotes it loses" : `${going.length} digests and summaries that quote it lose`} its words too.
        </p>
      )}
      {others.length > 0 && (
        <fieldset>
          <legend>Others say the same. Forget these as well:</legend>
          {others.map((quote) => (
            <label key={quote.id} className="tick">
              <input
                type="checkbox"
                checked={also.includes(quote.id)}
                onChange={(event) => setAlso(event.target.checked ? [...also, quote.id] : also.filter((id) => id !== quote.id))}
              />
              <span>
                <Told text={quote.text} />
              </span>
            </label>
          ))}
        </fieldset>
      )}
      {files.length > 0 && <Files quotes={files} />}
      {found.quotes.length === 0 && !found.cut && <p>Nothing else quotes it.</p>}
      {found.cut && (
        <p className="note">
          There may be more: the log is too long to look through whole. Search for its words to find others that say the same.
        </p>
      )}
      <div className="row">
        <button type="button" className="danger" onClick={() => void forget()}>
          {also.length === 0 ? "Forget it" : `Forget all ${also.length + 1}`}
        </button>
        <button type="button" autoFocus onClick={close}>
          Keep it
        </button>
      </div>
    </>
  );
}

/** Files are a person's own: they are opened at the line, and not changed by themselves. */
function Files({ quotes }: { quotes: readonly QuoteOut[] }) {
  return (
    <div>
      <p>These notes quote it and stay as they are. Edit them to take it out:</p>
      <ul className="quoting">
        {quotes.map((quote) => (
          <li key={`${quote.agent} ${quote.id} ${quote.line}`}>
            <Link to={`/memory/files?agent=${encodeURIComponent(quote.agent ?? "")}&path=${encodeURIComponent(quote.id)}&line=${quote.line ?? 1}`}>
              {quote.id}, line {quote.line}
            </Link>{" "}
            <span className="quiet">
              <Told text={quote.text} />
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function told(done: ForgottenOut | undefined): string {
  if (done === undefined) return "Forgotten.";
  const more = done.contexts + done.summaries + done.digests + done.versions;
  const entries = done.entries === 1 ? "Forgotten" : `${done.entries} entries are forgotten`;
  return more === 0 ? `${entries}.` : `${entries}, with ${more} ${more === 1 ? "copy" : "copies"} of the words.`;
}
