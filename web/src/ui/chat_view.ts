// The chat: the thread above, the composer below, and the voice that tells screen readers what has come.
import { BlockSplitter } from "../core/blocks.ts";
import { spokenText } from "../core/markdown.ts";
import { noticeText } from "./answer_state.ts";
import { Composer } from "./composer.ts";
import { element, setText } from "./dom.ts";
import { emptyState } from "./empty_state.ts";
import { footer } from "./footer.ts";
import { follow, type Page } from "./page.ts";
import { Thread } from "./thread.ts";

export class ChatView {
  readonly element: HTMLElement;
  readonly thread: Thread;
  readonly composer: Composer;

  constructor(page: Page) {
    this.composer = new Composer(page);
    this.thread = new Thread(page, emptyState(page, (text) => this.composer.write(text)));
    const title = element("h1", { class: "unseen" });
    const draw = (): void => setText(title, page.core.conversations.get(page.conversation.get())?.title || "New chat");
    page.conversation.subscribe(draw);
    follow(page.core.conversations.list, draw);
    const dock = element("div", { class: "dock" }, this.thread.jump, element("div", { class: "dock__frame" }, element("div", { class: "dock__column" }, this.composer.element, footer(page))));
    this.element = element("div", { class: "view" }, title, this.thread.element, dock);
    // Notes stand above it; it is 0 where another view is shown.
    new ResizeObserver(() => document.documentElement.style.setProperty("--dock", `${dock.offsetHeight}px`)).observe(dock);
    this.element.addEventListener("click", (event) => this.#copyCode(page, event));
    tellAnswers(page);
  }

  open(): void {
    this.thread.open();
    this.composer.open();
  }

  #copyCode(page: Page, event: Event): void {
    const pressed = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-action=copy-code]") : null;
    const code = pressed?.closest(".md-code")?.querySelector("code");
    if (code) page.copy(code.textContent.replace(/\n$/, ""), "Code");
  }
}

/** Screen readers hear the paragraphs of an answer as they are whole, without their marks, and how it ended, which may be the
 * first that comes of it. */
function tellAnswers(page: Page): void {
  const { core } = page;
  const begun = new Set<string>(); // answers that are not over yet
  let told: { id: string; blocks: BlockSplitter } | null = null;
  core.chat.running.subscribe((running) => {
    for (const { messageId } of running.values()) begun.add(messageId);
  });
  core.conversations.changes.on((change) => {
    if (change.kind !== "message") return;
    const message = core.conversations.message(change.conversationId, change.messageId);
    if (message === null || message.role !== "assistant") return;
    const over = message.state !== "writing";
    const ended = over && begun.delete(message.id);
    if (change.conversationId !== page.conversation.get()) return;
    if (told?.id !== message.id) {
      if (ended) page.announce(noticeText(message) ?? "End of the answer.");
      if (over) return;
      told = { id: message.id, blocks: new BlockSplitter() };
      told.blocks.feed(message.text); // what an answer had before it was continued is known
    }
    const whole = told.blocks.feed(message.text);
    if (over) whole.push(told.blocks.open(message.text));
    for (const text of whole.map(spokenText)) if (text !== "") page.announce(text);
    if (!over) return;
    page.announce(noticeText(message) ?? "End of the answer.");
    told = null;
  });
}
