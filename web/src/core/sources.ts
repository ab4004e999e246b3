// The texts of a dataset that a question was asked with, as the answer tells them. Whoever fills the dataset wrote them:
// they are hostile, and read field by field.
import { field, isRecord, numberOr, textOr } from "./json.ts";
import type { Source } from "./types.ts";

/** Far more than a server puts into a prompt. */
const mostSources = 100;
const longestName = 300;

function idOf(value: unknown): string {
  return typeof value === "number" ? String(value) : textOr(value, "");
}

/** One line: names stand in lists. */
function nameOf(value: unknown): string {
  return textOr(value, "").replace(/\s+/g, " ").trim().slice(0, longestName);
}

/** Both of the server's sources and of those that were kept. */
function readSource(value: unknown, place: number): Source {
  const metadata = field(value, "metadata");
  return {
    number: numberOr(field(value, "number"), place + 1),
    score: numberOr(field(value, "score"), null),
    id: idOf(field(value, "id")).slice(0, longestName),
    docId: nameOf(field(value, "doc_id") ?? field(value, "docId")),
    source: nameOf(field(value, "source")),
    metadata: isRecord(metadata) ? JSON.stringify(metadata) : textOr(metadata, ""),
    text: textOr(field(value, "text"), ""),
    isCut: field(value, "cut") === true || field(value, "isCut") === true,
  };
}

/** null: there is no list. */
export function readSources(value: unknown): Source[] | null {
  return Array.isArray(value) ? value.filter(isRecord).slice(0, mostSources).map(readSource) : null;
}

/** What a reader knows it by. */
export function sourceName({ source, docId, id }: Source): string {
  return source || docId || (id === "" ? "without a name" : `id ${id}`);
}

/** A fence that the text cannot end. */
function fenceOf(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  return "`".repeat(longest + 1);
}

export function sourcesToMarkdown(sources: readonly Source[]): string {
  const parts = sources.map((one) => {
    const facts = [one.id === "" ? "" : `id ${one.id}`, one.score === null ? "" : `score ${one.score.toFixed(2)}`, one.isCut ? "cut" : ""].filter((fact) => fact !== "");
    const fence = fenceOf(one.text);
    return `${one.number}. ${sourceName(one)}${facts.length > 0 ? ` (${facts.join(", ")})` : ""}\n\n${fence}text\n${one.text}\n${fence}\n`;
  });
  return `**Sources**\n\n${parts.length > 0 ? parts.join("\n") : "No texts were found in the dataset.\n"}`;
}
