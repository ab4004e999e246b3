// What the browser does not keep: the page says so, and asks before it is closed with something unsaved.
import { expect, kept, test } from "./harness.ts";

test("a template that finds no room is told of, and kept as soon as there is some", async ({ chat, page }) => {
  await page.addInitScript(() => {
    const set = Reflect.get<Storage, "setItem">(Storage.prototype, "setItem");
    let isFull = true;
    addEventListener("room", () => { isFull = false; });
    Storage.prototype.setItem = function setItem(this: Storage, name, value): void {
      if (isFull && this === localStorage) throw new DOMException("full", "QuotaExceededError");
      set.call(this, name, value);
    };
  });
  await chat.open();
  await page.getByRole("button", { name: "Templates" }).click();
  await page.getByRole("menuitem", { name: "Your templates" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("Haiku");
  await page.getByRole("textbox", { name: "Text" }).fill("Write a haiku about {text}");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("button", { name: "Edit Haiku" })).toBeVisible();
  await page.keyboard.press("Escape");
  const banner = page.locator(".banner").filter({ hasText: "could not store your settings" });
  await expect(banner).toBeVisible();
  await page.evaluate(() => dispatchEvent(new Event("room")));
  await page.getByRole("button", { name: /^Theme/ }).click();
  await expect(page.locator(".banner:visible")).toHaveCount(0);
  expect(await page.evaluate(() => localStorage.getItem("quarrel.settings"))).toContain("Haiku");
});

test("a page with something that found no room asks before it is closed, and no other does", async ({ chat, page }) => {
  const asked: string[] = [];
  page.on("dialog", (dialog) => {
    asked.push(dialog.type());
    void dialog.accept();
  });
  await chat.open();
  await chat.converse("Before");
  await expect.poll(() => kept(page, "messages")).toContain("Before");
  await page.reload();
  await expect(chat.answers).toHaveCount(1);
  expect(asked).toEqual([]);
  await chat.converse("Meanwhile");
  await page.evaluate(() => {
    Object.defineProperty(IDBTransaction.prototype, "error", { get: () => new DOMException("full", "QuotaExceededError") });
    IDBObjectStore.prototype.put = function put(this: IDBObjectStore): never {
      this.transaction.abort();
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await chat.converse("After");
  await expect(page.locator(".banner:visible")).toContainText("no room left");
  await page.reload();
  expect(asked).toEqual(["beforeunload"]);
});

test("a page that was put aside takes over what other tabs have set meanwhile", async ({ chat, page }) => {
  await chat.open();
  await page.evaluate(() => {
    localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, theme: "dark" })); // a tab hears of none of its own changes
    dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
  });
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});
