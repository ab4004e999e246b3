// Keys: asked for, kept, unlocked, refused; and plain HTTP off localhost, where the browser has no cryptography.
import { chromium } from "@playwright/test";
import { Chat, expect, test } from "./harness.ts";

const key = "qk_0123456789abcdefghijklmnopqrstuvwxyz";

test("a key is asked for, for the session, and never in an address", async ({ chat, fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  const dialog = page.getByRole("dialog", { name: "A key is needed" });
  await dialog.getByLabel("Key", { exact: true }).fill(key);
  await dialog.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  await expect(await chat.converse("Hello")).toHaveText("Hello. How can I help you today?");
  expect(fake.paths.filter((path) => path.includes("qk_"))).toEqual([]);
  expect(page.url()).not.toContain("qk_");
  const stored = await page.evaluate(() => JSON.stringify(Object.entries(localStorage)));
  expect(stored).not.toContain(key);
});

test("a wrong key is refused, in words", async ({ fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  await page.getByLabel("Key", { exact: true }).fill("qk_wrong");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(page.getByRole("alert")).toContainText("refused");
});

test("a key that no request can carry is not sent, and the dialog says so", async ({ chat, fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  const dialog = page.getByRole("dialog", { name: "A key is needed" });
  for (const damaged of ["qk_schlüssel", "qk_0123 4567", "qk_0123\u200b"]) {
    await dialog.getByLabel("Key", { exact: true }).fill(damaged);
    await dialog.getByRole("button", { name: "Use the key" }).click();
    await expect(dialog.getByRole("alert")).toContainText("neither spaces nor letters beyond plain ASCII");
  }
  await dialog.getByLabel("Key", { exact: true }).fill(` ${key} `);
  await dialog.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
});

test("a key that the browser has no room for is used, and a line says that it is not kept", async ({ chat, fake, page }) => {
  await page.addInitScript(() => {
    const set = Reflect.get<Storage, "setItem">(Storage.prototype, "setItem");
    Storage.prototype.setItem = function setItem(this: Storage, name, value): void {
      if (name === "quarrel.key.encrypted") throw new DOMException("full", "QuotaExceededError");
      set.call(this, name, value);
    };
  });
  fake.key = key;
  await page.goto(fake.url);
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByText("Keep it, encrypted").click();
  await page.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  await expect(page.locator(".banner:visible")).toContainText("The browser could not store your key");
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Forget the key" }).click();
  await expect(page.locator(".banner").filter({ hasText: "could not store" })).toBeHidden();
});

test("a refused key is not kept, and the choice to keep it stays", async ({ chat, fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  await page.getByLabel("Key", { exact: true }).fill("qk_wrong");
  await page.getByText("Keep it, encrypted").click();
  await page.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(page.getByRole("alert")).toContainText("refused");
  expect(await page.evaluate(() => localStorage.getItem("quarrel.key.encrypted"))).toBeNull();
  await expect(page.getByRole("radio", { name: /^Keep it, encrypted/ })).toBeChecked();
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  expect(await page.evaluate(() => localStorage.getItem("quarrel.key.encrypted"))).not.toBeNull();
});

test("a question without the key that the server wants fails at once, with a way to enter it", async ({ chat, fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  await expect(page.getByRole("dialog", { name: "A key is needed" })).toBeVisible();
  await page.keyboard.press("Escape");
  await chat.ask("Hello");
  await expect(chat.answers.last()).toContainText("The server needs a key.");
  await expect(page.locator(".unseen[aria-live=polite]")).toContainText("The server needs a key.");
  await chat.answers.last().getByRole("button", { name: "Enter key" }).click();
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  await chat.answers.last().getByRole("button", { name: "Retry" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Hello. How can I help you today?");
});

test("kept encrypted: the passphrase opens it after a reload, a wrong one does not", async ({ chat, fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByText("Keep it, encrypted").click();
  await page.getByLabel("Passphrase", { exact: true }).fill("short");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(page.getByRole("alert")).toContainText("eight characters");
  await page.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  const stored = await page.evaluate(async () => JSON.stringify(Object.entries(localStorage)) + JSON.stringify(await indexedDB.databases()));
  expect(stored).not.toContain(key);
  await page.evaluate(() => sessionStorage.clear());
  await page.reload();
  const dialog = page.getByRole("dialog", { name: "Unlock your key" });
  await dialog.getByLabel("Passphrase", { exact: true }).fill("wrong horse");
  await dialog.getByRole("button", { name: "Unlock" }).click();
  await expect(dialog.getByRole("alert")).toContainText("Wrong passphrase");
  await dialog.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await dialog.getByRole("button", { name: "Unlock" }).click();
  await expect(chat.state).toHaveText("Connected");
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Forget the key" }).click();
  await page.reload();
  await expect(page.getByRole("dialog", { name: "A key is needed" })).toBeVisible();
});

test("a key that is kept is not asked for by a server that wants none, and can be forgotten there", async ({ chat, fake, page }) => {
  fake.key = key;
  await page.goto(fake.url);
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByText("Keep it, encrypted").click();
  await page.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  await page.evaluate(() => sessionStorage.clear());
  fake.key = null;
  await page.reload();
  await expect(chat.state).toHaveText("Connected");
  await chat.converse("Hello");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await expect(page.locator(".banner:visible")).toHaveCount(0);
  await page.getByRole("button", { name: "Settings" }).click();
  await expect(page.getByText("This server asks for none.")).toBeVisible();
  await page.getByRole("button", { name: "Forget the key" }).click();
  await expect(page.getByRole("button", { name: "Forget the key" })).toBeHidden();
  expect(await page.evaluate(() => localStorage.getItem("quarrel.key.encrypted"))).toBeNull();
});

test("plain HTTP off localhost: keys for the session only, another way to copy, and it says so", async ({ fake }) => {
  fake.key = key;
  const browser = await chromium.launch({ executablePath: process.env["QUARREL_CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP quarrel.example 127.0.0.1"] });
  try {
    const page = await browser.newPage();
    const chat = new Chat(page, `http://quarrel.example:${fake.port}`);
    await page.goto(chat.url);
    expect(await page.evaluate(() => window.isSecureContext)).toBe(false);
    const dialog = page.getByRole("dialog", { name: "A key is needed" });
    await expect(dialog).toContainText("for this session only");
    await expect(dialog.getByText("Keep it, encrypted")).toHaveCount(0);
    await dialog.getByLabel("Key", { exact: true }).fill(key);
    await dialog.getByRole("button", { name: "Use the key" }).click();
    await expect(chat.state).toHaveText("Connected");
    await chat.converse("Hello");
    await chat.answers.last().getByRole("button", { name: "Copy the text" }).click();
    await expect(page.getByText("Answer copied.").or(page.getByRole("dialog", { name: "Copy by hand" }))).toBeVisible();
  } finally {
    await browser.close();
  }
});
