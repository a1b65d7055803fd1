import { lazy } from "react";

import type { Route } from "../router/router";
import { PendingBadge } from "./badge";

export const approvalRoutes: readonly Route[] = [
  {
    path: "/approvals",
    title: "Approvals",
    nav: "Approvals",
    icon: "shield",
    key: "a",
    badge: PendingBadge,
    page: lazy(() => import("./pending-page")),
  },
  { path: "/approvals/allowlist", title: "Allowlist", page: lazy(() => import("./allowlist-page")) },
  { path: "/approvals/audit", title: "Decisions", page: lazy(() => import("./audit-page")) },
];
