// What can be done with one conversation and with all: export, import, delete.
import type { Conversation } from "../core/types.ts";
import { confirmFirst } from "./dialog.ts";
import { element } from "./dom.ts";
import { plural } from "./format.ts";
import type { MenuItem } from "./menu.ts";
import { reason, type Page } from "./page.ts";

export function oneMenu(page: Page, conversation: Conversation, actions: { rename: () => void; remove: () => void }): MenuItem[] {
  return [
    { label: "Rename", icon: "edit", press: actions.rename },
    { label: "Export as Markdown", icon: "download", press: () => void exportTo(page, conversation.id, "markdown") },
    { label: "Export as JSON", icon: "download", press: () => void exportTo(page, conversation.id, "json") },
    { label: "Delete", icon: "trash", danger: true, line: true, press: actions.remove },
  ];
}

export function allMenu(page: Page): MenuItem[] {
  return [
    { label: "Import", icon: "upload", press: () => importFile(page) },
    { label: "Export all as JSON", icon: "download", press: () => void exportTo(page, null, "json") },
    { label: "Export all as Markdown", icon: "download", press: () => void exportTo(page, null, "markdown") },
    { label: "Delete all", icon: "trash", danger: true, line: true, press: () => removeAll(page) },
  ];
}

async function exportTo(page: Page, id: string | null, format: "json" | "markdown"): Promise<void> {
  try {
    const file = await page.core.transfer.export(id, format);
    page.download(file.name, file.type, file.text);
  } catch (failure) {
    page.note(reason(failure));
  }
}

function importFile(page: Page): void {
  const chooser = element("input", { type: "file", accept: ".json,application/json", class: "unseen", tabindex: -1, "aria-hidden": "true" });
  chooser.addEventListener("change", () => {
    const file = chooser.files?.[0];
    chooser.remove();
    if (file) void takeIn(page, file);
  });
  chooser.addEventListener("cancel", () => chooser.remove());
  document.body.append(chooser);
  chooser.click();
}

async function takeIn(page: Page, file: File): Promise<void> {
  try {
    const report = await page.core.transfer.import(await file.text());
    const skipped = report.skipped > 0 ? ` ${plural(report.skipped, "was", "were")} here already.` : "";
    page.note(`${plural(report.conversations, "conversation")} with ${plural(report.messages, "message")} imported.${skipped}`);
  } catch (failure) {
    page.note(reason(failure));
  }
}

function removeAll(page: Page): void {
  const many = page.core.conversations.list.get().length;
  if (many === 0) return page.note("There is nothing to delete.");
  confirmFirst("Delete all conversations", `${plural(many, "conversation")} of this browser will be deleted. Export them first to keep a copy.`, "Delete all", () => {
    const undo = page.core.conversations.removeAll();
    page.newConversation();
    page.note(`${plural(many, "conversation")} deleted.`, { label: "Undo", press: undo });
  });
}
