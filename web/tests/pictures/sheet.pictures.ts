// All pictures on one sheet, small, a row a state: for a look at the whole.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "@playwright/test";
import { folder, widths } from "./sizes.ts";

test("the sheet", async ({ browser }) => {
  const files = await readdir(folder);
  const names = [...new Set(files.map((file) => /^(.*)-\d+-(light|dark)\.png$/.exec(file)?.[1]).filter((name) => name !== undefined))];
  const page = await browser.newPage({ viewport: { width: 2000, height: 1000 } });
  let rows = "";
  for (const name of names) {
    rows += `<h2>${name}</h2><div>`;
    for (const theme of ["light", "dark"]) {
      for (const width of [...widths.map(([wide]) => wide), 640].filter((wide) => files.includes(`${name}-${wide}-${theme}.png`))) rows += `<img height="300" src="data:image/png;base64,${(await readFile(join(folder, `${name}-${width}-${theme}.png`))).toString("base64")}"> `;
    }
    rows += "</div>";
  }
  await page.setContent(`<body style="background:#888;font:14px sans-serif;margin:12px">${rows}</body>`);
  await page.screenshot({ path: join(folder, "sheet.png"), fullPage: true });
});
