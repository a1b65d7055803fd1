/** What stands around every page: navigation, how the connection is, who is logged in. */
import { Suspense, useEffect, useRef } from "react";

import type { Who } from "../api/types";
import { SearchAnywhere } from "../board/search/search-anywhere";
import { Loading } from "../parts/states";
import { Link, go, isUnder, placeOf, useLocation } from "../router/router";
import { home, routes } from "../routes";
import { Connection } from "./connection";
import { logOut } from "./login-state";
import { Boundary } from "./boundary";

export function Frame({ who }: { who: Who }) {
  const location = useLocation();
  const path = location.pathname;
  const place = placeOf(path, routes);
  useEffect(() => {
    if (path === "/") go(home, { replace: true });
  }, [path]);
  useFocusOnArrival(path);
  useEffect(() => {
    document.title = place === null ? "Holdfast" : `${place.route.title} · Holdfast`;
  }, [place]);

  return (
    <>
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <header className="bar">
        <Link to="/" className="brand" aria-label="Holdfast, start">
          <img src="/icon.svg" alt="" width="22" height="22" /> <span>Holdfast</span>
        </Link>
        <Navigation path={path} />
        <SearchAnywhere />
        <span className="who" title={`This login may ${who.scope}`}>
          {who.name}
        </span>
        <button type="button" className="plain" onClick={() => void logOut()}>
          Log out
        </button>
      </header>
      <Connection />
      <main id="main" tabIndex={-1}>
        <Boundary key={path}>
          <Suspense fallback={<Loading what="the page" />}>
            {place === null ? (
              path !== "/" && <Missing path={path} />
            ) : (
              <place.route.page params={place.params} query={location.searchParams} />
            )}
          </Suspense>
        </Boundary>
      </main>
    </>
  );
}

/** Who follows a link by keyboard, or hears the page, goes on at the new page and not at the old link. */
function useFocusOnArrival(path: string): void {
  const before = useRef(path);
  useEffect(() => {
    if (before.current !== path && before.current !== "/") document.getElementById("main")?.focus();
    before.current = path;
  }, [path]);
}

function Navigation({ path }: { path: string }) {
  return (
    <nav aria-label="Pages">
      <ul>
        {routes.map(
          (route) =>
            route.nav !== undefined && (
              <li key={route.path}>
                <Link to={route.path} aria-current={isUnder(path, route.path) ? "page" : undefined}>
                  {route.nav}
                  {route.badge !== undefined && <route.badge />}
                </Link>
              </li>
            ),
        )}
      </ul>
    </nav>
  );
}

function Missing({ path }: { path: string }) {
  return (
    <section>
      <h1>There is no such page</h1>
      <p>
        Nothing is at <code>{path}</code>. <Link to={home}>Go to the start.</Link>
      </p>
    </section>
  );
}
