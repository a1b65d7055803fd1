/**
 * The shell of the pages, for when the gateway cannot be reached: files only. What the gateway says is never
 * kept here, so that nobody reads it after a log-out.
 */
const SHELL = "holdfast-shell";
const INDEX = "/index.html";

addEventListener("install", (event) => event.waitUntil(skipWaiting()));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

/** What a page had loaded before this was in force; or what somebody who looks elsewhere is to be told. */
addEventListener("message", (event) => {
  if (event.data?.notice !== undefined) {
    event.waitUntil(tell(event.data.notice, event.source));
    return;
  }
  const wanted = (event.data?.keep ?? []).filter((url) => isFile(new URL(url)));
  event.waitUntil(caches.open(SHELL).then((shell) => Promise.allSettled([INDEX, ...wanted].map((url) => shell.add(url)))));
});

/** Nobody is told who looks at one of the tabs. The one that asks for it knows that of itself, and sooner than we do. */
async function tell({ tag, title, body, path }, asking) {
  const tabs = await clients.matchAll({ type: "window" });
  if (tabs.some((tab) => tab.focused && tab.id !== asking?.id)) return;
  await registration.showNotification(title, { tag, body, icon: "/icon-192.png", data: { path } });
}

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.path));
});

/** In a tab that is there, or a new one. */
async function open(path) {
  const [tab] = await clients.matchAll({ type: "window" });
  if (tab === undefined) {
    await clients.openWindow(path);
    return;
  }
  tab.postMessage({ go: path }); // also where the browser does not let us come to the front
  await tab.focus();
}

addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (request.mode === "navigate") event.respondWith(page(request));
  else if (isFile(url)) event.respondWith(file(request));
});

function isFile(url) {
  return url.origin === location.origin && (url.pathname.startsWith("/assets/") || /^\/[\w-]+\.(svg|png)$/.test(url.pathname));
}

async function page(request) {
  const shell = await caches.open(SHELL);
  try {
    const answer = await fetch(request);
    if (answer.ok && answer.headers.get("content-type")?.startsWith("text/html")) await renew(shell, answer.clone());
    return answer;
  } catch (error) {
    const kept = await shell.match(INDEX);
    if (kept === undefined) throw error;
    return kept;
  }
}

/** Another build has other files: those of the one before go. */
async function renew(shell, answer) {
  const before = await (await shell.match(INDEX))?.text();
  const now = await answer.clone().text();
  if (before !== undefined && before !== now) {
    for (const key of await shell.keys()) await shell.delete(key);
  }
  await shell.put(INDEX, answer);
}

async function file(request) {
  const shell = await caches.open(SHELL);
  const kept = await shell.match(request);
  if (kept !== undefined) return kept;
  const answer = await fetch(request);
  if (answer.ok) await shell.put(request, answer.clone());
  return answer;
}
