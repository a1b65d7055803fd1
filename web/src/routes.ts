/** Every page. A room lists its own in a `routes.ts`; to add a room, add its line here. */
import { lazy } from "react";

import { approvalRoutes } from "./approvals/routes";
import { boardRoutes, logRoutes } from "./board/routes";
import type { Route } from "./router/router";

export const routes: readonly Route[] = [
  { path: "/", title: "Home", nav: "Home", icon: "home", key: "h", page: lazy(() => import("./home/home-page")) },
  { path: "/chat", title: "Chat", nav: "Chat", icon: "chat", key: "c", full: true, page: lazy(() => import("./chat/chat-page")) },
  ...boardRoutes,
  ...approvalRoutes,
  { path: "/chains", title: "Chains", nav: "Chains", icon: "again", key: "i", page: lazy(() => import("./chains/chains-page")) },
  { path: "/schedule", title: "Schedule", nav: "Schedule", icon: "clock", key: "s", page: lazy(() => import("./schedule/schedule-page")) },
  ...logRoutes,
  { path: "/usage", title: "Usage", nav: "Usage", icon: "chart", key: "u", page: lazy(() => import("./usage/usage-page")) },
  { path: "/tools/output/:id", title: "Output", page: lazy(() => import("./conversation/output-page")) },
];
