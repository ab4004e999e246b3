// The frame of the page: puts its parts together, knows which view and which conversation are shown, and keeps the
// address in step with them.
import { Cell } from "../core/observable.ts";
import type { Core, Settings } from "../core/types.ts";
import { banners } from "./banner.ts";
import { ChatView } from "./chat_view.ts";
import { copyText, offerText, saveFile } from "./clipboard.ts";
import { element, replace } from "./dom.ts";
import { EmbeddingsView } from "./embeddings_view.ts";
import { header } from "./header.ts";
import { watchKeys } from "./key_dialog.ts";
import { Notes } from "./notes.ts";
import { follow, type NoteAction, type Page, type ViewName } from "./page.ts";
import { SettingsPanel } from "./settings_panel.ts";
import { control, setShortcuts, showShortcuts, type Shortcut } from "./shortcuts.ts";
import { Sidebar } from "./sidebar.ts";
import { StatusView } from "./status_view.ts";
import { applyTheme } from "./theme.ts";
import { followKeyboard } from "./viewport.ts";

const PATHS: Record<ViewName, string> = { chat: "/", status: "/status", embeddings: "/embeddings" };
const WIDE = matchMedia("(min-width: 1024px)");
const NARROW = matchMedia("(max-width: 639px)"); // the settings are as wide as the page

export class App implements Page {
  readonly core: Core;
  readonly view: Cell<ViewName>;
  readonly conversation: Cell<string>;
  readonly #root: HTMLElement;
  readonly #notes = new Notes();
  readonly #live = element("div", { class: "unseen", "aria-live": "polite", role: "status" });
  readonly #chat: ChatView;
  readonly #status: StatusView;
  readonly #embeddings: EmbeddingsView;
  readonly #settings: SettingsPanel;
  readonly #sidebar: Sidebar;
  readonly #main = element("main", { class: "view", id: "main", tabindex: -1 });
  readonly #stage = element("div", { class: "stage" });
  readonly #menu: HTMLButtonElement;
  readonly #picker: HTMLButtonElement;
  readonly #drawer = new Cell(false); // the sidebar where it lies over the page

