import "./style.css";
import "./parts/parts.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./shell/app";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
