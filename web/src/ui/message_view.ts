// One message in the document: its bubble, what stands under it, and its editor. The thread makes it when it comes near
// the view and drops it when it goes; what must outlast that (an edit that was begun) is the thread's.
import { createMarkdownView, type MarkdownView } from "../core/markdown.ts";
import type { Message, RunningAnswer, ShownMessage } from "../core/types.ts";
import { noticeOf, Waiting } from "./answer_state.ts";
import { tool } from "./controls.ts";
import { attribute, element, replace, setText } from "./dom.ts";
import { count, duration, fullTime, plural, rounded } from "./format.ts";
import type { Page } from "./page.ts";
import { editor } from "./editor.ts";
import { openKeyDialog } from "./key_dialog.ts";
import { SourcesView } from "./sources_view.ts";

export interface MessagePlace {
  last: boolean;
  running: RunningAnswer | null; // of this message
  busy: boolean; // an answer of this conversation runs
}

/** What outlasts a message's view. */
export interface MessageOwner {
  /** Texts that were begun in editors, by message. */
  readonly drafts: Map<string, string>;
  /** Another branch takes this message's place: the same control there gets the focus. */
  keepFocus(message: Message, control: Control): void;
}

export type Control = "previous" | "next" | "edit";

export class MessageView {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #owner: MessageOwner;
  readonly #bubble = element("div", { class: "message__bubble" });
  readonly #sources = new SourcesView();
  readonly #under = element("div", { class: "message__under" });
  readonly #figures = element("div", { class: "message__figures" });
  readonly #actions = element("div", { class: "message__actions" });
  readonly #pager = element("div", { class: "pager", role: "group", "aria-label": "Branches" });
  #shown: ShownMessage;
  #place: MessagePlace;
  #markdown: MarkdownView | null = null;
  #waiting: Waiting | null = null;
  #notice: HTMLElement | null = null;
  #editing = false;
  #drawn = ""; // what the parts around the text were last drawn from