  constructor(core: Core, root: HTMLElement) {
    this.core = core;
    this.#root = root;
    this.view = new Cell(viewOf(location.pathname));
    this.conversation = new Cell(core.conversations.create(core.settings.lastModel.get()).id);
    applyTheme(core.settings.theme.get(), false);
    core.settings.theme.subscribe((theme) => applyTheme(theme, true));
    this.#chat = new ChatView(this);
    this.#status = new StatusView(this);
    this.#embeddings = new EmbeddingsView(this);
    this.#settings = new SettingsPanel(this, () => this.#cover());
    this.#sidebar = new Sidebar(this, {
      reveal: (id) => void this.#opened.then(() => {
        core.conversations.show(this.conversation.get(), id);
        this.#chat.thread.reveal(id);
      }),
      searched: () => this.#chat.thread.unmark(),
      chosen: () => this.#drawer.set(false),
    });
    const head = header(this, { toggleSidebar: () => this.#toggleSidebar(), toggleSettings: (anchor) => this.#settings.toggle(!this.#settings.open, anchor) });
    this.#menu = head.menu;
    this.#picker = head.picker;
    this.#menu.setAttribute("aria-controls", "sidebar");
    const veil = element("div", { class: "veil", on: { click: () => this.#drawer.set(false) } });
    this.#stage.append(head.element, banners(this), this.#main);
    replace(root, element("a", { class: "skip", href: "#main" }, "Skip to the conversation"), this.#sidebar.element, veil, this.#stage);
    document.body.append(this.#settings.element, this.#notes.element, this.#live);
    this.#watch();
    setShortcuts(this.#shortcuts());
    followKeyboard();
    watchKeys(this);
  }

  #opened: Promise<void> = Promise.resolve();
  #chosen = 0; // how often another conversation was asked for

  #watch(): void {
    const fold = (): void => this.#fold();
    follow(this.core.settings.sidebarOpen, fold);
    this.#drawer.subscribe(fold);
    WIDE.addEventListener("change", fold);
    NARROW.addEventListener("change", () => this.#cover());
    follow(this.view, (view) => this.#show(view));
    window.addEventListener("popstate", () => this.#readAddress());
    window.addEventListener("hashchange", () => this.#readAddress());
    // A conversation has its address from its first message on.
    this.core.conversations.changes.on((change) => {
      if (change.kind === "gone" && change.conversationId === this.conversation.get()) this.#replaceGone();
      if (change.kind === "path" && change.conversationId === this.conversation.get() && this.view.get() === "chat") this.#writeAddress(true);
    });
    this.#readAddress();
  }

  go(view: ViewName): void {
    if (view === this.view.get()) return;
    this.view.set(view);
    this.#writeAddress(false);
  }

  openConversation(id: string): void {
    const chosen = ++this.#chosen;
    this.view.set("chat");
    this.#opened = this.core.conversations.open(id).then(() => {
      if (chosen !== this.#chosen) return; // another one was asked for meanwhile
      if (!this.core.conversations.has(id)) return this.note("That conversation is not in this browser.");
      this.#switch(id);
      this.#chat.open();
      this.#writeAddress(false);
      this.#title();
      if (WIDE.matches) this.#chat.composer.focus();
    });
    this.#opened.catch((failure: unknown) => this.note(failure instanceof Error ? failure.message : "The conversation could not be read."));
  }

  newConversation(): void {
    this.#chosen += 1;
    this.view.set("chat");
    if (this.core.conversations.path(this.conversation.get()).length > 0 || this.core.conversations.get(this.conversation.get()) === null) {
      this.#switch(this.core.conversations.create(this.core.settings.lastModel.get()).id);
    }
    this.#chat.open();
    this.#writeAddress(false);
    this.#title();
    this.#chat.composer.focus();
  }

  #switch(id: string): void {
    this.#settings.settle();
    this.conversation.set(id);
  }

  /** Another tab has deleted what is shown. What was typed and not sent goes on in a new conversation. */
  #replaceGone(): void {
    const { conversations, drafts, settings } = this.core;
    const gone = this.conversation.get();
    const texts = [drafts.get(null), drafts.get(gone)].filter((text) => text !== "");
    drafts.set(null, texts.join("\n\n"));
    drafts.set(gone, "");
    this.#chosen += 1;
    this.#switch(conversations.create(settings.lastModel.get()).id);
    if (this.view.get() === "chat") {
      this.#chat.open();
      this.#writeAddress(true);
    }
    this.note("The conversation was deleted in another tab.");
  }

  chooseModel(): void {
    this.#picker.click();
  }

  openSettings(at: keyof Settings): void {
    this.#settings.openAt(at, document.getElementById("settings-tool"));
  }

  answerAsked(): void {
    this.#chat.composer.expectAnswer();
  }

  note(text: string, action?: NoteAction): void {
    this.#notes.show(text, action);
  }

  announce(text: string): void {
    // Further text while the first is not read yet is added, not put in its place.
    const line = element("p", {}, text);
    this.#live.append(line);
    setTimeout(() => line.remove(), 10_000);
  }

  copy(text: string, what: string): void {
    void copyText(text).then((copied) => {
      if (copied) this.note(`${what} copied.`);
      else offerText(text);
    });
  }

  download(name: string, type: string, text: string): void {
    saveFile(name, type, text);
  }

  #show(view: ViewName): void {
    const shown = { chat: this.#chat, status: this.#status, embeddings: this.#embeddings }[view];
    this.#status.show(view === "status");
    if (view !== "chat") this.#settings.toggle(false);
    replace(this.#main, shown.element);
    if (view === "chat") this.#chat.open();
    else this.#embeddings.shown(view === "embeddings");
    this.#title();
  }

  #title(): void {
    const view = this.view.get();
    const title = view === "chat" ? this.core.conversations.get(this.conversation.get())?.title ?? "" : view === "status" ? "Status" : "Embeddings";
    document.title = title === "" ? "Quarrel" : `${title} · Quarrel`;
  }

  #readAddress(): void {
    this.#chosen += 1;
    this.view.set(viewOf(location.pathname));
    const id = /^#c=(.+)$/.exec(location.hash)?.[1];
    if (this.view.get() !== "chat") return;
    if (id === undefined) {
      if (this.core.conversations.path(this.conversation.get()).length > 0) this.newConversation();
      return;
    }
    const known = decoded(id);
    if (known === this.conversation.get()) return;
    if (known !== null && this.core.conversations.has(known)) {
      this.openConversation(known);
      return;
    }
    this.note("That conversation is not in this browser.");
    this.#writeAddress(true);
  }

  #writeAddress(inPlace: boolean): void {
    const view = this.view.get();
    const id = this.conversation.get();
    const hash = view === "chat" && this.core.conversations.path(id).length > 0 ? `#c=${encodeURIComponent(id)}` : "";
    const address = `${PATHS[view]}${hash}`;
    if (address === `${location.pathname}${location.hash}`) return;
    if (inPlace) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    this.#title();
  }

  #toggleSidebar(): void {
    if (WIDE.matches) this.core.settings.setSidebarOpen(!this.core.settings.sidebarOpen.get());
    else this.#drawer.set(!this.#drawer.get());
  }

  #fold(): void {
    const open = WIDE.matches ? this.core.settings.sidebarOpen.get() : this.#drawer.get();
    this.#root.classList.toggle("app--folded", !open);
    this.#menu.setAttribute("aria-expanded", open ? "true" : "false");
    this.#stage.inert = !WIDE.matches && open; // a drawer lies over it
    if (!WIDE.matches && open) this.#sidebar.element.querySelector<HTMLElement>("button")?.focus();
    if (!open && this.#sidebar.element.contains(document.activeElement)) this.#menu.focus();
  }

  /** What lies behind the settings of a phone cannot be reached. */
  #cover(): void {
    this.#root.inert = this.#settings.open && NARROW.matches;
  }

  #escape(): boolean {
    if (this.#settings.open) this.#settings.toggle(false);
    else if (this.#drawer.get()) this.#drawer.set(false);
    else if (this.core.chat.running.get().has(this.conversation.get())) this.core.chat.stop(this.conversation.get());
    else return false;
    return true;
  }

  #shortcuts(): Shortcut[] {
    const chat = (work: () => void) => (): boolean => {
      this.go("chat");
      this.#drawer.set(false);
      work();
      return true;
    };
    return [
      { keys: "Ctrl+Shift+O", does: "New chat", matches: (event) => control(event) && event.shiftKey && event.code === "KeyO", run: chat(() => this.newConversation()) },
      { keys: "Ctrl+K", does: "Search conversations", matches: (event) => control(event) && !event.shiftKey && event.code === "KeyK", run: () => this.#searchByKey() },
      { keys: "/", does: "Go to the composer", matches: (event) => event.key === "/" && !event.ctrlKey && !event.metaKey, run: chat(() => this.#chat.composer.focus()) },
      { keys: "Esc", does: "Stop the answer, close a panel", matches: (event) => event.key === "Escape", run: () => this.#escape() },
      { keys: "Ctrl+B", does: "Show or hide the sidebar", matches: (event) => control(event) && event.code === "KeyB", run: () => {
        this.#toggleSidebar();
        return true;
      } },
      { keys: "Ctrl+,", does: "Settings", matches: (event) => control(event) && event.key === ",", run: chat(() => this.#settings.toggle(!this.#settings.open, document.getElementById("settings-tool") ?? undefined)) },
      { keys: "Alt+↑", does: "Conversation above", matches: (event) => event.altKey && event.key === "ArrowUp", run: () => this.#neighbour(-1) },
      { keys: "Alt+↓", does: "Conversation below", matches: (event) => event.altKey && event.key === "ArrowDown", run: () => this.#neighbour(1) },
      { keys: "Ctrl+Shift+C", does: "Copy the last answer", matches: (event) => control(event) && event.shiftKey && event.code === "KeyC", run: () => this.#copyLast() },
      { keys: "Ctrl+Shift+Enter", does: "Regenerate the last answer", matches: (event) => control(event) && event.shiftKey && event.key === "Enter", run: () => this.#regenerateLast() },
      { keys: "Ctrl+Z", does: "Undo, while it is offered", inDialogs: true, matches: (event) => control(event) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "z" && !this.#notes.isTypedIn(event.target), run: () => this.#notes.act() },
      { keys: "?", does: "Show the shortcuts", matches: (event) => event.key === "?", run: () => {
        showShortcuts();
        return true;
      } },
    ];
  }

  #searchByKey(): boolean {
    if (this.#root.inert) this.#settings.toggle(false);
    if (WIDE.matches) this.core.settings.setSidebarOpen(true);
    else this.#drawer.set(true);
    this.#sidebar.focusSearch();
    return true;
  }

  #neighbour(step: number): boolean {
    const list = this.core.conversations.list.get();
    const next = list[list.findIndex(({ id }) => id === this.conversation.get()) + step];
    if (next) this.openConversation(next.id);
    return next !== undefined;
  }

  #copyLast(): boolean {
    const last = this.core.conversations.path(this.conversation.get()).findLast(({ message }) => message.role === "assistant");
    if (last) this.copy(last.message.text, "Answer");
    return last !== undefined;
  }

  #regenerateLast(): boolean {
    const last = this.core.conversations.path(this.conversation.get()).at(-1)?.message;
    if (last === undefined || last.role !== "assistant" || this.core.chat.running.get().has(last.conversationId)) return false;
    this.answerAsked();
    this.core.chat.regenerate(last.conversationId, last.id).catch((failure: unknown) => this.note(failure instanceof Error ? failure.message : "The request failed."));
    return true;
  }
}

/** null: it was cut or mistyped. */
function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

function viewOf(path: string): ViewName {
  if (path === PATHS.status) return "status";
  return path === PATHS.embeddings ? "embeddings" : "chat";
}
