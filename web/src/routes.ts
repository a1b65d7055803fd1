/** Every page. A room lists its own in a `routes.ts`; to add a room, add its line here. */
import { lazy } from "react";

import { approvalRoutes } from "./approvals/routes";
import { boardRoutes, logRoutes } from "./board/routes";
import { manageRoutes } from "./manage/routes";
import type { Route } from "./router/router";
import { seesMemory } from "./shell/rights";

export const routes: readonly Route[] = [
  { path: "/", title: "Home", nav: "Home", icon: "home", key: "h", page: lazy(() => import("./home/home-page")) },
  { path: "/chat", title: "Chat", nav: "Chat", icon: "chat", key: "c", full: true, page: lazy(() => import("./chat/chat-page")) },
  ...boardRoutes,
  ...approvalRoutes,
  { path: "/chains", title: "Chains", nav: "Chains", icon: "again", key: "i", page: lazy(() => import("./chains/chains-page")) },
  { path: "/schedule", title: "Schedule", nav: "Schedule", icon: "clock", key: "s", page: lazy(() => import("./schedule/schedule-page")) },
  ...logRoutes,
  { path: "/usage", title: "Usage", nav: "Usage", icon: "chart", key: "u", page: lazy(() => import("./usage/usage-page")) },
  {
    path: "/memory",
    title: "Memory",
    nav: "Memory",
    icon: "memory",
    key: "y",
    may: seesMemory,
    page: lazy(() => import("./memory/memory-page")),
  },
  { path: "/memory/files", title: "Files", may: seesMemory, page: lazy(() => import("./memory/files-page")) },
  { path: "/memory/index", title: "Index", may: seesMemory, page: lazy(() => import("./memory/index-page")) },
  { path: "/teams/:id/files", title: "Files", page: lazy(() => import("./memory/team-files-page")) },
  ...manageRoutes,
  { path: "/tools/output/:id", title: "Output", page: lazy(() => import("./conversation/output-page")) },
];
