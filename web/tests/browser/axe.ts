// Runs axe in the page. Its script is evaluated by the browser's debugger, which the page's policy does not bind.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { Page } from "@playwright/test";

const path = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

interface Axe {
  run: (options: unknown) => Promise<{ violations: { id: string; nodes: { target: unknown; failureSummary?: string }[] }[] }>;
}

/** What is wrong, a line each; empty: nothing. */
export default async function findViolations(page: Page): Promise<string[]> {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(await readFile(path, "utf8"));
  return page.evaluate(async () => {
    const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run({ resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${JSON.stringify(node.target)} ${node.failureSummary ?? ""}`));
  });
}
