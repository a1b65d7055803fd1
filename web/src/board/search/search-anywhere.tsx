/** The search that is a key away on every page. */
import "./search.css";

import { useEffect, useRef, useState } from "react";

import { Icon } from "../../parts/icon";
import { SearchPanel } from "./search-panel";

export function SearchAnywhere() {
  const [open, setOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);

  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);

  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);

  return (
    <>
      <button type="button" className="search-open" aria-label="Search" aria-keyshortcuts="/" onClick={() => setOpen(true)}>
        <Icon name="search" /> <span>Search</span> <kbd aria-hidden="true">/</kbd>
      </button>
      {open && (
        <dialog
          ref={dialog}
          className="search-dialog"
          aria-label="Search"
          onClose={() => setOpen(false)}
          onClick={(event) => {
            if (event.target === dialog.current) setOpen(false);
          }}
        >
          <SearchPanel onOpen={() => setOpen(false)} />
        </dialog>
      )}
    </>
  );
}

/** Whether a key belongs to the words that somebody is writing. */
function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
