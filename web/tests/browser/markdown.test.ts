// How answers are drawn: directions, task lists, formulas, and the little of HTML that passes.
import { expect, gate, test, words, type Page } from "./harness.ts";

function direction(page: Page, selector: string): Promise<string> {
  return page.locator(`.prose ${selector}`).first().evaluate((node) => getComputedStyle(node).direction);
}

test("right-to-left lists, quotes and tables begin at the right, code inside them stays left to right", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("1. العنصر الأول\n\n2. العنصر الثاني\n\n> اقتباس قصير\n\n| العمود | القيمة |\n|---|---|\n| أ | 1 |\n\nنص مع `code()` هنا\n\n- `x = 1` قائمة") }];
  await chat.open();
  await chat.converse("Go");
  for (const selector of ["ol", "ol > li", "ol > li > p", "blockquote", "table", "td:last-child", "ul"]) expect([selector, await direction(page, selector)]).toEqual([selector, "rtl"]);
  expect(await direction(page, "p > code")).toBe("ltr");
  const quote = await page.locator(".prose blockquote").evaluate((node) => [getComputedStyle(node).paddingRight, getComputedStyle(node).paddingLeft]);
  expect(quote).toEqual(["16px", "0px"]);
});

test("an answer in two directions: each part by its own first letter", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("- English first\n- ثم العربية\n\n> Quote\n\nنص") }];
  await chat.open();
  await chat.converse("Go");
  expect(await direction(page, "ul")).toBe("ltr");
  expect(await direction(page, "li:nth-child(2)")).toBe("rtl");
  expect(await direction(page, "blockquote")).toBe("ltr");
  expect(await direction(page, ".md-block:last-child > p")).toBe("rtl");
});

test("a task has a box and no bullet", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("- [x] done\n- [ ] open\n- plain") }];
  await chat.open();
  const answer = await chat.converse("Go");
  await expect(answer.locator("li")).toHaveText(["☑ done", "☐ open", "plain"]);
  expect(await page.locator(".prose li").evaluateAll((items) => items.map((item) => getComputedStyle(item).listStyleType))).toEqual(["none", "none", "disc"]);
});

test("formulas keep every character; sub, sup and kbd are drawn, with attributes they are text", async ({ chat, fake }) => {
  const formulas = ["\\[ x_1 * y_2 * z = \\frac{a}{b} \\]", "\\( \\alpha_i * \\beta_i * 2 \\)", "$$\\sum_i x_i * y_i * z$$"];
  const block = "\\[\na + b\n- c_1\n= d_1\n\\]";
  fake.answers = [{ tokens: words(`First ${formulas.join(" then ")} end.\n\n${block}\n\n$$\nx * y * z\n$$\n\nH<sub>2</sub>O and x<sup>2</sup>, <kbd>Ctrl</kbd>, <sub onclick="x()">n</sub>\n\nA price of $5 and $6, \\*no star\\*`) }];
  await chat.open();
  const answer = await chat.converse("Go");
  for (const formula of [...formulas, block]) expect(await answer.evaluate((node) => node.textContent)).toContain(formula);
  await expect(answer.locator(".md-math")).toHaveCount(5);
  await expect(answer.locator("ul, h3, em")).toHaveCount(0);
  await expect(answer.locator("sub").first()).toHaveText("2");
  await expect(answer.locator("sup")).toHaveText("2");
  await expect(answer.locator("kbd")).toHaveText("Ctrl");
  await expect(answer).toContainText('<sub onclick="x()">n');
  await expect(answer).toContainText("A price of $5 and $6, *no star*");
});

test("a block that takes long to render leaves the page most of its time, and is whole where the text pauses", async ({ chat, fake, page }) => {
  await page.addInitScript(() => {
    const times: [number, number][] = [];
    Object.assign(globalThis, { times });
    const replace = Reflect.get<Element, "replaceChildren">(Element.prototype, "replaceChildren");
    Element.prototype.replaceChildren = function slowly(this: Element, ...nodes): void {
      const began = performance.now();
      replace.apply(this, nodes);
      if (!this.matches(".md-block")) return;
      while (performance.now() - began < 40);
      times.push([began, performance.now()]);
    };
  });
  const text = Array.from({ length: 400 }, (_, at) => `word${at}`).join(" ");
  const rest = gate();
  fake.answers = [{ tokens: words(text), gap: 10, hold: { after: 380, until: rest.until } }];
  await chat.open();
  await page.evaluate(() => { (globalThis as unknown as { times: unknown[] }).times.length = 0; }); // of what the page rendered for itself
  await chat.ask("Go");
  await chat.shows("word379");
  const share = await page.evaluate(() => {
    const { times } = globalThis as unknown as { times: [number, number][] };
    return times.reduce((sum, [began, ended]) => sum + ended - began, 0) / ((times.at(-1)?.[1] ?? 0) - (times[0]?.[0] ?? 0));
  });
  expect(share).toBeLessThan(0.4); // a quarter, and the last
  rest.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText(text);
});
