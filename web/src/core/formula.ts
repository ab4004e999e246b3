// Formulas in Markdown, as models write them: \(…\) in a line, \[…\] and $$…$$ in lines of their own too.

/** What is longer is text. Without a bound the end of each of fifty thousand `\(` would be looked for through all that follows,
 * at every frame of an answer that is made of them. */
export const longestFormula = 2000;

const ends: Readonly<Record<string, string>> = { "\\[": "\\]", "\\(": "\\)", $$: "$$" };

/** The formula with which a text begins; null: it begins with none. */
export function formulaAt(text: string): string | null {
  const end = ends[text.slice(0, 2)];
  if (end === undefined) return null;
  const at = text.slice(0, longestFormula).indexOf(end, 3); // an empty one is none
  return at < 0 ? null : text.slice(0, at + 2);
}
