/** The name of the page in the tab, with how much waits for a person. */
import { useEffect } from "react";

import { usePending } from "../approvals/pending";

let own = "";
let count = 0;

function show(): void {
  document.title = `${count > 0 ? `(${count}) ` : ""}${own === "" ? "" : `${own} · `}Holdfast`;
}

/** What this page, or what is open on it, is called. */
export function useTitle(name: string): void {
  useEffect(() => {
    own = name;
    show();
  }, [name]);
}

/** Keeps the count in the title; once, for all pages. */
export function useCountInTitle(): void {
  const waiting = usePending().rows.filter((row) => row.status === "pending").length;
  useEffect(() => {
    count = waiting;
    show();
  }, [waiting]);
}
