import { lazy } from "react";

import type { Route } from "../router/router";

export const toolRoutes: readonly Route[] = [
  { path: "/tools", title: "Tool runs", nav: "Tool runs", page: lazy(() => import("./runs-page")) },
  { path: "/tools/output/:id", title: "Output", page: lazy(() => import("./output-page")) },
];
