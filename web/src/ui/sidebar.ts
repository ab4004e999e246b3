// The conversations by day, with search over their texts; under them the other views and the footer.
import { TypedSearch } from "../core/search.ts";
import type { Conversation, SearchHit } from "../core/types.ts";
import { composing } from "./composing.ts";
import { button, tool } from "./controls.ts";
import { attribute, element, renew } from "./dom.ts";
import { dayGroup } from "./format.ts";
import { footerLinks } from "./footer.ts";
import { icon, mark } from "./icons.ts";
import { openMenu } from "./menu.ts";
import { follow, reason, type Page, type ViewName } from "./page.ts";
import { allMenu, oneMenu } from "./transfer.ts";

export interface SidebarActions {
  reveal: (messageId: string) => void;
  searched: () => void; // other words are looked for
  chosen: () => void; // something was opened: a drawer closes
}

export class Sidebar {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #actions: SidebarActions;
  readonly #rooms = element("div", { class: "rooms" });
  readonly #search: HTMLInputElement;
  readonly #searching: TypedSearch<readonly SearchHit[]>;
  #hits: readonly SearchHit[] | null = null; // null: nothing is looked for
  #renaming: string | null = null;
  #running = ""; // ids of conversations with an answer that runs

  constructor(page: Page, actions: SidebarActions) {
    this.#page = page;
    this.#actions = actions;
    this.#search = element("input", { class: "input", type: "search", placeholder: "Search conversations", "aria-label": "Search conversations", autocomplete: "off", on: { input: () => {
      actions.searched();
      this.#look();
    } } });
    this.#searching = new TypedSearch((words) => page.core.conversations.search(words).catch((failure: unknown) => {
      page.note(reason(failure));
      return [];
    }), (hits) => {
      this.#hits = hits;
      this.#draw();
    });
    const all = tool("more", "All conversations", (anchor) => openMenu(anchor, "All conversations", allMenu(page)));
    all.setAttribute("aria-haspopup", "menu");
    this.element = element("aside", { class: "side", id: "sidebar", "aria-label": "Conversations" }, element("div", { class: "side__inner" },
      element("div", { class: "side__head" }, this.#brand(), all),
      element("div", { class: "side__actions" },
        button({ label: "New chat", icon: "plus", press: () => {
          page.newConversation();
          actions.chosen();
        } }),
        element("div", { class: "search", role: "search" }, icon("search", true), this.#search)),
      this.#rooms,
      element("div", { class: "side__foot" }, this.#nav(), element("div", { class: "side__links" }, ...footerLinks(page)))));
    page.core.conversations.list.subscribe(() => this.#changed());
    page.conversation.subscribe(() => this.#draw());
    page.view.subscribe(() => this.#draw());
    page.core.chat.running.subscribe((running) => this.#drawRunning([...running.keys()].join(" ")));
    this.#search.addEventListener("keydown", (event) => {
      if (composing(event) || event.key !== "Escape" || this.#search.value === "") return;
      event.stopPropagation();
      this.#search.value = "";
      actions.searched();
      this.#look();
    });
    this.#draw();
  }

  focusSearch(): void {
    this.#search.focus();
    this.#search.select();
  }

  #brand(): HTMLElement {
    const made = element("a", { class: "side__brand", href: "/" }, mark("side__mark"), "Quarrel");
    made.addEventListener("click", (event) => this.#goBy(event, "chat"));
    return made;
  }

  #nav(): HTMLElement {
    const links = [["chat", "/", "Chat", "chat"], ["status", "/status", "Status", "chart"], ["embeddings", "/embeddings", "Embeddings", "grid"]] as const;
    const made = element("nav", { class: "nav", "aria-label": "Views" });
    for (const [view, address, label, picture] of links) {
      const link = element("a", { class: "nav__link", href: address }, icon(picture), label);
      link.addEventListener("click", (event) => this.#goBy(event, view));
      follow(this.#page.view, (shown) => attribute(link, "aria-current", shown === view ? "page" : null));
      made.append(link);
    }
    return made;
  }

  #goBy(event: MouseEvent, view: ViewName): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    this.#page.go(view);
    this.#actions.chosen();
  }

  #drawRunning(ids: string): void {
    if (ids === this.#running) return;
    this.#running = ids;
    this.#draw();
  }

  #changed(): void {
    if (this.#hits !== null) this.#look();
    else this.#draw();
  }

  #look(): void {
    this.#searching.look(this.#search.value.trim());
  }

  #draw(): void {
    if (this.#renaming !== null && this.#rooms.querySelector(".room__rename") !== null) return; // a title is being typed: its end draws
    const focused = document.activeElement instanceof HTMLElement && this.#rooms.contains(document.activeElement) ? document.activeElement.dataset["focus"] : undefined;
    if (this.#hits !== null) this.#drawHits(this.#hits);
    else this.#drawDays();
    if (focused === undefined) return;
    const same = this.#rooms.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`);
    (same ?? this.#rooms.querySelector<HTMLElement>(".room__open") ?? this.#search).focus(); // it may be gone
  }

  #drawDays(): void {
    const list = this.#page.core.conversations.list.get();
    if (list.length === 0) {
      renew(this.#rooms, element("p", { class: "rooms__empty" }, "Your conversations appear here. They are kept in this browser only."));
      return;
    }
    const now = Date.now();
    const days = new Map<string, HTMLElement>();
    const made: HTMLElement[] = [];
    for (const conversation of list) {
      const day = dayGroup(conversation.updatedAt, now);
      let group = days.get(day);
      if (group === undefined) {
        group = element("ul", { "aria-label": day });
        days.set(day, group);
        made.push(element("h2", { class: "rooms__day" }, day), group);
      }
      group.append(this.#room(conversation));
    }
    renew(this.#rooms, ...made);
  }

  #drawHits(hits: readonly SearchHit[]): void {
    if (hits.length === 0) {
      renew(this.#rooms, element("p", { class: "rooms__empty", role: "status" }, "No matches. All words must appear in a title or message."));
      return;
    }
    const group = element("ul", { "aria-label": "Found" });
    for (const hit of hits) {
      const conversation = this.#page.core.conversations.get(hit.conversationId);
      if (conversation !== null) group.append(this.#room(conversation, hit));
    }
    renew(this.#rooms, element("h2", { class: "rooms__day" }, "Found"), group);
  }

  #room(conversation: Conversation, hit?: SearchHit): HTMLElement {
    const { id } = conversation;
    const current = this.#page.view.get() === "chat" && this.#page.conversation.get() === id;
    const made = element("li", { class: current ? "room room--current" : "room" });
    if (this.#renaming === id) {
      made.append(this.#renameField(conversation));
      return made;
    }
    const title = conversation.title === "" ? "New chat" : conversation.title;
    const open = element("button", { type: "button", class: "room__open", "aria-current": current ? "true" : null, "data-focus": `open ${id}`, "data-hit": hit?.messageId ?? null, title },
      element("span", { class: "room__title", dir: "auto" }, this.#running.includes(id) ? element("span", { class: "room__running dot dot--busy dot--pulse", role: "img", "aria-label": "An answer is being written" }) : null, title),
      hit && hit.messageId !== null ? element("span", { class: "room__found", dir: "auto" }, ...marked(hit)) : null);
    open.addEventListener("click", () => {
      this.#page.openConversation(id);
      if (hit?.messageId) this.#actions.reveal(hit.messageId);
      this.#actions.chosen();
    });
    open.addEventListener("keydown", (event) => {
      if (event.key === "F2") this.#rename(id);
      if (event.key === "Delete") this.#remove(conversation);
    });
    const more = tool("more", `Actions for ${title}`, (anchor) => openMenu(anchor, title, oneMenu(this.#page, conversation, {
      rename: () => this.#rename(id),
      remove: () => this.#remove(conversation),
    })), { class: "room__more" });
    for (const [name, value] of [["aria-haspopup", "menu"], ["aria-expanded", "false"], ["data-focus", `more ${id}`]] as const) more.setAttribute(name, value);
    made.append(open, more);
    return made;
  }

  #renameField(conversation: Conversation): HTMLElement {
    const field = element("input", { class: "input room__rename", "aria-label": "Title", maxlength: 200 });
    field.value = conversation.title;
    let over = false;
    const end = (keep: boolean): void => {
      if (over) return;
      over = true;
      this.#renaming = null;
      const title = field.value.trim();
      if (keep && title !== "" && title !== conversation.title) this.#page.core.conversations.rename(conversation.id, title);
      this.#draw();
      this.#rooms.querySelector<HTMLElement>(`[data-focus="open ${CSS.escape(conversation.id)}"]`)?.focus();
    };
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (composing(event)) return;
      if (event.key === "Enter") {
        event.preventDefault(); // the button that has the focus then is not pressed by it
        end(true);
      }
      if (event.key === "Escape") end(false);
    });
    field.addEventListener("blur", () => end(true));
    queueMicrotask(() => {
      field.focus();
      field.select();
    });
    return field;
  }

  #rename(id: string): void {
    this.#renaming = id;
    this.#draw();
  }

  #remove(conversation: Conversation): void {
    const { conversations } = this.#page.core;
    const shown = this.#page.conversation.get() === conversation.id;
    const undo = conversations.remove(conversation.id);
    if (shown) this.#page.newConversation();
    this.#page.note(`“${short(conversation.title)}” deleted.`, { label: "Undo", press: () => {
      undo();
      if (shown) this.#page.openConversation(conversation.id);
    } });
  }
}

function short(title: string): string {
  const shown = title === "" ? "New chat" : title;
  return shown.length > 40 ? `${shown.slice(0, 39)}…` : shown;
}

function marked(hit: SearchHit): (string | HTMLElement)[] {
  const parts: (string | HTMLElement)[] = [];
  let at = 0;
  for (const [start, end] of hit.marks) {
    if (start < at) continue;
    parts.push(hit.excerpt.slice(at, start), element("mark", {}, hit.excerpt.slice(start, end)));
    at = end;
  }
  parts.push(hit.excerpt.slice(at));
  return parts;
}
