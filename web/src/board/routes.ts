import { lazy } from "react";

import type { Route } from "../router/router";

export const boardRoutes: readonly Route[] = [
  { path: "/board", title: "Board", nav: "Board", icon: "board", key: "b", page: lazy(() => import("./topics/board-page")) },
  { path: "/board/topics/:id", title: "Topic", page: lazy(() => import("./topics/topic-page")) },
];

export const logRoutes: readonly Route[] = [
  { path: "/log", title: "Log", nav: "Log", icon: "list", key: "l", page: lazy(() => import("./log/log-page")) },
  { path: "/log/:id", title: "Entry", page: lazy(() => import("./log/entry-page")) },
  { path: "/graph", title: "Map", nav: "Map", icon: "map", key: "m", page: lazy(() => import("./graph/graph-page")) },
  { path: "/search", title: "Search", page: lazy(() => import("./search/search-page")) },
];
