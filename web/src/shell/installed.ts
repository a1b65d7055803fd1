/** The pages as an app: their files are kept, so that they open while the gateway is away. */

/** Have the worker keep what is loaded; where a browser has none, or refuses, the pages are as they were. */
export async function keepShell(): Promise<void> {
  if (!("serviceWorker" in navigator)) return;
  try {
    await navigator.serviceWorker.register("/sw.js");
    const { active } = await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
    active?.postMessage({ keep: loaded });
  } catch {
    // Only over HTTPS or on this machine; elsewhere nothing is kept.
  }
}
