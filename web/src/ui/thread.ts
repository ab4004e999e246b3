// The list of messages. Only those near the view are in the document; the others are empty room of the height that was
// measured, or guessed. It follows the end of an answer until the reader scrolls up.
import type { ConversationChange, Message, RunningAnswer, ShownMessage } from "../core/types.ts";
import { element } from "./dom.ts";
import { button } from "./controls.ts";
import { eachFrame, type Page } from "./page.ts";
import { MessageView, type Control, type MessageOwner, type MessagePlace } from "./message_view.ts";

const NEAR = 1000; // pixels beyond the view in which messages are kept
const AT_END = 40; // so close to the end counts as there
const MARK_STAYS = 5000; // milliseconds, on what was searched

export class Thread {
  readonly element = element("div", { class: "thread", tabindex: 0, role: "log", "aria-label": "Conversation", "aria-live": "off" });
  /** To the end; shows when the reader is elsewhere. */
  readonly jump: HTMLButtonElement;
  readonly #column = element("div", { class: "thread__column" });
  readonly #above = element("div", { class: "thread__gap", "aria-hidden": "true" });
  readonly #below = element("div", { class: "thread__gap", "aria-hidden": "true" });
  readonly #page: Page;
  readonly #empty: HTMLElement;
  readonly #heights = new Map<string, number>();
  readonly #views = new Map<string, MessageView>();
  readonly #owner: MessageOwner = { drafts: new Map(), keepFocus: (message, control) => {
    this.#focusNext = { message, control };
  } };
  readonly #changed = new Set<string>();
  readonly #sizes = new ResizeObserver((entries) => this.#measured(entries));
  readonly #draw = eachFrame(() => this.#drawNow());
  #items: readonly ShownMessage[] = [];
  #known = new Set<string>(); // those that were there before, which do not fade in
  #following = true;
  #lastTop = 0;
  #focusNext: { message: Message; control: Control } | null = null;
  #marked = 0; // the timer of the mark

  constructor(page: Page, empty: HTMLElement) {
    this.#page = page;
    this.#empty = empty;
    this.jump = button({ label: "Latest", icon: "down", class: "jump", press: () => this.toEnd() });
    this.jump.hidden = true;
    this.#column.append(this.#above, this.#below);
    this.element.append(this.#column, this.#empty);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("wheel", (event) => {
      if (event.deltaY < 0) this.#letGo();
    }, { passive: true });
    this.element.addEventListener("click", (event) => {
      if (event.target instanceof Element && event.target.closest("summary") !== null) this.#following = false; // who opens a source wants to read it
    });
    this.element.addEventListener("touchmove", () => this.#letGo(), { passive: true });
    this.element.addEventListener("keydown", (event) => {
      if (["PageUp", "ArrowUp", "Home"].includes(event.key)) this.#letGo();
    });
    new ResizeObserver(() => {
      if (this.#following) this.toEnd();
      this.#draw();
    }).observe(this.element);
    page.core.conversations.changes.on((change) => this.#heard(change));
    page.core.chat.running.subscribe(() => {
      for (const { message } of this.#items) if (message.state === "writing" || this.#views.has(message.id)) this.#changed.add(message.id);
      this.#draw();
    });
  }

  /** Shows another conversation, from its end. */
  open(): void {
    for (const view of this.#views.values()) this.#drop(view);
    this.#views.clear();
    this.#heights.clear();
    this.#focusNext = null;
    this.#items = this.#read();
    this.#known = new Set(this.#items.map(({ message }) => message.id));
    this.#following = true;
    this.#drawNow();
    this.toEnd();
  }

  toEnd(): void {
    this.#following = true;
    this.element.scrollTop = this.#items.length === 0 ? 0 : this.element.scrollHeight;
    this.#lastTop = this.element.scrollTop;
    this.jump.hidden = true;
    this.#draw();
  }

  /** Brings a message into view and marks it for the reader. */
  reveal(messageId: string): void {
    const at = this.#items.findIndex(({ message }) => message.id === messageId);
    if (at < 0) return;
    this.#following = false;
    this.element.scrollTop = this.#offset(at);
    this.#drawNow();
    requestAnimationFrame(() => {
      const view = this.#views.get(messageId);
      view?.element.scrollIntoView({ block: "start" });
      this.unmark();
      view?.element.classList.add("message--found");
      this.#marked = window.setTimeout(() => this.unmark(), MARK_STAYS);
    });
  }

  unmark(): void {
    clearTimeout(this.#marked);
    for (const { element: each } of this.#views.values()) each.classList.remove("message--found");
  }

  /** The reader takes the scroll in hand: the end is not followed until it is reached again. */
  #letGo(): void {
    if (this.element.scrollHeight > this.element.clientHeight) this.#following = false;
  }

  #read(): readonly ShownMessage[] {
    return this.#page.core.conversations.path(this.#page.conversation.get());
  }

  #heard(change: ConversationChange): void {
    if (change.kind === "list" || change.conversationId !== this.#page.conversation.get()) return;
    if (change.kind === "message") {
      this.#changed.add(change.messageId);
    } else {
      const before = this.#items.length;
      this.#items = this.#read();
      if (before === 0) this.#following = true;
      const last = this.#items.at(-1)?.message;
      if (last !== undefined && !this.#known.has(last.id) && last.state === "writing") this.#following = true;
      for (const { message } of this.#items) this.#changed.add(message.id);
    }
    this.#draw();
  }

  #drawNow(): void {
    const none = this.#items.length === 0;
    this.#empty.hidden = !none;
    this.#column.hidden = none;
    this.#place();
    this.#refresh();
    this.#giveFocus();
    if (none) this.element.scrollTop = 0;
    else if (this.#following) {
      this.element.scrollTop = this.element.scrollHeight;
      this.#lastTop = this.element.scrollTop;
    }
  }

  /** Puts into the document what is near the view, takes out the rest, and keeps their room. */
  #place(): void {
    const { first, last, above, below } = this.#range();
    const wanted = new Set<string>();
    for (let at = first; at < last; at += 1) wanted.add(this.#items[at]?.message.id ?? "");
    for (const [id, view] of this.#views) {
      if (wanted.has(id)) continue;
      this.#drop(view);
      this.#views.delete(id);
    }
    let before: Element = this.#above;
    for (let at = first; at < last; at += 1) {
      const view = this.#view(at);
      if (view === null) continue;
      if (before.nextElementSibling !== view.element) before.after(view.element);
      before = view.element;
    }
    this.#above.style.height = `${above}px`;
    this.#below.style.height = `${below}px`;
  }

  #range(): { first: number; last: number; above: number; below: number } {
    const top = this.#following ? Infinity : this.element.scrollTop;
    const total = this.#items.reduce((sum, _, at) => sum + this.#height(at), 0);
    const from = Math.min(top, Math.max(0, total - this.element.clientHeight)) - NEAR;
    const to = from + this.element.clientHeight + 2 * NEAR;
    let offset = 0;
    let first = 0;
    while (first < this.#items.length - 1 && offset + this.#height(first) < from) offset += this.#height(first++);
    const above = offset;
    let last = first;
    while (last < this.#items.length && offset < to) offset += this.#height(last++);
    return { first, last, above, below: Math.max(0, total - offset) };
  }

  #view(at: number): MessageView | null {
    const shown = this.#items[at];
    if (shown === undefined) return null;
    const known = this.#views.get(shown.message.id);
    if (known) return known;
    const made = new MessageView(this.#page, shown, this.#placeOf(at), this.#owner);
    if (!this.#known.has(shown.message.id)) {
      this.#known.add(shown.message.id);
      made.element.classList.add("message--new");
    }
    this.#views.set(shown.message.id, made);
    this.#sizes.observe(made.element);
    return made;
  }

  #placeOf(at: number): MessagePlace {
    const running: RunningAnswer | null = this.#page.core.chat.running.get().get(this.#page.conversation.get()) ?? null;
    const id = this.#items[at]?.message.id;
    return { last: at === this.#items.length - 1, running: running !== null && running.messageId === id ? running : null, busy: running !== null };
  }

  #refresh(): void {
    this.#items.forEach((shown, at) => {
      if (this.#changed.has(shown.message.id)) this.#views.get(shown.message.id)?.update(shown, this.#placeOf(at));
    });
    this.#changed.clear();
  }

  /** A branch has taken the place of another: the control that was pressed has the focus there. */
  #giveFocus(): void {
    if (this.#focusNext === null) return;
    const { message: before, control } = this.#focusNext;
    const now = this.#items.find(({ message }) => message.parentId === before.parentId)?.message;
    if (now === undefined || now.id === before.id) return;
    this.#focusNext = null;
    const found = this.#views.get(now.id)?.element;
    const same = found?.querySelector<HTMLElement>(`[data-control=${control}]:enabled`);
    (same ?? found?.querySelector<HTMLElement>(".pager [data-control]:enabled"))?.focus({ preventScroll: true });
  }

  #drop(view: MessageView): void {
    this.#sizes.unobserve(view.element);
    if (view.element.contains(document.activeElement)) this.element.focus();
    view.end();
  }

  #height(at: number): number {
    const shown = this.#items[at];
    if (shown === undefined) return 0;
    const known = this.#heights.get(shown.message.id);
    if (known !== undefined) return known;
    const { text, role } = shown.message;
    const wide = Math.max(30, Math.min(88, this.element.clientWidth / 9));
    return (role === "user" ? 82 : 116) + Math.ceil(text.length / wide) * 26;
  }

  #offset(until: number): number {
    let offset = 0;
    for (let at = 0; at < until; at += 1) offset += this.#height(at);
    return offset;
  }

  /** Heights of what is above the view change its place: the scroll goes along, so that nothing jumps for the reader. */
  #measured(entries: readonly ResizeObserverEntry[]): void {
    let shift = 0;
    let changed = false;
    const top = this.element.getBoundingClientRect().top;
    const tops = new Map(entries.map((entry) => [entry, entry.target.getBoundingClientRect().top]));
    for (const entry of [...entries].sort((one, other) => (tops.get(one) ?? 0) - (tops.get(other) ?? 0))) {
      const id = (entry.target as HTMLElement).dataset["message"] ?? "";
      const height = entry.borderBoxSize[0]?.blockSize ?? 0;
      if (height === 0 || !this.#views.has(id)) continue;
      const before = this.#height(this.#items.findIndex(({ message }) => message.id === id));
      if (Math.abs(before - height) < 0.5 && this.#heights.has(id)) continue;
      this.#heights.set(id, height);
      changed = true;
      const bottomBefore = (tops.get(entry) ?? 0) - shift + before;
      if (bottomBefore <= top + 1) shift += height - before;
    }
    if (!changed) return;
    if (this.#following) this.toEnd();
    else if (Math.abs(shift) >= 0.5) this.element.scrollTop += shift;
    this.#draw();
  }

  #scrolled(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    const left = scrollHeight - clientHeight - scrollTop;
    if (scrollTop < this.#lastTop - 1 && left > AT_END) this.#following = false;
    else if (scrollTop > this.#lastTop && left <= AT_END / 2) this.#following = true;
    this.#lastTop = scrollTop;
    this.jump.hidden = this.#following || left <= AT_END;
    this.#draw();
  }
}