  constructor(page: Page, shown: ShownMessage, place: MessagePlace, owner: MessageOwner) {
    this.#page = page;
    this.#shown = shown;
    this.#place = place;
    this.#owner = owner;
    const { message } = shown;
    const user = message.role === "user";
    this.element = element("article", {
      class: `message message--${user ? "user" : "model"}`, "data-message": message.id, "aria-label": user ? "You" : "Answer",
    }, element("h2", { class: "unseen" }, user ? "You" : "Answer"), this.#bubble, user ? null : this.#sources.element, this.#under);
    if (user) this.#under.append(this.#actions, this.#pager);
    else this.#under.append(this.#figures, this.#pager, this.#actions);
    if (owner.drafts.has(message.id)) this.#edit(false);
    this.update(shown, place);
  }

  /** Draws again what differs; cheap where nothing does. */
  update(shown: ShownMessage, place: MessagePlace): void {
    this.#shown = shown;
    this.#place = place;
    this.element.classList.toggle("message--last", place.last);
    if (!this.#editing) {
      if (shown.message.role === "user") this.#drawUser(shown.message);
      else this.#drawAnswer(shown.message);
    }
    this.#drawUnder(shown);
  }

  end(): void {
    this.#waiting?.end();
    this.element.remove();
  }

  #edit(fresh: boolean): void {
    const { message } = this.#shown;
    this.#editing = true;
    this.#markdown = null;
    this.#waiting?.end();
    this.#waiting = null;
    this.#bubble.classList.add("message__bubble--editing");
    const close = (): void => {
      this.#editing = false;
      this.#owner.drafts.delete(message.id);
      this.#bubble.classList.remove("message__bubble--editing");
      this.#bubble.replaceChildren();
      this.update(this.#shown, this.#place);
    };
    this.#drawUnder(this.#shown);
    replace(this.#bubble, editor({
      text: this.#owner.drafts.get(message.id) ?? message.text,
      fresh,
      user: message.role === "user",
      typed: (text) => this.#owner.drafts.set(message.id, text),
      cancel: () => {
        close();
        this.element.querySelector<HTMLElement>("[data-control=edit]")?.focus();
      },
      save: (text) => {
        if (message.role === "assistant" && text === message.text) return close();
        // What was typed stays where the edit cannot be carried out.
        this.#ask(this.#page.core.chat.edit(message.conversationId, message.id, text).then(() => {
          close();
          if (message.role === "user") this.#page.answerAsked();
          else this.#owner.keepFocus(message, "edit");
        }));
      },
    }));
  }

  #drawUser(message: Message): void {
    const text = this.#bubble.querySelector(".message__text");
    if (text === null) replace(this.#bubble, element("div", { class: "message__text", dir: "auto" }, message.text));
    else setText(text, message.text);
  }

  #drawAnswer(message: Message): void {
    const writing = message.state === "writing";
    const empty = message.text === "";
    if (this.#markdown === null) {
      const prose = element("div", { class: "prose", dir: "auto" });
      replace(this.#bubble, prose);
      this.#notice = null;
      this.#markdown = createMarkdownView(prose);
    }
    this.#markdown.update(message.text, !writing);
    const prose = this.#bubble.firstElementChild;
    prose?.classList.toggle("prose--writing", writing && !empty);
    if (prose instanceof HTMLElement) prose.hidden = empty;
    this.#drawWaiting(writing && (empty || this.#place.running?.phase === "lost"));
  }

  #drawWaiting(needed: boolean): void {
    if (needed && this.#waiting === null) {
      this.#waiting = new Waiting();
      this.#bubble.append(this.#waiting.element);
    } else if (!needed && this.#waiting !== null) {
      this.#waiting.end();
      this.#waiting = null;
    }
    this.#waiting?.show(this.#place.running);
  }

  #drawUnder(shown: ShownMessage): void {
    const { message } = shown;
    const answer = message.role === "assistant";
    if (answer) this.#drawFigures(figures(message, this.#place.running));
    if (answer) attribute(this.element, "aria-label", `Answer from ${message.model ?? "the model"}`); // which may be known later than it began
    attribute(this.#figures, "title", `${message.model ?? ""} ${fullTime(message.createdAt)}`.trim());
    this.#sources.show(this.#editing || message.state === "writing" ? null : message.sources);
    const key = [message.state, message.finishReason, message.error?.message, shown.place, shown.siblings.length, this.#place.busy, this.#place.last, this.#editing].join("|");
    if (key === this.#drawn) return;
    this.#drawn = key;
    this.#drawNotice(message);
    this.#drawPager(shown);
    replace(this.#actions, ...this.#tools(message));
  }

  #drawFigures(parts: readonly (readonly [string, string])[]): void {
    if (this.#figures.childElementCount !== parts.length) replace(this.#figures, ...parts.map(([name]) => element("span", { class: `message__${name}` })));
    parts.forEach(([, text], at) => setText(this.#figures.children[at] ?? this.#figures, text));
  }

  #drawNotice(message: Message): void {
    this.#notice?.remove();
    this.#notice = this.#editing || message.role === "user" ? null : noticeOf(message, {
      retry: () => this.#askAnswer(this.#page.core.chat.retry(message.conversationId, message.id)),
      continueAnswer: () => this.#askAnswer(this.#page.core.chat.continueAnswer(message.conversationId, message.id)),
      newChat: () => this.#page.newConversation(),
      giveKey: () => openKeyDialog(this.#page),
      chooseModel: () => this.#page.chooseModel(),
      changeDataset: () => this.#page.openSettings("retrievalAddress"),
    });
    this.#bubble.classList.toggle("message__bubble--bare", this.#notice !== null && message.text === "");
    if (this.#notice === null) return;
    for (const each of this.#notice.querySelectorAll("button")) each.disabled = this.#place.busy;
    this.#bubble.append(this.#notice);
  }

  #drawPager(shown: ShownMessage): void {
    const { siblings, place, message } = shown;
    if (siblings.length < 2) {
      replace(this.#pager);
      this.#pager.hidden = true;
      return;
    }
    this.#pager.hidden = false;
    const select = (at: number, control: Control): void => {
      const id = siblings[at];
      if (id === undefined) return;
      this.#owner.keepFocus(message, control);
      this.#page.core.conversations.select(message.conversationId, id);
    };
    const back = tool("left", "Previous branch", () => select(place - 1, "previous"), { small: true });
    const on = tool("right", "Next branch", () => select(place + 1, "next"), { small: true });
    back.dataset["control"] = "previous";
    on.dataset["control"] = "next";
    back.disabled = place === 0 || this.#place.busy;
    on.disabled = place === siblings.length - 1 || this.#place.busy;
    const text = `${place + 1}/${siblings.length}`;
    replace(this.#pager, back, element("span", { class: "pager__place", "aria-label": `Branch ${place + 1} of ${siblings.length}`, role: "img" }, text), on);
  }

  #tools(message: Message): HTMLElement[] {
    if (message.state === "writing" || this.#editing) return [];
    const { chat } = this.#page.core;
    const made: HTMLButtonElement[] = [];
    if (message.text !== "") made.push(...this.#textTools(message));
    if (message.role === "assistant" && (message.error === null || message.text !== "")) { // the error has its own Retry
      const again = tool("retry", "Regenerate", () => this.#askAnswer(chat.regenerate(message.conversationId, message.id)), { small: true });
      again.disabled = this.#place.busy;
      made.push(again);
    }
    return made;
  }

  #textTools(message: Message): HTMLButtonElement[] {
    const made = [tool("copy", "Copy the text", () => this.#page.copy(message.text, message.role === "user" ? "Message" : "Answer"), { small: true })];
    const change = tool("edit", message.role === "user" ? "Edit and run again" : "Edit the answer", () => this.#edit(true), { small: true });
    change.dataset["control"] = "edit";
    change.disabled = this.#place.busy;
    return [...made, change];
  }

  #askAnswer(begun: Promise<void>): void {
    this.#page.answerAsked();
    this.#ask(begun);
  }

  /** What fails before a request has begun shows as a note; later it is the answer's own error. */
  #ask(begun: Promise<void>): void {
    begun.catch((failure: unknown) => this.#page.note(failure instanceof Error ? failure.message : "The request failed.", undefined));
  }
}

/** The text of each figure by the name of its class. */
function figures(message: Message, running: RunningAnswer | null): readonly (readonly [string, string])[] {
  const parts: [string, string][] = [];
  if (running?.phase === "writing" && running.tokensPerSecond > 0) { // one token has no speed
    parts.push(["speed", `${rounded(running.tokensPerSecond)} tokens/s`], ["counts", plural(running.generatedTokens, "token")]);
  } else if (message.statistics !== null && message.state !== "writing") {
    const { tokensPerSecond, timeToFirstToken, generatedTokens, promptTokens } = message.statistics;
    if (tokensPerSecond > 0) parts.push(["speed", `${rounded(tokensPerSecond)} tokens/s`]);
    // In the order of a running answer: what is new comes behind, and nothing moves.
    parts.push(["counts", `${count(promptTokens)} read, ${count(generatedTokens)} written`]);
    if (timeToFirstToken !== null) parts.push(["first", `first token after ${duration(timeToFirstToken)}`]);
  }
  return parts;
}

