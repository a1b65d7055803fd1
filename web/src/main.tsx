import "./style.css";
import "./parts/parts.css";

import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { queries } from "./live/query";
import { App } from "./shell/app";
import { keepShell } from "./shell/installed";
import { applyTheme, currentTheme } from "./shell/theme";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");
applyTheme(currentTheme());
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
if (import.meta.env.PROD) void keepShell();
