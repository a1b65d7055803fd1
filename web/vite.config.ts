import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const gateway = "http://127.0.0.1:8787";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/holdfast/gateway/built",
    emptyOutDir: true,
    // The gateway's policy allows no inline scripts or data: URLs of styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    sourcemap: false,
  },
  server: {
    // A page of another port is another origin to the gateway: it is told that the page is its own.
    proxy: Object.fromEntries(
      ["/api", "/openapi.json", "/healthz"].map((path) => [
        path,
        { target: gateway, changeOrigin: true, headers: { origin: gateway } },
      ]),
    ),
  },
});
