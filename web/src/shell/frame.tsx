/** What stands around every page: navigation, how the connection is, who is logged in. */
import { lazy, Suspense, useEffect, useRef, useState } from "react";

import type { Who } from "../api/types";
import { SearchAnywhere } from "../board/search/search-anywhere";
import { Icon } from "../parts/icon";
import { Skeleton } from "../parts/states";
import { useCountInTitle, useNoticeOfAnswers, useTitle } from "../parts/title";
import { Toasts } from "../parts/toast";
import { Link, type Route, isUnder, placeOf, useLocation } from "../router/router";
import { routes } from "../routes";
import { Boundary } from "./boundary";
import { Connection } from "./connection";
import { logOut } from "./login-state";
import { isMac, useShortcuts } from "./shortcuts";
import { useTheme } from "./theme";

const Palette = lazy(() => import("./palette"));
const Help = lazy(() => import("./help"));

const TABS = 4;

/** The pages that have a name in the navigation, and that this login may see. */
function named(who: Who): readonly Route[] {
  return routes.filter((route) => route.nav !== undefined && (route.may?.(who) ?? true));
}

export function Frame({ who }: { who: Who }) {
  const location = useLocation();
  const path = location.pathname;
  const found = placeOf(path, routes);
  const place = found?.route.may?.(who) === false ? null : found;
  const [open, setOpen] = useState<"palette" | "help" | "menu" | null>(null);
  useFocusOnArrival(path);
  useTitle(place?.route.title ?? "Not found");
  useCountInTitle();
  useNoticeOfAnswers();
  useShortcuts(setOpen);
  useEffect(() => {
    const closed = (): void => setOpen((now) => (now === "menu" ? null : now));
    addEventListener("popstate", closed);
    return () => removeEventListener("popstate", closed);
  }, []);

  return (
    <div className={place?.route.full === true ? "frame full" : "frame"}>
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <header className="side">
        <Link to="/" className="brand" aria-label="Holdfast, home">
          <img src="/icon.svg" alt="" width="24" height="24" /> <span>Holdfast</span>
        </Link>
        <button type="button" className="palette-open" aria-keyshortcuts="Control+K Meta+K" onClick={() => setOpen("palette")}>
          <Icon name="search" /> <span>Go to…</span> <kbd aria-hidden="true">{isMac() ? "⌘ K" : "Ctrl K"}</kbd>
        </button>
        <Navigation who={who} path={path} onMore={() => setOpen(open === "menu" ? null : "menu")} more={open === "menu"} />
        <span className="grow" />
        <SearchAnywhere />
        <Account who={who} onHelp={() => setOpen("help")} />
      </header>
      <div className="stage">
        <Connection />
        <main id="main" tabIndex={-1}>
          <Boundary key={path}>
            <Suspense fallback={<Skeleton rows={6} what="the page" />}>
              {place === null ? <Missing path={path} /> : <place.route.page params={place.params} query={location.searchParams} />}
            </Suspense>
          </Boundary>
        </main>
      </div>
      {open === "menu" && <Sheet who={who} path={path} close={() => setOpen(null)} onHelp={() => setOpen("help")} />}
      <Boundary key={open}>
        <Suspense fallback={null}>
          {open === "palette" && <Palette close={() => setOpen(null)} onHelp={() => setOpen("help")} />}
          {open === "help" && <Help close={() => setOpen(null)} />}
        </Suspense>
      </Boundary>
      <Toasts />
    </div>
  );
}

/** Who follows a link by keyboard, or hears the page, goes on at the new page and not at the old link. */
function useFocusOnArrival(path: string): void {
  const before = useRef(path);
  useEffect(() => {
    if (before.current !== path) document.getElementById("main")?.focus();
    before.current = path;
  }, [path]);
}

function Navigation({ who, path, onMore, more }: { who: Who; path: string; onMore: () => void; more: boolean }) {
  const shown = named(who);
  return (
    <nav className="pages" aria-label="Pages">
      <ul>
        {shown.map((route, index) => (
          <li
            key={route.path}
            className={[index < TABS ? "" : "not-phone", route.apart === true && shown[index - 1]?.apart !== true ? "apart" : ""].join(" ").trim() || undefined}
          >
            <Link to={route.path} aria-current={isHere(path, route.path) ? "page" : undefined} title={route.nav}>
              <span className="nav-sign">{route.icon !== undefined && <Icon name={route.icon} size={18} />}</span>
              <span className="nav-word">{route.nav}</span>
              {route.badge !== undefined && (
                <>
                  {" "}
                  <route.badge />
                </>
              )}
            </Link>
          </li>
        ))}
        <li className="only-phone">
          <button type="button" aria-expanded={more} onClick={onMore}>
            <span className="nav-sign">
              <Icon name="menu" size={18} />
            </span>
            <span className="nav-word">More</span>
          </button>
        </li>
      </ul>
    </nav>
  );
}

function isHere(path: string, route: string): boolean {
  return route === "/" ? path === "/" : isUnder(path, route);
}

function Account({ who, onHelp }: { who: Who; onHelp: () => void }) {
  const [theme, turn] = useTheme();
  return (
    <div className="account">
      <Link to="/account" className="who" title={`This login may ${who.scope}`}>
        <Icon name="agent" /> {who.name}
      </Link>
      <button type="button" className="quiet-button" onClick={turn}>
        <Icon name="theme" /> {{ system: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[theme]}
      </button>
      <button type="button" className="quiet-button" aria-keyshortcuts="?" onClick={onHelp}>
        <Icon name="keys" /> Shortcuts
      </button>
      <button type="button" className="quiet-button" onClick={() => void logOut()}>
        <Icon name="out" /> Log out
      </button>
    </div>
  );
}

/** On a phone: the pages that have no tab, and who is logged in. */
function Sheet({ who, path, close, onHelp }: { who: Who; path: string; close: () => void; onHelp: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="sheet" aria-label="More" onClose={close} onClick={close}>
      <ul>
        {named(who).slice(TABS).map((route) => (
          <li key={route.path}>
            <Link to={route.path} aria-current={isHere(path, route.path) ? "page" : undefined}>
              {route.icon !== undefined && <Icon name={route.icon} size={18} />} {route.nav}
            </Link>
          </li>
        ))}
      </ul>
      <Account who={who} onHelp={onHelp} />
    </dialog>
  );
}

function Missing({ path }: { path: string }) {
  return (
    <section className="missing">
      <h1>There is no such page</h1>
      <p>
        Nothing is at <code>{path}</code>. <Link to="/">Go home</Link>
      </p>
    </section>
  );
}
