// Browser tests on Debian's Chromium (QUARREL_CHROMIUM names another). They need build/page, which `npm run build` makes,
// and the program (QUARREL, else build/release/quarrel).
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: ".",
  testMatch: "*.test.ts",
  outputDir: "../../../build/page-tests",
  fullyParallel: true,
  workers: 2,
  // Long enough for two busy cores: what holds at once on a quiet machine may take seconds there.
  timeout: 120_000,
  expect: { timeout: 20_000 },
  // A whole browser on a machine that others use fails now and then by chance. A test that passes when it is run again is told
  // as "flaky" by its name at the end and does not fail the suite; one that is wrong fails twice. To look for what fails by
  // chance: --retries=0.
  retries: 1,
  reporter: [["line"]],
  use: {
    viewport: { width: 1280, height: 800 },
    locale: "en-GB",
    timezoneId: "UTC",
    trace: "off",
    launchOptions: { executablePath: process.env["QUARREL_CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] },
  },
});
