// Measurements of the page on replayed streams, without a model: run by `make soak`. One worker, since they time things.
import { defineConfig } from "@playwright/test";
import browser from "../browser/playwright.config.ts";

export default defineConfig({ ...browser, testDir: ".", testMatch: "*.soak.ts", workers: 1, fullyParallel: false, timeout: 240_000 });
