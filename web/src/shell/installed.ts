/** The pages as an app: their files are kept, so that they open while the gateway is away; and a word from the browser to who looks elsewhere. */
import { go } from "../router/router";

/** Have the worker keep what is loaded; where a browser has none, or refuses, the pages are as they were. */
export async function keepShell(): Promise<void> {
  if (!("serviceWorker" in navigator)) return;
  try {
    await navigator.serviceWorker.register("/sw.js");
    navigator.serviceWorker.addEventListener("message", (event: MessageEvent<{ go?: string }>) => {
      if (typeof event.data.go === "string") go(event.data.go);
    });
    const { active } = await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
    active?.postMessage({ keep: loaded });
  } catch {
    // Only over HTTPS or on this machine; elsewhere nothing is kept.
  }
}

export interface Notice {
  /** The same from two tabs is shown once. */
  tag: string;
  title: string;
  body: string;
  /** The page that it leads to. */
  path: string;
}

export function mayOfferNotices(): boolean {
  return "Notification" in window && Notification.permission === "default";
}

/** Only to who looks at none of our tabs, and without what was said: it may show on a locked screen. */
export async function notify(notice: Notice): Promise<void> {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  const worker = await navigator.serviceWorker.getRegistration().catch(() => undefined);
  if (worker?.active != null) {
    worker.active.postMessage({ notice });
    return;
  }
  const shown = new Notification(notice.title, { body: notice.body, tag: notice.tag, icon: "/icon-192.png" });
  shown.onclick = () => {
    window.focus();
    go(notice.path);
    shown.close();
  };
}
