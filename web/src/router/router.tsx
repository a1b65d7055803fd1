/** Places within the pages: the address bar is the only state. */
import {
  type AnchorHTMLAttributes,
  type ComponentType,
  type LazyExoticComponent,
  type MouseEvent,
  type ReactNode,
  useSyncExternalStore,
} from "react";

import type { Who } from "../api/types";
import type { IconName } from "../parts/icon";

export type Params = Record<string, string>;

export interface PageProps {
  /** What the `:names` of the route's path stood for. */
  params: Params;
  query: URLSearchParams;
}

/** A page and where it is. `:name` in a path stands for one word, a last `*` for the rest. */
export interface Route {
  path: string;
  title: string;
  page: LazyExoticComponent<ComponentType<PageProps>> | ComponentType<PageProps>;
  /** The name in the navigation; without one the page is reached from others. */
  nav?: string;
  icon?: IconName;
  /** It fills the window, and scrolls within itself. */
  full?: boolean;
  /** Letters that lead there, after a `g`. */
  key?: string;
  /** Whose pages these are; without it, everybody's. */
  may?: (who: Who) => boolean;
  /** It stands below the others: what is looked after now and then. */
  apart?: boolean;
  /** What stands beside that name, such as a count. */
  badge?: ComponentType;
}

export interface Place {
  route: Route;
  params: Params;
}

const watchers = new Set<() => void>();

export function go(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace === true) history.replaceState(null, "", to);
  else {
    history.pushState(null, "", to);
    scrollTo(0, 0);
  }
  tell();
}

export function useLocation(): URL {
  const href = useSyncExternalStore(watch, () => location.href);
  return new URL(href);
}

export function placeOf(path: string, routes: readonly Route[]): Place | null {
  for (const route of routes) {
    const params = matched(route.path, path);
    if (params !== null) return { route, params };
  }
  return null;
}

/** Whether a path lies at or under another. */
export function isUnder(path: string, top: string): boolean {
  return path === top || path.startsWith(top === "/" ? "/" : `${top}/`);
}

interface LinkProps extends AnchorHTMLAttributes<HTMLAnchorElement> {
  to: string;
  children: ReactNode;
}

/** A link within the pages; with a modifier key it is a browser's own. */
export function Link({ to, children, ...rest }: LinkProps) {
  function follow(event: MouseEvent): void {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  }
  return (
    <a href={to} onClick={follow} {...rest}>
      {children}
    </a>
  );
}

function matched(pattern: string, path: string): Params | null {
  const wanted = words(pattern);
  const given = words(path);
  const params: Params = {};
  for (const [index, word] of wanted.entries()) {
    if (word === "*") return { ...params, rest: given.slice(index).join("/") };
    const have = given[index];
    if (have === undefined) return null;
    if (word.startsWith(":")) params[word.slice(1)] = decoded(have);
    else if (word !== have) return null;
  }
  return wanted.length === given.length ? params : null;
}

function decoded(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

function words(path: string): string[] {
  return path.split("/").filter((word) => word !== "");
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  addEventListener("popstate", watcher);
  return () => {
    watchers.delete(watcher);
    removeEventListener("popstate", watcher);
  };
}

function tell(): void {
  for (const watcher of [...watchers]) watcher();
}
