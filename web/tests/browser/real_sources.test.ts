// A question with texts of a dataset, as the program answers it: which models it offers for that, what it refuses, and with
// the tests' vector store (make flight) the sources of an answer.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { Chat, expect, hasVectors, startServer, test, type Page } from "./harness.ts";

const store = process.env["LONGBOW_SERVER"] ?? join(dirname(process.env["QUARREL"] ?? join(import.meta.dirname, "../../../build/release/quarrel")), "longbow_server");

async function chooseDataset(page: Page, address: string): Promise<void> {
  const setting = (name: string): ReturnType<Page["locator"]> => page.locator(`[data-setting="${name}"]`);
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await setting("retrieval").check();
  await expect(setting("retrievalModel").locator("option")).toHaveText(["Choose a model", "minilm"]);
  await expect(setting("retrievalModel")).toHaveValue("minilm");
  await setting("retrievalAddress").fill(address);
  await setting("retrievalAddress").press("Tab");
  await setting("maxTokens").fill("8");
  await setting("maxTokens").press("Tab");
  await page.getByRole("button", { name: "Done" }).click();
}

test("the server's embedding models are offered, and a host that it may not reach is told", async ({ page, real }) => {
  test.skip(!hasVectors, "minilm is not in the store");
  const chat = new Chat(page, real.url);
  await chat.open();
  await chooseDataset(page, "longbow://localhost/notes");
  await chat.ask("Which animal is red?");
  await expect(chat.answers.last()).toContainText("The server is not allowed to reach longbow://localhost/notes.");
  await expect(chat.answers.last().getByRole("button", { name: "Retry" })).toBeVisible();
});

test("an answer has the texts of the store as its sources", async ({ page, request }, info) => {
  test.skip(!hasVectors || !existsSync(store), "minilm or the tests' vector store is not there");
  const child = spawn(store, ["--data-port", "0", "--meta-port", "0"], { stdio: ["ignore", "pipe", "ignore"] });
  const said = await new Promise<string>((ready) => createInterface(child.stdout).once("line", ready));
  const [, data, meta] = said.split(" ");
  const hosts = [data, meta].flatMap((port) => ["--longbow-host", `127.0.0.1:${port ?? ""}`]);
  const server = await startServer(["default", "minilm"], hosts, { XDG_STATE_HOME: info.outputPath("state") });
  try {
    const address = `longbow://127.0.0.1:${data ?? ""}/notes?meta=${meta ?? ""}`;
    const texts = [{ id: "fox", text: "The fox is red <img src=x onerror=alert(1)>" }, { id: "dog", text: "Dogs bark at night." }];
    const stored = await request.post(`${server.url}/api/embed-to`, { data: { model: "minilm", to: address, texts } });
    expect(await stored.json()).toMatchObject({ stored: 2 });
    const chat = new Chat(page, server.url);
    await chat.open();
    await chooseDataset(page, address);
    await chat.converse("Which animal is red?");
    await expect(page.locator(".source__name")).toHaveText(["fox", "dog"]);
    await page.locator(".source__head").first().click();
    await expect(page.locator(".source__text")).toHaveText("The fox is red <img src=x onerror=alert(1)>");
  } finally {
    await server.end();
    child.kill("SIGKILL");
  }
});
