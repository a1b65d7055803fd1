/** Code to read and to take along; its colours come a moment later, with the highlighter. */
import { type ReactNode, useEffect, useState } from "react";

import { CopyButton } from "./copy";
import { Told } from "./verbatim";

const MOST = 30_000;
const PAUSE_MS = 120;

interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
}

export function CodeBlock({ language, text }: { language: string; text: string }) {
  const name = language.split(/\s/)[0] ?? "";
  const coloured = useColours(name, text);
  return (
    <figure className="code-block">
      <figcaption>
        <span>{name === "" ? "text" : name}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre tabIndex={0} aria-label={`Code, ${name === "" ? "text" : name}`} dir="ltr">
        <code>{coloured ?? <Told text={text} />}</code>
      </pre>
    </figure>
  );
}

function useColours(language: string, text: string): ReactNode {
  const [found, setFound] = useState<{ text: string; nodes: Node[] }>();
  useEffect(() => {
    if (language === "" || text.length > MOST) return;
    let gone = false;
    const timer = setTimeout(() => {
      void import("./highlight").then(({ coloured }) => {
        const nodes = gone ? null : coloured(language, text);
        if (nodes !== null) setFound({ text, nodes });
      });
    }, PAUSE_MS);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [language, text]);
  return found?.text === text ? found.nodes.map(element) : undefined;
}

function element(node: Node, key: number): ReactNode {
  if (node.type === "text") return <Told key={key} text={node.value ?? ""} />;
  return (
    <span key={key} className={(node.properties?.className ?? []).join(" ")}>
      {(node.children ?? []).map(element)}
    </span>
  );
}
