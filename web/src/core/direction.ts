// Which way a text is written: by its first letter, as browsers do for dir="auto". They look through the whole text again
// at every key, and skip children with a direction of their own; this does neither.

const letter = /\p{L}/u;
const rightToLeft = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Samaritan}\p{Script=Mandaic}\p{Script=Adlam}]/u;

/** null: it has no letters. */
export function directionOf(text: string): "ltr" | "rtl" | null {
  const first = letter.exec(text)?.[0];
  if (first === undefined) return null;
  return rightToLeft.test(first) ? "rtl" : "ltr";
}
