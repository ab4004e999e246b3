// Builds the page into build/page: one script, one style sheet, names that change with what is in them. `npm run build`
// then packs them into web/dist, which the program embeds.
import { defineConfig } from "vite";

const target = process.env["QUARREL_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  root: import.meta.dirname,
  base: "/",
  publicDir: false,
  // `scripts/npm exec vite` shows the page as it is changed, before a server that runs.
  server: { proxy: Object.fromEntries(["/api", "/v1", "/ws", "/version", "/docs"].map((path) => [path, { target, ws: path === "/ws", changeOrigin: true, headers: { Origin: target } }])) },
  build: {
    outDir: "../build/page",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0,
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"], // light-dark(), :dir() and logical sides as they are
    sourcemap: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
