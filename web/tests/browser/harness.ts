// What the browser tests share: a fake server for each test that asks for one, the real one for each worker, and ways
// through the page.
import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { dirname, join } from "node:path";
import { test as base, expect, type Locator, type Page } from "@playwright/test";
import { FakeServer, gate, words } from "./fake_server.ts";

export { expect, gate, words };
export type { Page };

const top = join(import.meta.dirname, "../../..");
export const pageRoot = join(top, "build/page");
const program = process.env["QUARREL"] ?? join(top, "build/release/quarrel");

/** Whether the model for vectors is in the store; its tests are left out otherwise. */
export const hasVectors = existsSync(program) && spawnSync(program, ["inspect", "minilm"], { stdio: "ignore" }).status === 0;

export interface RealServer {
  url: string;
  end: () => Promise<void>;
}

export async function startServer(models: readonly string[], options: readonly string[] = [], environment: Record<string, string> = {}, port = "0"): Promise<RealServer> {
  if (!existsSync(program)) throw new Error(`no program at ${program}: run make build`);
  const child = spawn(program, ["serve", ...models, "--port", port, ...options], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, QUARREL_CONFIG: "", ...environment } });
  const url = await new Promise<string>((ready, failed) => {
    let said = "";
    const read = (chunk: Buffer): void => {
      said += chunk.toString();
      const found = /on (https?:\/\/[^\s"]+)[\s"]/.exec(said);
      if (found?.[1]) ready(found[1]);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", (code) => failed(new Error(`the server ended with ${code}: ${said}`)));
  });
  return { url, end: () => ended(child) };
}

/** Between the page and a server: a network that can be cut. */
export class Line {
  url = "";
  cuts = 0;
  private readonly port: number;
  private readonly open = new Set<Socket>();
  private readonly server: Server;

  private constructor(url: string) {
    this.port = Number(new URL(url).port);
    this.server = createServer((near) => {
      const far = connect(this.port, "127.0.0.1");
      for (const [from, to] of [[near, far], [far, near]] as const) {
        this.open.add(from);
        from.pipe(to);
        from.on("error", () => undefined);
        from.on("close", () => {
          this.open.delete(from);
          to.destroy();
        });
      }
    });
  }

  static async to(url: string): Promise<Line> {
    const made = new Line(url);
    await new Promise<void>((ready) => made.server.listen(0, "127.0.0.1", ready));
    made.url = `http://127.0.0.1:${(made.server.address() as AddressInfo).port}`;
    return made;
  }

  cut(): void {
    this.cuts += 1;
    for (const socket of this.open) socket.destroy();
  }

  end(): void {
    this.cut();
    this.server.close();
  }
}

/** A toy model of the tests, made beside the program. */
export function makeToy(kind: string, path: string): string {
  mkdirSync(dirname(path), { recursive: true });
  execFileSync(join(dirname(program), "make_toy"), [kind, path]);
  return path;
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((done) => {
    if (child.exitCode !== null || child.signalCode !== null) return done();
    child.on("exit", () => done());
    child.kill("SIGKILL");
  });
}

export const test = base.extend<{ fake: FakeServer; chat: Chat; start: typeof startServer }, { real: RealServer }>({
  // Playwright reads the pattern: nothing else may stand there.
  // eslint-disable-next-line no-empty-pattern
  fake: async ({}, use) => {
    const server = await FakeServer.start(pageRoot);
    await use(server);
    await server.stop();
  },
  chat: async ({ page, fake }, use) => {
    await use(new Chat(page, fake.url));
  },
  // Servers of a test's own: they end with it, however it ends.
  // eslint-disable-next-line no-empty-pattern
  start: async ({}, use) => {
    const servers: RealServer[] = [];
    await use(async (...given) => {
      const server = await startServer(...given);
      servers.push(server);
      return server;
    });
    await Promise.all(servers.map((server) => server.end()));
  },
  // eslint-disable-next-line no-empty-pattern
  real: [async ({}, use) => {
    const server = await startServer(hasVectors ? ["default", "minilm"] : ["default"]);
    await use(server);
    await server.end();
  }, { scope: "worker" }],
});

/** A reader's way through the chat. */
export class Chat {
  readonly page: Page;
  readonly url: string;
  readonly field: Locator;
  readonly send: Locator;
  readonly stop: Locator;
  readonly answers: Locator;
  readonly state: Locator;

  constructor(page: Page, url: string) {
    this.page = page;
    this.url = url;
    this.field = page.getByRole("textbox", { name: "Message" });
    this.send = page.getByRole("button", { name: "Send", exact: true });
    this.stop = page.getByRole("button", { name: "Stop", exact: true });
    this.answers = page.locator(".message--model");
    this.state = page.locator(".head__state");
  }

  async open(path = "/"): Promise<void> {
    await this.page.goto(this.url + path);
    await expect(this.state).toHaveAttribute("data-state", /^(connected|generating)$/);
  }

  async ask(text: string): Promise<void> {
    await this.field.fill(text);
    await this.field.press("Enter");
  }

  /** Waits until the last answer has the text. At every frame: locators are looked at twice a second after a while. */
  async shows(text: string): Promise<void> {
    await this.page.waitForFunction((wanted) => [...document.querySelectorAll(".message--model")].at(-1)?.querySelector(".prose")?.textContent.includes(wanted), text);
  }

  /** Asks, and waits for the end of the answer. */
  async converse(text: string): Promise<Locator> {
    const before = await this.answers.count() > 0 ? await this.answers.last().getAttribute("data-message") : null;
    await this.ask(text);
    await this.page.waitForFunction((earlier) => {
      const last = [...document.querySelectorAll<HTMLElement>(".message--model")].at(-1)?.dataset["message"];
      return last !== undefined && last !== earlier && document.querySelector(".composer__send")?.textContent === "Send";
    }, before, { timeout: 45_000 }); // a busy machine takes its time
    await expect(this.answers.last()).not.toHaveAttribute("data-message", before ?? "");
    await expect(this.stop).toBeHidden();
    await expect(this.send).toBeVisible();
    return this.answers.last().locator(".prose");
  }
}

/** A field of the settings, by its name. */
export function settingField(page: Page, name: string): Locator {
  return page.locator(`[data-setting="${name}"]`);
}

export async function openSettings(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await expect(page.locator(".sheet--open")).toBeVisible();
}

/** For addInitScript: the defaults of the page's settings. */
export function withSettings(defaults: Record<string, unknown>): void {
  localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, defaults }));
}

