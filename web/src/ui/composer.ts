// Where a message is written: the field, templates, the context's gauge, and Send, which is Stop while an answer comes.
import { directionOf } from "../core/direction.ts";
import { composing } from "./composing.ts";
import { button } from "./controls.ts";
import { attribute, element, setText, svg } from "./dom.ts";
import { count, plural } from "./format.ts";
import { icon } from "./icons.ts";
import { openMenu } from "./menu.ts";
import { eachFrame, reason, type Page } from "./page.ts";
import { manageTemplates } from "./templates.ts";

const ROUND = 2 * Math.PI * 7;
const SURELY_LONG = 20_000; // characters: more than eight lines, which need not be measured at every key

export class Composer {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #field: HTMLTextAreaElement;
  readonly #send: HTMLButtonElement;
  readonly #templates: HTMLButtonElement;
  readonly #gauge = element("span", { class: "gauge", role: "img" });
  readonly #gaugeWords = element("span", { class: "gauge__words" });
  readonly #arc: SVGElement;
  readonly #draw = eachFrame(() => this.#drawNow());
  #busy = false;
  #expected = false; // an answer that was asked for by a button elsewhere
  #hadFocus = false;

  constructor(page: Page) {
    this.#page = page;
    this.#field = element("textarea", { class: "composer__text", rows: 1, placeholder: "Ask something", "aria-label": "Message", enterkeyhint: "send" });
    this.#send = button({ label: "Send", look: "main", class: "composer__send", press: () => this.#pressed() });
    this.#templates = button({ label: "", look: "bare", class: "composer__templates", press: (anchor) => this.#openTemplates(anchor), attributes: { "aria-haspopup": "menu", "aria-label": "Templates" } });
    this.#templates.append(icon("text", true), element("span", {}, "Templates"));
    this.#arc = svg("circle", { class: "gauge__arc", cx: 9, cy: 9, r: 7, "stroke-dasharray": ROUND, "stroke-dashoffset": ROUND });
    this.#gauge.append(this.#gaugeWords, svg("svg", { class: "gauge__ring", viewBox: "0 0 18 18", "aria-hidden": "true" }, svg("circle", { cx: 9, cy: 9, r: 7 }), this.#arc));
    this.element = element("form", { class: "composer", "aria-label": "Write a message" }, this.#field,
      element("div", { class: "composer__row" }, this.#templates, element("span", { class: "composer__space" }), this.#gauge, this.#send));
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.#field.addEventListener("input", () => this.#typed());
    this.#field.addEventListener("focus", () => { this.#expected = false; }); // the reader has gone on
    this.#field.addEventListener("keydown", (event) => this.#key(event));
    // It has the focus most of the time, and a thin edge for it; who comes with the keyboard sees a ring.
    this.#field.addEventListener("keyup", ({ key }) => {
      if (key === "Tab") this.element.classList.add("composer--tabbed");
    });
    this.#field.addEventListener("blur", () => this.element.classList.remove("composer--tabbed"));
    const { core } = page;
    core.chat.running.subscribe(this.#draw);
    core.conversations.changes.on(this.#draw);
    core.models.list.subscribe(this.#draw);
    core.connection.status.subscribe(this.#draw);
    this.#drawNow();
  }

  /** Another conversation is shown: its own draft comes with it. */
  open(): void {
    this.#field.value = this.#page.core.drafts.get(this.#place());
    this.#fit();
    this.#drawNow();
  }

  /** The button that asked goes away with it: Stop takes its focus, and the field when the answer is over. */
  expectAnswer(): void {
    this.#expected = true;
  }

  focus(): void {
    if (!this.#field.disabled) this.#field.focus();
  }

  write(text: string): void {
    this.#field.value = text;
    this.#typed();
    this.focus();
    this.#field.setSelectionRange(text.length, text.length);
  }

  #typed(): void {
    this.#page.core.drafts.set(this.#place(), this.#field.value);
    this.#fit();
    this.#draw();
  }

  /** Where the draft is kept: a conversation without messages has another id after the page was loaded again. */
  #place(): string | null {
    const id = this.#page.conversation.get();
    return this.#page.core.conversations.path(id).length === 0 ? null : id;
  }

  /** As high as its text, and in its direction. */
  #fit(): void {
    const { value, style } = this.#field;
    attribute(this.#field, "dir", directionOf(value));
    style.height = value.length > SURELY_LONG ? "100vh" : "auto"; // at most what its style allows
    if (value.length <= SURELY_LONG) style.height = `${this.#field.scrollHeight}px`;
  }

  #key(event: KeyboardEvent): void {
    if (composing(event) || event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.#submit();
  }

  #pressed(): void {
    if (this.#busy) this.#page.core.chat.stop(this.#page.conversation.get());
    else this.#submit();
  }

  #submit(): void {
    const text = this.#field.value.trim();
    if (text === "" || this.#busy) return;
    const id = this.#page.conversation.get();
    this.#page.core.drafts.set(this.#place(), "");
    this.#field.value = "";
    this.#fit();
    this.#page.core.chat.send(id, text).catch((failure: unknown) => {
      if (this.#page.conversation.get() === id && this.#field.value === "") this.write(text);
      this.#page.note(reason(failure));
    });
  }

  #drawNow(): void {
    const id = this.#page.conversation.get();
    const busy = this.#page.core.chat.running.get().has(id);
    if (busy !== this.#busy || this.#send.childElementCount === 0) this.#turn(busy);
    this.#send.disabled = !busy && this.#field.value.trim() === "";
    this.#drawGauge(id);
  }

  /** While an answer is written the inputs are disabled, and Send is Stop. */
  #turn(busy: boolean): void {
    if (busy) {
      this.#hadFocus = this.#expected || document.activeElement === this.#field || document.activeElement === this.#send;
      this.#expected = false;
      this.#send.disabled = false; // what is disabled takes no focus
    }
    this.#busy = busy;
    this.#field.disabled = busy;
    this.#templates.disabled = busy;
    this.#field.placeholder = busy ? "An answer is being written" : "Ask something";
    this.#send.classList.toggle("composer__send--stop", busy);
    this.#send.classList.toggle("button--main", !busy);
    this.#send.replaceChildren(icon(busy ? "stop" : "send", true), busy ? "Stop" : "Send");
    if (busy && this.#hadFocus) this.#send.focus({ preventScroll: true }); // it is in view; scrolling there would lay everything out once more
    if (!busy && this.#hadFocus && (document.activeElement === this.#send || document.activeElement === document.body) && matchMedia("(pointer: fine)").matches) this.#field.focus();
  }

  #drawGauge(id: string): void {
    const { used, length } = this.#page.core.chat.contextUse(id);
    this.#gauge.hidden = length === null && used === 0;
    const share = length === null || length === 0 ? 0 : Math.min(1, used / length);
    this.#arc.setAttribute("stroke-dashoffset", String(ROUND * (1 - share)));
    this.#gauge.classList.toggle("gauge--warn", share >= 0.8 && share < 0.95);
    this.#gauge.classList.toggle("gauge--full", share >= 0.95);
    if (length !== null) this.#gaugeWords.style.minWidth = `${count(length).length * 2 + 3}ch`; // room for all that it may say
    setText(this.#gaugeWords, length === null ? plural(used, "token") : `${count(used)} / ${count(length)}`);
    const label = length === null ? `${plural(used, "token")} of context in use` : `${count(used)} of ${count(length)} tokens of context in use`;
    this.#gauge.setAttribute("aria-label", label);
    this.#gauge.title = label;
  }

  #openTemplates(anchor: HTMLElement): void {
    const { settings } = this.#page.core;
    const items = settings.templates.get().map((template) => ({
      label: template.name,
      hint: template.text.replaceAll("{text}", "…").replace(/\s+/g, " "),
      press: () => this.write(template.text.includes("{text}") ? template.text.replaceAll("{text}", () => this.#field.value) : `${template.text}${this.#field.value}`),
    }));
    openMenu(anchor, "Templates", [...items, { label: "Your templates", icon: "edit" as const, line: true, press: () => manageTemplates(this.#page) }]);
  }
}
