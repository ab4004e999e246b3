// Conversations as files, and back. JSON holds all of it, branches too, and can be read again; Markdown is what is shown,
// for people. What is imported is hostile: read field by field, never believed.
import type { Conversations } from "./conversations.ts";
import { field, isRecord, parseJson } from "./json.ts";
import { readAll, readConversation, readMessage } from "./records.ts";
import type { StoredConversation, StoredMessage } from "./records.ts";
import { MessageTree, rootKey } from "./message_tree.ts";
import { sourcesToMarkdown } from "./sources.ts";
import type { ExportedFile, ImportReport, Message, Settings, Transfer } from "./types.ts";

const format = "quarrel-conversations";
const version = 1;

function fileName(title: string, ending: string): string {
  const cleaned = title.normalize("NFKC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60);
  return `${cleaned === "" ? "conversation" : cleaned}.${ending}`;
}

function parametersLine(settings: Settings): string {
  const named: readonly (readonly [string, number | null])[] = [
    ["temperature", settings.temperature], ["top-k", settings.topK], ["top-p", settings.topP], ["min-p", settings.minP],
    ["max tokens", settings.maxTokens], ["seed", settings.seed],
  ];
  const parts = named.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value ?? ""}`);
  if (settings.retrieval === true) parts.push(`texts of ${settings.retrievalAddress === "" ? "the server's dataset" : settings.retrievalAddress}`);
  if (settings.stop.length > 0) parts.push(`stop ${settings.stop.map((text) => JSON.stringify(text)).join(", ")}`);
  return parts.join(", ");
}

function noteOf(message: Message): string {
  const parts = [new Date(message.createdAt).toISOString()];
  if (message.model !== null) parts.push(message.model);
  if (message.settings !== null) parts.push(parametersLine(message.settings));
  if (message.statistics !== null) parts.push(`${message.statistics.generatedTokens} tokens, ${message.statistics.tokensPerSecond.toFixed(1)} tokens/s`);
  return parts.filter((part) => part !== "").join(" · ");
}

export function toMarkdown(conversation: StoredConversation, messages: readonly StoredMessage[]): string {
  const tree = new MessageTree();
  for (const message of messages) tree.put(message);
  const parts = [`# ${conversation.title === "" ? "Conversation" : conversation.title}\n`];
  const system = messages.find((message) => message.settings !== null && message.settings.systemPrompt !== "")?.settings?.systemPrompt;
  if (system !== undefined) parts.push(`**System**\n\n${system}\n`);
  for (const { message } of tree.path(conversation.selected)) {
    parts.push(`## ${message.role === "user" ? "You" : "Model"}\n\n*${noteOf(message)}*\n\n${message.text}\n`);
    if (message.error !== null) parts.push(`> ${message.error.message}\n`);
    if (message.sources !== null) parts.push(sourcesToMarkdown(message.sources));
  }
  return parts.join("\n");
}

function toRecord(conversation: StoredConversation, messages: readonly StoredMessage[]): Record<string, unknown> {
  const { deletedAt: _deletedAt, ...kept } = conversation;
  // Where and how an answer can be taken up is nobody else's business.
  return { ...kept, messages: messages.map(({ resume: _resume, soFar: _soFar, ...message }) => message) };
}

interface Imported {
  record: StoredConversation;
  messages: StoredMessage[];
}

function readImported(value: unknown): Imported | null {
  const record = readConversation(value);
  if (record === null) return null;
  const messages = readAll(field(value, "messages"), (one) => readMessage(isRecord(one) ? { ...one, conversationId: record.id } : one));
  for (const message of messages) {
    message.resume = null;
    if (message.state === "writing") message.state = "interrupted";
  }
  return { record: { ...record, deletedAt: null }, messages };
}

/** An id is a message's everywhere in this browser: one that a file says may be another conversation's. */
function withNewIds({ record, messages }: Imported, newId: () => string): Imported {
  const ids = new Map(messages.map(({ id }) => [id, newId()]));
  const selected: Record<string, string> = {};
  for (const [parent, child] of Object.entries(record.selected)) {
    const newParent = parent === rootKey ? rootKey : ids.get(parent);
    const newChild = ids.get(child);
    if (newParent !== undefined && newChild !== undefined) selected[newParent] = newChild;
  }
  return {
    record: { ...record, selected },
    messages: messages.map((message) => ({
      ...message, id: ids.get(message.id) ?? newId(), parentId: message.parentId === null ? null : (ids.get(message.parentId) ?? message.parentId),
    })),
  };
}

export function readFile(text: string): Imported[] {
  const file = parseJson(text);
  if (file === undefined) throw new Error("The file is not JSON. Choose one that this page exported.");
  if (field(file, "format") !== format) throw new Error("The file has no Quarrel conversations. Choose one that this page exported.");
  if (field(file, "version") !== version) throw new Error("The file was written by a newer version of the page. Update the server, then import it.");
  return readAll(field(file, "conversations"), readImported);
}

export function createTransfer(conversations: Conversations, newId: () => string): Transfer {
  const one = async (id: string): Promise<{ record: StoredConversation; messages: readonly StoredMessage[] } | null> => {
    const record = conversations.get(id);
    return record === null ? null : { record, messages: await conversations.allMessages(id) };
  };
  return {
    export: async (conversationId, wanted): Promise<ExportedFile> => {
      const ids = conversationId === null ? conversations.list.get().map(({ id }) => id) : [conversationId];
      const all = (await Promise.all(ids.map(one))).filter((found) => found !== null);
      const title = conversationId === null ? "quarrel-conversations" : (all[0]?.record.title ?? "");
      if (wanted === "markdown") {
        const text = all.map(({ record, messages }) => toMarkdown(record, messages)).join("\n---\n\n");
        return { name: fileName(title, "md"), type: "text/markdown", text };
      }
      const exported = all.map(({ record, messages }) => toRecord(record, messages));
      const text = JSON.stringify({ format, version, exportedAt: new Date().toISOString(), conversations: exported }, null, 2);
      return { name: fileName(title, "json"), type: "application/json", text };
    },
    import: (text): Promise<ImportReport> => {
      const report: ImportReport = { conversations: 0, messages: 0, skipped: 0 };
      try {
        for (const imported of readFile(text)) {
          const { record, messages } = withNewIds(imported, newId);
          if (conversations.takeOver(record, messages)) {
            report.conversations += 1;
            report.messages += messages.length;
          } else {
            report.skipped += 1;
          }
        }
      } catch (error) {
        return Promise.reject(error instanceof Error ? error : new Error("The file cannot be read."));
      }
      return Promise.resolve(report);
    },
  };
}