/** For addInitScript: the pause before a first attempt to connect again passes at once. */
export function withoutPauses(): void {
  const wait = setTimeout;
  const quick = (work: () => void, time = 0): unknown => wait(work, time >= 400 && time <= 600 ? 10 : time);
  Object.assign(globalThis, { setTimeout: quick });
}

/** Two frames later: what has happened by now is drawn and laid out. */
export async function drawn(page: Page): Promise<void> {
  await page.evaluate(() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then))));
}

/** A key that belongs to an input method, as Safari tells of it. */
export async function composes(field: Locator, key: string): Promise<void> {
  await field.dispatchEvent("keydown", { key, keyCode: 229, bubbles: true, cancelable: true });
}

/** A conversation in the sidebar. */
export function room(page: Page, title: string | RegExp): Locator {
  return page.locator(".room").filter({ hasText: title });
}

/** Takes an item of its menu. */
export async function choose(page: Page, title: string, item: string): Promise<void> {
  await room(page, title).hover();
  await room(page, title).getByRole("button", { name: /^Actions for/ }).click();
  await page.getByRole("menuitem", { name: item }).click();
}

/** Gives the page a file of conversations. */
export async function importText(page: Page, text: string): Promise<void> {
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), (async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Import" }).click();
  })()]);
  await chooser.setFiles({ name: "conversations.json", mimeType: "application/json", buffer: Buffer.from(text) });
}

/** What the browser has stored, as JSON. It takes its time to write: who loads the page again waits for it first. */
export function kept(page: Page, store: "conversations" | "messages"): Promise<string> {
  return page.evaluate(async (name) => {
    const [info] = await indexedDB.databases();
    const database = await new Promise<IDBDatabase>((done) => {
      const asked = indexedDB.open(info?.name ?? "");
      asked.onsuccess = () => done(asked.result);
    });
    const texts = await new Promise<string>((done) => {
      const asked = database.transaction(name).objectStore(name).getAll();
      asked.onsuccess = () => done(JSON.stringify(asked.result));
    });
    database.close();
    return texts;
  }, store);
}
