import { lazy } from "react";

import type { Route } from "../router/router";
import { isOwner, isUnlimited, managesPeople } from "../shell/rights";

const agents = lazy(() => import("./agents-page"));

/** What is looked after now and then: each page is offered to those who may. */
export const manageRoutes: readonly Route[] = [
  { path: "/agents", title: "Agents", nav: "Agents", icon: "agent", key: "e", apart: true, may: isUnlimited, page: agents },
  { path: "/agents/:id", title: "Agent", may: isUnlimited, page: agents },
  {
    path: "/channels",
    title: "Channels",
    nav: "Channels",
    icon: "plug",
    key: "d",
    apart: true,
    may: isOwner,
    page: lazy(() => import("./channels-page")),
  },
  {
    path: "/people",
    title: "People",
    nav: "People",
    icon: "people",
    key: "p",
    apart: true,
    may: managesPeople,
    page: lazy(() => import("./people-page")),
  },
  {
    path: "/audit",
    title: "Audit",
    nav: "Audit",
    icon: "ledger",
    key: "t",
    apart: true,
    may: managesPeople,
    page: lazy(() => import("./audit-page")),
  },
  {
    path: "/settings",
    title: "Settings",
    nav: "Settings",
    icon: "gear",
    key: ",",
    apart: true,
    may: isOwner,
    page: lazy(() => import("./settings-page")),
  },
  { path: "/settings/text", title: "Config", may: isOwner, page: lazy(() => import("./config-text-page")) },
  { path: "/settings/providers", title: "Providers", may: isOwner, page: lazy(() => import("./providers-page")) },
  { path: "/settings/plugins", title: "Plugins", may: isOwner, page: lazy(() => import("./plugins-page")) },
  { path: "/settings/tokens", title: "Tokens", may: isOwner, page: lazy(() => import("./tokens-page")) },
  { path: "/settings/doctor", title: "Doctor", may: isOwner, page: lazy(() => import("./doctor-page")) },
  { path: "/account", title: "Your login", page: lazy(() => import("./account-page")) },
];
