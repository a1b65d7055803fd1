/** What somebody wrote, as markdown once its reader is there, and as plain text until then. */
import "./prose.css";

import { lazy, Suspense } from "react";

import { directionOf } from "./gist";
import { Told } from "./verbatim";

const Markdown = lazy(() => import("./markdown"));

export function Prose({ text, below = 2 }: { text: string; below?: number }) {
  return (
    <Suspense
      fallback={
        <div className="prose" dir={directionOf(text)}>
          <p className="said">
            <Told text={text} />
          </p>
        </div>
      }
    >
      <Markdown text={text} below={below} />
    </Suspense>
  );
}
