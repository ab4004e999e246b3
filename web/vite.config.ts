// Builds the page into build/page: one script, one style sheet, names that change with what is in them. `npm run build`
// then packs them into web/dist, which the program embeds.
import { defineConfig } from "vite";

export default defineConfig({
  root: import.meta.dirname,
  base: "/",
  publicDir: false,
  build: {
    outDir: "../build/page",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0,
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
