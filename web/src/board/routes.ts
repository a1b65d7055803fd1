import { lazy } from "react";

import type { Route } from "../router/router";

export const boardRoutes: readonly Route[] = [
  { path: "/board", title: "Board", nav: "Board", page: lazy(() => import("./topics/board-page")) },
  { path: "/board/topics/:id", title: "Topic", page: lazy(() => import("./topics/topic-page")) },
  { path: "/log", title: "Log", nav: "Log", page: lazy(() => import("./log/log-page")) },
  { path: "/log/:id", title: "Entry", page: lazy(() => import("./log/entry-page")) },
  { path: "/graph", title: "Memory map", nav: "Map", page: lazy(() => import("./graph/graph-page")) },
  { path: "/search", title: "Search", page: lazy(() => import("./search/search-page")) },
];
