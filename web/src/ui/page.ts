// What the parts of the page share: the core, the conversation and the view that are shown, and the ways to tell the
// reader something. app.ts makes it once.
import type { Core, Readable, Settings } from "../core/types.ts";

export type ViewName = "chat" | "status" | "embeddings";

export interface NoteAction {
  label: string;
  press: () => void;
}

export interface Page {
  readonly core: Core;
  readonly view: Readable<ViewName>;
  /** Of the conversation that is shown; one without messages yet is not in the list. */
  readonly conversation: Readable<string>;
  go(view: ViewName): void;
  openConversation(id: string): void;
  newConversation(): void;
  /** Opens the list of models. */
  chooseModel(): void;
  /** Opens the settings of this chat at one of them. */
  openSettings(at: keyof Settings): void;
  /** An answer was asked for by a button that goes away with it: the focus goes on to Stop. */
  answerAsked(): void;
  /** A line at the edge of the page for a while. */
  note(text: string, action?: NoteAction): void;
  /** Says it to screen readers alone. */
  announce(text: string): void;
  copy(text: string, what: string): void;
  download(name: string, type: string, text: string): void;
}

/** Calls back at once and at every change. */
export function follow<T>(source: Readable<T>, listener: (value: T) => void): () => void {
  listener(source.get());
  return source.subscribe(listener);
}

/** Runs `work` once before the next frame, however often it is asked for. */
export function eachFrame(work: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/** The sentence for the reader of whatever a promise was rejected with. */
export function reason(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}
