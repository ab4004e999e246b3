// Pictures of the page, for people: `npm run pictures`. The sheet comes when all others are taken.
import { defineConfig } from "@playwright/test";
import browser from "../browser/playwright.config.ts";

export default defineConfig({
  ...browser,
  testDir: ".",
  timeout: 120_000,
  projects: [
    { name: "states", testMatch: ["states.pictures.ts", "documents.pictures.ts"] },
    { name: "sheet", testMatch: "sheet.pictures.ts", dependencies: ["states"] },
  ],
});
