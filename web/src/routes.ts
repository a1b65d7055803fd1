/** Every page. A room lists its own in a `routes.ts`; to add a room, add its line here. */
import { approvalRoutes } from "./approvals/routes";
import { boardRoutes } from "./board/routes";
import type { Route } from "./router/router";
import { toolRoutes } from "./tools/routes";

export const routes: readonly Route[] = [...boardRoutes, ...approvalRoutes, ...toolRoutes];

/** Where `/` leads. */
export const home = "/board";
