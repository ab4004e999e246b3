// Sees what hostile texts do in the page: what ran, what was fetched, and what stood in the document that could do either.
import type { Page } from "@playwright/test";

/** What ran or was fetched. */
export async function watch(page: Page, url: string): Promise<string[]> {
  const wrong: string[] = [];
  page.on("dialog", (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("blob:")) wrong.push(`fetched: ${request.url()}`);
    // The server is asked for a model by its name, whatever that is.
    if (/evil|pwned/.test(request.url()) && !request.url().startsWith(`${url}/api/models/`)) wrong.push(`fetched: ${request.url()}`);
  });
  page.on("popup", (popup) => wrong.push(`popup: ${popup.url()}`));
  page.on("framenavigated", (frame) => {
    if (frame !== page.mainFrame() || !frame.url().startsWith(url)) wrong.push(`went to ${frame.url()}`);
  });
  await page.exposeFunction("pwned", () => wrong.push("ran"));
  await page.addInitScript(lookOut);
  return wrong;
}

/** Keeps everything in the page's body that could run, fetch or take the page over, however short it is there. */
function lookOut(): void {
  const kept = globalThis as unknown as { dangers: string[] };
  kept.dangers = [];
  const look = (node: Element): void => {
    if (node.closest("body") === null) return;
    if (/^(script|iframe|object|embed|link|meta|base|style|img|video|audio|source|picture|form|math|portal|frame)$/i.test(node.tagName) && !node.matches(".composer, .form")) kept.dangers.push(node.tagName);
    for (const { name, value } of node.attributes) {
      if (/^on/i.test(name) || (/^(href|src|action|xlink:href|formaction)$/i.test(name) && /^\s*(javascript|data|vbscript):/i.test(value))) kept.dangers.push(`${node.tagName} ${name}=${value}`);
    }
    if (node.matches("a[href^='http']") && !/noopener/.test(node.getAttribute("rel") ?? "")) kept.dangers.push(`link without noopener: ${node.getAttribute("href") ?? ""}`);
  };
  const lookAt = (node: Node): void => {
    if (!(node instanceof Element)) return;
    look(node);
    node.querySelectorAll("*").forEach(look);
  };
  new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "attributes" && change.target instanceof Element) look(change.target);
      else change.addedNodes.forEach(lookAt);
    }
  }).observe(document, { subtree: true, childList: true, attributes: true });
}

/** What could have run or fetched, so far. */
export function dangerous(page: Page): Promise<string[]> {
  return page.evaluate(() => (globalThis as unknown as { dangers: string[] }).dangers);
}
