// The chat: the thread above, the composer below, and the voice that tells screen readers what has come.
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
    this.element = element("div", { class: "view" }, title, this.thread.element,
      element("div", { class: "dock" }, this.thread.jump, element("div", { class: "dock__frame" }, element("div", { class: "dock__column" }, this.composer.element, footer(page)))));
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

/** Screen readers hear that an answer is written, its paragraphs as they are whole, and how it ended. */
function tellAnswers(page: Page): void {
  const { core } = page;
  let said = { id: "", length: 0 };
  core.conversations.changes.on((change) => {
    if (change.kind !== "message" || change.conversationId !== page.conversation.get()) return;
    const message = core.conversations.message(change.conversationId, change.messageId);
    if (message === null || message.role !== "assistant") return;
    if (said.id !== message.id) {
      if (message.state !== "writing") return;
      said = { id: message.id, length: 0 };
    }
    const over = message.state !== "writing";
    const end = over ? message.text.length : message.text.lastIndexOf("\n\n");
    if (end > said.length) page.announce(message.text.slice(said.length, end).trim());
    said.length = Math.max(said.length, end);
    if (!over) return;
    if (message.error !== null) page.announce(message.error.message);
    else page.announce("End of the answer.");
    said = { id: "", length: 0 };
  });
}
