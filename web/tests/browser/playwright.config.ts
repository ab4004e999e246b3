// Browser tests on Debian's Chromium (QUARREL_CHROMIUM names another). They need build/page, which `npm run build` makes,
// and the program (QUARREL, else build/release/quarrel).
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: ".",
  testMatch: "*.test.ts",
  outputDir: "../../../build/page-tests",
  fullyParallel: true,
  workers: 2,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  reporter: [["line"]],
  use: {
    viewport: { width: 1280, height: 800 },
    locale: "en-GB",
    timezoneId: "UTC",
    trace: "off",
    launchOptions: { executablePath: process.env["QUARREL_CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] },
  },
});
