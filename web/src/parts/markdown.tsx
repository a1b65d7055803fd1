/**
 * Markdown as React elements, block by block: a block that did not change is not drawn anew while an answer
 * streams. There is no way from text to markup: HTML is shown as the text that it is, pictures from elsewhere are
 * links, and a link leads only to the web or to a mailbox.
 */
import { Lexer, type Token, type Tokens } from "marked";
import { Fragment, memo, type ReactNode, useMemo } from "react";

import { CodeBlock } from "./code";
import { directionOf } from "./gist";
import { Told } from "./verbatim";

const SAFE = /^(https?:|mailto:)/i;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", apos: "'", nbsp: " " };

/** `below` is the heading that the text stands under: its own go on from there, without a gap. */
export default function MarkdownBody({ text, below = 2 }: { text: string; below?: number }) {
  const blocks = useMemo(() => levelled(Lexer.lex(text, { gfm: true, breaks: true }), below), [text, below]);
  return (
    <div className="prose" dir={directionOf(text)}>
      {blocks.map((token, index) => (
        <Block key={index} token={token} />
      ))}
    </div>
  );
}

function levelled(blocks: Token[], below: number): Token[] {
  const isHeading = (token: Token): token is Tokens.Heading => token.type === "heading";
  const depths = [...new Set(blocks.filter(isHeading).map((token) => token.depth))].sort((a, b) => a - b);
  for (const token of blocks) if (isHeading(token)) token.depth = Math.min(6, below + 1 + depths.indexOf(token.depth));
  return blocks;
}

const Block = memo(
  function Block({ token }: { token: Token }) {
    return block(token);
  },
  (a, b) => a.token.raw === b.token.raw && a.token.type === b.token.type && (a.token as Tokens.Heading).depth === (b.token as Tokens.Heading).depth,
);

function block(token: Token): ReactNode {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const { depth, tokens } = token as Tokens.Heading;
      const Level = (["h2", "h3", "h4", "h5", "h6"] as const)[depth - 2] ?? "h6";
      return <Level>{inline(tokens)}</Level>;
    }
    case "code": {
      const { lang, text } = token as Tokens.Code;
      return <CodeBlock language={lang ?? ""} text={text} />;
    }
    case "blockquote":
      return <blockquote>{blocksOf((token as Tokens.Blockquote).tokens)}</blockquote>;
    case "list":
      return list(token as Tokens.List);
    case "table":
      return table(token as Tokens.Table);
    case "hr":
      return <hr />;
    case "html":
      return (
        <p>
          <Told text={token.raw.trimEnd()} />
        </p>
      );
    case "paragraph":
      return <p>{inline((token as Tokens.Paragraph).tokens)}</p>;
    default:
      return "tokens" in token && Array.isArray(token.tokens) ? inline(token.tokens) : words(token.raw);
  }
}

function blocksOf(tokens: Token[]): ReactNode {
  return tokens.map((token, index) => <Fragment key={index}>{block(token)}</Fragment>);
}

function list({ ordered, start, items }: Tokens.List): ReactNode {
  const rows = items.map((item, index) => (
    <li key={index} className={item.task ? "ticked" : undefined}>
      {item.task && <input type="checkbox" checked={item.checked === true} disabled aria-label="Done" />}
      {blocksOf(item.tokens.filter((token) => token.type !== "checkbox"))}
    </li>
  ));
  return ordered ? <ol start={start === "" ? 1 : start}>{rows}</ol> : <ul>{rows}</ul>;
}

function table({ header, rows }: Tokens.Table): ReactNode {
  return (
    <div className="scroll" role="group" aria-label="Table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {header.map((cell, index) => (
              <th key={index} scope="col">
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, at) => (
                <td key={at}>{inline(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: Token[]): ReactNode {
  return tokens.map((token, index) => <Fragment key={index}>{piece(token)}</Fragment>);
}

function piece(token: Token): ReactNode {
  switch (token.type) {
    case "strong":
      return <strong>{inline((token as Tokens.Strong).tokens)}</strong>;
    case "em":
      return <em>{inline((token as Tokens.Em).tokens)}</em>;
    case "del":
      return <del>{inline((token as Tokens.Del).tokens)}</del>;
    case "codespan":
      return (
        <code>
          <Told text={(token as Tokens.Codespan).text} />
        </code>
      );
    case "br":
      return <br />;
    case "link": {
      const { href, tokens } = token as Tokens.Link;
      return <Away href={href}>{inline(tokens)}</Away>;
    }
    case "image": {
      const { href, text } = token as Tokens.Image;
      return <Away href={href}>{words(text === "" ? "picture" : text)}</Away>;
    }
    case "escape":
      return words((token as Tokens.Escape).text);
    case "text": {
      const { tokens, text } = token as Tokens.Text;
      return tokens === undefined ? words(text) : inline(tokens);
    }
    default:
      return words(token.raw);
  }
}

function Away({ href, children }: { href: string; children: ReactNode }) {
  if (!SAFE.test(href)) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" title={href}>
      {children}
    </a>
  );
}

function words(text: string): ReactNode {
  return <Told text={text.replace(/&(amp|lt|gt|quot|#39|apos|nbsp);/g, (_, name: string) => ENTITIES[name] ?? "")} />;
}
