// What stands in an answer's bubble before its text comes, and under it when it did not end as it should: loading,
// reading, waiting, stopped, cut, failed.
import type { Message, RequestError, RunningAnswer } from "../core/types.ts";
import { bar, button, type Bar } from "./controls.ts";
import { element, setText } from "./dom.ts";
import { bytes, count, plural } from "./format.ts";
import { icon } from "./icons.ts";

export interface AnswerActions {
  retry: () => void;
  continueAnswer: () => void;
  newChat: () => void;
  giveKey: () => void;
  chooseModel: () => void;
  changeDataset: () => void;
}

/** The line and the bar of an answer without text yet. */
export class Waiting {
  readonly element: HTMLElement;
  readonly #dots = element("span", { class: "typing", "aria-hidden": "true" }, element("span"), element("span"), element("span"));
  readonly #spinner = element("span", { class: "spinner", "aria-hidden": "true" });
  readonly #text = element("span", {});
  readonly #bar: Bar = bar("Progress");
  readonly #timer: number;
  #running: RunningAnswer | null = null;

  constructor() {
    this.element = element("div", { class: "waiting" }, element("div", { class: "waiting__line" }, this.#dots, this.#spinner, this.#text), this.#bar.element);
    this.#timer = window.setInterval(() => this.#draw(), 500);
  }

  show(running: RunningAnswer | null): void {
    this.#running = running;
    this.#draw();
  }

  end(): void {
    clearInterval(this.#timer);
    this.element.remove();
  }

  #draw(): void {
    const running = this.#running;
    const withBar = running?.phase === "loading" || running?.phase === "reading";
    this.#bar.element.hidden = !withBar;
    this.#dots.hidden = running?.phase === "loading";
    this.#spinner.hidden = running?.phase !== "loading";
    setText(this.#text, running ? phaseText(running, Date.now()) : "");
    const progress = running?.progress;
    this.#bar.set(progress && progress.total > 0 ? progress.completed / progress.total : null);
  }
}

/** What a running answer is doing, in words. */
export function phaseText(running: RunningAnswer, now: number): string {
  const seconds = Math.round((now - running.startedAt) / 1000);
  const since = seconds >= 2 ? `, ${seconds} s` : "";
  const progress = running.progress;
  switch (running.phase) {
    case "sending": return seconds >= 2 ? `Sending${since}` : "";
    case "queued": return `The server is busy: ${placeText(running.ahead)}${since}`;
    case "loading":
      return progress && progress.total > 0 ? `Loading the model: ${bytes(progress.completed)} of ${bytes(progress.total)}${since}` : `Loading the model${since}`;
    case "reading":
      if (!progress || progress.total === 0) return `Reading the prompt${since}`;
      return progress.completed > 0 ? `Reading the prompt: ${count(progress.completed)} of ${plural(progress.total, "token")}${since}` : `Reading the prompt: ${plural(progress.total, "token")}${since}`;
    case "lost": return "Connection lost. The answer continues once reconnected.";
    case "elsewhere": return "Another tab is writing this answer.";
    case "writing": return "";
  }
}

function placeText(ahead: number | null): string {
  if (ahead === null) return "waiting for other answers";
  return ahead === 0 ? "next in the queue" : `${plural(ahead, "request")} before this one`;
}

/** How an answer that is over has ended, in words; null: as it should. */
export function noticeText(message: Message): string | null {
  if (message.state === "interrupted") return "The answer was interrupted before it was complete.";
  const { error } = message;
  if (error !== null) return `${sentenceOf(message, error)}${error.retryAfter ? ` Try again in ${plural(error.retryAfter, "second")}.` : ""}`;
  if (message.state !== "complete") return null;
  switch (message.finishReason) {
    case "length": return `Cut${message.statistics ? ` at ${plural(message.statistics.generatedTokens, "token")}` : ""}, the limit in the settings.`;
    case "context": return "The context is full: the model can read no more of this conversation. Edit an earlier message, or start a new chat.";
    case "cancelled": return "Stopped.";
    default: return message.text.trim() === "" ? "The model answered with nothing." : null;
  }
}

/** What stands under the text of an answer that is over; null: nothing needs to be said. */
export function noticeOf(message: Message, actions: AnswerActions): HTMLElement | null {
  const text = noticeText(message);
  if (text === null) return null;
  const goOn = (): HTMLElement => button({ label: "Continue", small: true, press: actions.continueAnswer });
  if (message.state === "interrupted") return notice("warn", text, goOn(), again(actions));
  if (message.error !== null) return notice("bad", text, ...errorButtons(message.error, actions));
  if (message.finishReason === "context") return notice("warn", text, button({ label: "New chat", small: true, press: actions.newChat }));
  return notice("", text, message.finishReason === "length" || message.finishReason === "cancelled" ? goOn() : again(actions));
}

function again(actions: AnswerActions): HTMLElement {
  return button({ label: "Retry", icon: "retry", small: true, press: actions.retry });
}

function errorButtons(error: RequestError, actions: AnswerActions): HTMLElement[] {
  const buttons = [again(actions)];
  if (error.code === "KEY_NEEDED") buttons.unshift(button({ label: "Enter key", icon: "key", small: true, press: actions.giveKey }));
  if (error.code === "RETRIEVAL_FAILED") buttons.unshift(button({ label: "Settings", icon: "sliders", small: true, press: actions.changeDataset }));
  if (error.code === "MODEL_NOT_FOUND") buttons.unshift(button({ label: "Choose a model", small: true, press: actions.chooseModel }));
  if (error.code === "CONTEXT_FULL") buttons.push(button({ label: "New chat", small: true, press: actions.newChat }));
  return buttons;
}

/** The server's own words, but where they speak to programs. */
function sentenceOf(message: Message, error: RequestError): string {
  switch (error.code) {
    case "MODEL_NOT_FOUND": return `The server does not offer ${message.model === null ? "that model" : `the model “${message.model}”`}. Choose another one, then retry.`;
    case "ANSWER_LOST": return "The server no longer has this answer. It may have been restarted.";
    default: return error.message;
  }
}

function notice(look: "" | "warn" | "bad", text: string, ...buttons: HTMLElement[]): HTMLElement {
  return element("div", { class: look ? `message__notice message__notice--${look}` : "message__notice" },
    look ? icon("warning") : null, element("span", { class: text.length < 30 ? "message__notice-text message__notice-text--short" : "message__notice-text" }, text), ...buttons);
}
