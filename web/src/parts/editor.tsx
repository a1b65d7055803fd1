/**
 * A field for a whole file: markdown or JSON in colours, lines with numbers, its own undo and search (Ctrl F).
 *
 * It stands in a shadow root, where CodeMirror keeps its styles as a sheet of the root: in the page itself it would
 * write a `<style>`, which the pages' policy forbids. `Tab` leaves it, as it leaves any other field.
 */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { defineLanguageFacet, HighlightStyle, Language, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { json } from "@codemirror/legacy-modes/mode/javascript";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorSelection, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { GFM, parser } from "@lezer/markdown";
import { useEffect, useEffectEvent, useRef } from "react";

export interface EditorProps {
  label: string;
  value: string;
  /** How often `value` was put there by other means than typing, such as an earlier version. */
  put: number;
  language: "markdown" | "json" | "text";
  readOnly: boolean;
  /** The line that somebody was led to; 0 for none. */
  line: number;
  onChange: (text: string) => void;
  onSave: () => void;
}

export default function Editor({ label, value, put, language, readOnly, line, onChange, onSave }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const changed = useEffectEvent(onChange);
  const saved = useEffectEvent(onSave);
  const given = useEffectEvent(() => value);

  useEffect(() => {
    if (host.current === null) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open", delegatesFocus: true });
    const extensions = [
      keymap.of([{ key: "Mod-s", preventDefault: true, run: () => (saved(), true) }]),
      ...COMMON,
      ...LANGUAGES[language],
      EditorState.readOnly.of(readOnly),
      EditorView.editable.of(!readOnly),
      EditorView.contentAttributes.of({ "aria-label": label, spellcheck: String(language === "markdown"), tabindex: "0" }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) changed(update.state.sliceDoc());
      }),
    ];
    const made = new EditorView({ root, parent: root, state: EditorState.create({ doc: given(), extensions }) });
    view.current = made;
    return () => made.destroy();
  }, [label, language, readOnly]);

  // Only then: what was typed is told to the page, and may come back as `value` once more was typed.
  useEffect(() => {
    const now = view.current;
    if (now === undefined || put === 0) return;
    now.dispatch({ changes: { from: 0, to: now.state.doc.length, insert: given() } });
  }, [put]);

  useEffect(() => {
    const now = view.current;
    if (now === undefined || line < 1) return;
    const { from, to } = now.state.doc.line(Math.min(line, now.state.doc.lines));
    now.dispatch({ selection: EditorSelection.range(from, to), effects: EditorView.scrollIntoView(from, { y: "center" }) });
    now.focus();
  }, [line]);

  return <div ref={host} className="file-text" />;
}

const COLOURS = HighlightStyle.define([
  { tag: tags.heading, fontWeight: "700" },
  { tag: tags.strong, fontWeight: "700" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: tags.strikethrough, textDecoration: "line-through" },
  { tag: [tags.link, tags.url], color: "var(--accent)" },
  { tag: [tags.comment, tags.processingInstruction, tags.quote, tags.contentSeparator], color: "var(--quiet)" },
  { tag: [tags.string, tags.monospace], color: "light-dark(#1a6a38, #8ad3a3)" },
  { tag: [tags.propertyName, tags.keyword], color: "light-dark(#8a2a6b, #e392c8)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "light-dark(#8f4300, #e8b36a)" },
]);

const LOOK = EditorView.theme({
  "&": { color: "var(--text)", minHeight: "inherit", maxHeight: "inherit", fontSize: "inherit", backgroundColor: "transparent" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { font: "0.93rem/1.6 var(--mono)", overflow: "auto" },
  ".cm-content": { padding: "var(--s3) 0", caretColor: "var(--text)", overflowWrap: "anywhere" },
  ".cm-line": { padding: "0 var(--s3)" },
  ".cm-gutters": { color: "var(--quiet)", backgroundColor: "transparent", border: "0" },
  ".cm-cursor": { borderInlineStartColor: "var(--text)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 6%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--chosen)" },
  ".cm-searchMatch": { backgroundColor: "var(--mark-ground)" },
  ".cm-panels": { color: "var(--text)", backgroundColor: "var(--sunken)", borderColor: "var(--line)" },
  ".cm-panel.cm-search": { padding: "var(--s2) var(--s6) var(--s2) var(--s3)" },
  ".cm-textfield, .cm-button": {
    color: "var(--text)",
    background: "var(--raised)",
    border: "1px solid var(--line-strong)",
    borderRadius: "var(--radius)",
    minHeight: "1.8rem",
    padding: "0 var(--s2)",
  },
  ".cm-panel.cm-search [name=close]": { color: "var(--text)", minWidth: "1.6rem", minHeight: "1.6rem" },
});

/**
 * What is typed over a selection is put there by us: the browser would give it the look of what went, as an inline
 * style that the pages' policy forbids. What is selected is asked of the browser: the editor hears of it only later.
 */
const TYPED_OVER = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || event.data === null || event.isComposing || view.composing) return false;
    if (view.state.readOnly || view.state.selection.ranges.length > 1) return false;
    const over = event.getTargetRanges()[0] ?? selectedIn(view);
    if (over === undefined || over.collapsed) return false;
    const from = view.posAtDOM(over.startContainer, over.startOffset);
    const to = view.posAtDOM(over.endContainer, over.endOffset);
    const changes = { from, to, insert: view.state.toText(event.data) };
    view.dispatch({ changes, selection: { anchor: from + changes.insert.length }, userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

/** Chromium tells an event in a shadow root no ranges, but the root itself what is selected in it. */
function selectedIn(view: EditorView): Range | undefined {
  const root = view.root as Partial<Document>;
  const selection = root.getSelection?.() ?? document.getSelection();
  if (!selection?.rangeCount) return undefined;
  const range = selection.getRangeAt(0);
  return view.contentDOM.contains(range.commonAncestorContainer) ? range : undefined;
}

const COMMON: Extension[] = [
  // Only this ends a line: what else a file has is kept to the letter, and shown where it hides.
  EditorState.lineSeparator.of("\n"),
  TYPED_OVER,
  highlightSpecialChars(),
  history(),
  drawSelection(),
  lineNumbers(),
  highlightActiveLine(),
  highlightSelectionMatches(),
  search({ top: true }),
  EditorView.lineWrapping,
  EditorView.perLineTextDirection.of(true),
  syntaxHighlighting(COLOURS),
  LOOK,
  keymap.of([...searchKeymap, ...historyKeymap, ...defaultKeymap]),
];

const LANGUAGES: Record<EditorProps["language"], Extension[]> = {
  markdown: [new Language(defineLanguageFacet(), parser.configure(GFM), [], "markdown")],
  json: [StreamLanguage.define({ ...json, tokenTable: { property: tags.propertyName } })],
  text: [],
};
