// The line at the top: menu, model, connection, theme, settings.
import type { ConnectionStatus } from "../core/types.ts";
import { tool } from "./controls.ts";
import { element, setText } from "./dom.ts";
import { modelPicker } from "./model_picker.ts";
import { follow, type Page, type ViewName } from "./page.ts";
import { themeTool } from "./theme.ts";

export interface HeaderActions {
  toggleSidebar: () => void;
  toggleSettings: (anchor: HTMLElement) => void;
}

const TITLES: Record<Exclude<ViewName, "chat">, string> = { status: "Status", embeddings: "Embeddings" };

export interface Header {
  element: HTMLElement;
  menu: HTMLButtonElement;
  picker: HTMLButtonElement;
}

export function header(page: Page, actions: HeaderActions): Header {
  const menu = tool("menu", "Conversations", actions.toggleSidebar);
  const fresh = tool("plus", "New chat", () => page.newConversation(), { class: "head__new" });
  const picker = modelPicker(page);
  const title = element("h1", { class: "head__title" });
  const settings = tool("sliders", "Settings", actions.toggleSettings);
  settings.setAttribute("aria-expanded", "false");
  settings.id = "settings-tool";
  follow(page.view, (view) => {
    const chat = view === "chat";
    picker.hidden = !chat;
    settings.hidden = !chat;
    title.hidden = chat;
    if (!chat) setText(title, TITLES[view]);
  });
  const made = element("header", { class: "head" }, menu, picker, title, element("span", { class: "head__space" }),
    connection(page), fresh, themeTool(page), settings);
  return { element: made, menu, picker };
}

const LOOKS: Record<ConnectionStatus["state"], { dot: string; text: string }> = {
  connected: { dot: "dot dot--good", text: "Connected" },
  connecting: { dot: "dot dot--warn dot--pulse", text: "Connecting" },
  generating: { dot: "dot dot--busy", text: "Writing" },
  disconnected: { dot: "dot dot--bad", text: "Disconnected" },
};

function connection(page: Page): HTMLElement {
  const dot = element("span", { class: "dot" });
  const text = element("span", { class: "head__state-text" });
  const made = element("span", { class: "head__state", role: "status", "aria-label": "Connection" }, dot, text);
  follow(page.core.connection.status, (status) => {
    const look = LOOKS[status.state];
    dot.className = look.dot;
    setText(text, look.text);
    made.dataset["state"] = status.state;
    made.title = status.transport === "sse" ? `${look.text} by server-sent events, because WebSockets are blocked` : look.text;
  });
  return made;
}
